import { constants, hkdfSync } from 'node:crypto';
import type { ConnectionOptions, TlsOptions as ServerTlsOptions } from 'node:tls';
import type { Certificates } from './certificates.ts';

/** A key that both ends of a TLS connection have: 32 bytes. */
export type PreSharedKey = Buffer;

/** The name of the key, which is sent unencrypted. It is no secret: there is only one key. */
const identity = 'oc-upgrade-bundle';

// Forward secrecy from ECDHE, both ends authenticated by the key, and no certificate that could expire. Version 1.3 has
// no such name for "with this key only": a client would accept a certificate in its place.
const tls = {
  ciphers: 'ECDHE-PSK-CHACHA20-POLY1305',
  minVersion: 'TLSv1.2',
  maxVersion: 'TLSv1.2',
} as const;

/** Derives the key of connections from a secret text by HKDF, so that the text itself is never sent. */
export function derivePreSharedKey(secret: string): PreSharedKey {
  return Buffer.from(hkdfSync('sha256', secret, '', `${identity} tls psk v1`, 32));
}

/** Returns the options of a server that only clients with the key can talk to. */
export function serverTlsOf(psk: PreSharedKey): ServerTlsOptions {
  return {
    ...tls,
    // A ticket would resume a session without fresh keys.
    secureOptions: constants.SSL_OP_NO_TICKET,
    handshakeTimeout: 15_000,
    pskCallback: (_, given) => (given === identity ? psk : null),
  };
}

/** Returns what Connections need to talk to servers that have the key, and to no others. */
export function clientTlsOf(psk: PreSharedKey): Pick<Certificates, 'for'> {
  const options = {
    ...tls,
    ca: [],
    pskCallback: () => ({ psk, identity }),
    // The key is the identity: there is no certificate with a name in it.
    checkServerIdentity: () => undefined,
  } satisfies ConnectionOptions;
  return { for: () => Promise.resolve(options) };
}
