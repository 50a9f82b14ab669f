import { X509Certificate, constants, hkdfSync } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  createSecureContext,
  getCACertificates,
  type ConnectionOptions,
  type TlsOptions as ServerTlsOptions,
} from 'node:tls';
import { messageOf, PluginError } from '#errors';
import { readPem } from '../files/smallFile.ts';

/** Options for verifying registries, and the folders of their certificates. */
export interface CertificatesOptions {
  /** Accept any certificate of a server. */
  readonly insecure: boolean;
  /** The path of a PEM file with CAs to trust in addition to those of the system. */
  readonly certificateAuthority?: string;
  /** Folders with one folder for each registry, in order of precedence; by default those of podman and docker. */
  readonly folders?: readonly string[];
}

/**
 * Options of a TLS context. Use one context for all connections to a host, because loading the CAs of a system takes
 * ten milliseconds.
 */
export interface TlsOptions extends Pick<
  ConnectionOptions,
  'ciphers' | 'minVersion' | 'maxVersion' | 'pskCallback' | 'checkServerIdentity'
> {
  /** CAs in PEM, including those of the system. */
  readonly ca?: string[];
  /** Client certificates in PEM. Each has its key at the same index of `key`. */
  readonly cert?: string[];
  readonly key?: string[];
  /** Trust each certificate in `ca` as a CA, also an intermediate one, as Go does. */
  readonly allowPartialTrustChain?: boolean;
  readonly rejectUnauthorized?: boolean;
}

/** The TLS options of each registry of a run. Reads files once, when a registry is first needed. */
export class Certificates {
  readonly #options: CertificatesOptions;
  readonly #registries = new Map<string, Promise<TlsOptions>>();
  #trusted: Promise<string[]> | undefined;

  constructor(options: CertificatesOptions) {
    this.#options = options;
  }

  /**
   * Returns the TLS options for a registry (`host` or `host:port`). CAs are those of the system, of Node.js and of
   * `certificateAuthority`. From `<folder>/<registry>/`, each `*.crt` is a CA, and each `*.cert` with its `*.key` a
   * client certificate (containers-certs.d(5)). Throws `not-readable` and `invalid-file` with the file.
   */
  for(registry: string): Promise<TlsOptions> {
    const options = this.#registries.get(registry) ?? this.#read(registry);
    this.#registries.set(registry, options);
    return options;
  }

  async #read(registry: string): Promise<TlsOptions> {
    const { insecure, certificateAuthority, folders = defaultFolders } = this.#options;
    const { ca = [], ...client } = await readRegistryFolder(folders, registry);
    // Skip loading CAs when verification is off.
    if (insecure) return { ...client, rejectUnauthorized: false };
    const trusted = await (this.#trusted ??= readAllAuthorities(certificateAuthority));
    return {
      ca: [...trusted, ...ca],
      ...client,
      allowPartialTrustChain: true,
      rejectUnauthorized: true,
    };
  }
}

const defaultFolders = ['/etc/containers/certs.d', '/etc/docker/certs.d'];

async function readAllAuthorities(certificateAuthority: string | undefined): Promise<string[]> {
  const extra = certificateAuthority === undefined ? [] : await readAuthorities(certificateAuthority);
  return [...new Set([...getCACertificates('default'), ...getCACertificates('system'), ...extra])];
}

async function readRegistryFolder(folders: readonly string[], registry: string): Promise<TlsOptions> {
  for (const folder of folders.map((parent) => join(parent, registry))) {
    // Folders of other users may not be readable. podman skips them too.
    const names = await readdir(folder).catch(() => undefined);
    if (!names) continue;
    const withSuffix = (suffix: string) =>
      names.filter((name) => name.endsWith(suffix)).map((name) => join(folder, name.slice(0, -suffix.length)));
    const ca = await Promise.all(withSuffix('.crt').map((name) => readAuthorities(`${name}.crt`)));
    const pairs = withSuffix('.cert').sort();
    const orphan = withSuffix('.key').find((name) => !pairs.includes(name));
    if (orphan)
      throw new PluginError('invalid-file', `${orphan}.key has no certificate ${orphan}.cert in the same folder`);
    const clients = await Promise.all(pairs.map(readClient));
    return {
      ca: ca.flat(),
      ...(clients.length > 0 && { cert: clients.map(({ cert }) => cert), key: clients.map(({ key }) => key) }),
    };
  }
  return {};
}

async function readClient(path: string): Promise<{ cert: string; key: string }> {
  const pair = { cert: await readPem(`${path}.cert`), key: await readPem(`${path}.key`) };
  try {
    createSecureContext(pair);
  } catch (cause) {
    throw new PluginError('invalid-file', `the client certificate ${path}.cert cannot be used: ${messageOf(cause)}`, {
      hint: `Put its unencrypted private key into ${path}.key.`,
      cause,
    });
  }
  return pair;
}

async function readAuthorities(path: string): Promise<string[]> {
  const certificates = (await readPem(path)).match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  if (certificates.length === 0) {
    throw new PluginError('invalid-file', `${path} has no certificate in PEM format`, {
      hint: 'Convert a binary certificate with: openssl x509 -inform der -in FILE -out FILE.crt',
    });
  }
  for (const [index, pem] of certificates.entries()) {
    try {
      new X509Certificate(pem);
    } catch (cause) {
      const which = `certificate ${index + 1} of ${certificates.length}`;
      throw new PluginError('invalid-file', `${path}: ${which} is malformed`, { cause });
    }
  }
  return certificates;
}

/** A key of 32 bytes that both ends of a TLS connection have. */
export type PreSharedKey = Buffer;

/** The name of the key, which is sent unencrypted. It is not secret, because there is only one key. */
const identity = 'oc-upgrade-bundle';

// ECDHE gives forward secrecy, the key authenticates both ends, and no certificate can expire. TLS
// 1.3 has no cipher that requires the key: a client would accept a certificate instead.
const tls = {
  ciphers: 'ECDHE-PSK-CHACHA20-POLY1305',
  minVersion: 'TLSv1.2',
  maxVersion: 'TLSv1.2',
} as const;

/** Derives the key of connections from a secret text by HKDF, so that the text itself is never sent. */
export function derivePreSharedKey(secret: string): PreSharedKey {
  return Buffer.from(hkdfSync('sha256', secret, '', `${identity} tls psk v1`, 32));
}

/**
 * Derives a bearer token for one purpose from a secret text, as hex digits. The key of connections cannot be derived
 * from it.
 */
export function deriveBearerToken(secret: string, purpose: string): string {
  return Buffer.from(hkdfSync('sha256', secret, '', `${identity} ${purpose} token v1`, 32)).toString('hex');
}

/** Returns the options of a server that accepts only clients with the key. */
export function serverTlsOf(psk: PreSharedKey): ServerTlsOptions {
  return {
    ...tls,
    // A ticket would resume a session without fresh keys.
    secureOptions: constants.SSL_OP_NO_TICKET,
    handshakeTimeout: 15_000,
    pskCallback: (_, given) => (given === identity ? psk : null),
  };
}

/** Returns the certificates option for Connections to servers that have the key, and to no others. */
export function clientTlsOf(psk: PreSharedKey): Pick<Certificates, 'for'> {
  const options = {
    ...tls,
    ca: [],
    pskCallback: () => ({ psk, identity }),
    // The key is the identity. There is no certificate with a name.
    checkServerIdentity: () => undefined,
  } satisfies ConnectionOptions;
  return { for: () => Promise.resolve(options) };
}
