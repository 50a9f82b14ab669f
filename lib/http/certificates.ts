import { X509Certificate } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { createSecureContext, getCACertificates, type ConnectionOptions } from 'node:tls';
import { messageOf, PluginError } from '../errors.ts';
import { readSmallFile } from '../files/smallFile.ts';

/** How to verify registries, and where their certificates are. */
export interface CertificatesOptions {
  /** Accept whatever certificate a server shows (`--insecure`). */
  readonly insecure: boolean;
  /** The path of a PEM file with certificate authorities to trust besides the system’s (`--certificate-authority`). */
  readonly certificateAuthority?: string | undefined;
  /** Folders with one folder per registry, the first that has one counts; by default those of podman and docker. */
  readonly folders?: readonly string[];
}

/**
 * What to make a TLS context of. One context should serve all connections to a host: to read all the authorities of a
 * system takes ten milliseconds.
 */
export interface TlsOptions extends Pick<
  ConnectionOptions,
  'ciphers' | 'minVersion' | 'maxVersion' | 'pskCallback' | 'checkServerIdentity'
> {
  /** Certificate authorities in PEM, the system’s included. */
  readonly ca?: string[];
  /** Certificates for the client in PEM; each with its key at the same place of `key`. */
  readonly cert?: string[];
  readonly key?: string[];
  /** Takes any certificate in `ca` as an authority, also one that another has signed, as Go does. */
  readonly allowPartialTrustChain?: boolean;
  readonly rejectUnauthorized?: boolean;
}

/** TLS for each registry of a run: files are read when a registry is first connected to, and once. */
export class Certificates {
  readonly #options: CertificatesOptions;
  readonly #registries = new Map<string, Promise<TlsOptions>>();
  #trusted: Promise<string[]> | undefined;

  constructor(options: CertificatesOptions) {
    this.#options = options;
  }

  /**
   * What to connect to a registry (`host` or `host:port`) with: the authorities of the system and of Node, those of
   * `certificateAuthority`, and from `<folder>/<registry>/` every `*.crt` as an authority and every `*.cert` with its `*.key`
   * for the client, as containers-certs.d(5) has it. Throws `not-readable` and `invalid-file`, naming the file.
   */
  for(registry: string): Promise<TlsOptions> {
    const known = this.#registries.get(registry) ?? this.#read(registry);
    this.#registries.set(registry, known);
    return known;
  }

  async #read(registry: string): Promise<TlsOptions> {
    const { insecure, certificateAuthority, folders = defaultFolders } = this.#options;
    const { ca = [], ...client } = await readRegistryFolder(folders, registry);
    // Whoever verifies nothing needs no authorities, which take a while to read.
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
    // Other users’ folders may be closed to this one; podman passes over them too.
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
    throw new PluginError('invalid-file', `The client certificate ${path}.cert cannot be used: ${messageOf(cause)}`, {
      hint: `Put its unencrypted private key into ${path}.key.`,
      cause,
    });
  }
  return pair;
}

async function readAuthorities(path: string): Promise<string[]> {
  const found = (await readPem(path)).match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  if (found.length === 0) {
    throw new PluginError('invalid-file', `${path} has no certificate in PEM format`, {
      hint: 'Convert a binary certificate with: openssl x509 -inform der -in FILE -out FILE.crt',
    });
  }
  for (const [index, pem] of found.entries()) {
    try {
      new X509Certificate(pem);
    } catch (cause) {
      const which = `certificate ${index + 1} of ${found.length}`;
      throw new PluginError('invalid-file', `${path}: ${which} is malformed`, { cause });
    }
  }
  return found;
}

/** The authorities of a whole system are a quarter of a megabyte. */
const sizeLimit = 16 * 1024 * 1024;

async function readPem(path: string): Promise<string> {
  try {
    return (await readSmallFile(path, sizeLimit)).toString();
  } catch (cause) {
    throw new PluginError('not-readable', `The certificate file ${messageOf(cause)}`, { cause });
  }
}
