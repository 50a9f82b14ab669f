import { constants, hkdfSync } from 'node:crypto';
import type { ConnectionOptions, TlsOptions as ServerTlsOptions } from 'node:tls';
import type { Certificates } from './certificates.ts';

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
 * Derives a bearer token for one purpose from a secret text, as hex digits. The key of connections cannot be derived from it.
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
