import { createHash, createPublicKey, type KeyObject } from 'node:crypto';

/** A public key of a policy, with the SHA-256 of its SPKI form in hex. */
export interface PolicyKey {
  readonly key: KeyObject;
  readonly fingerprint: string;
}

/** Reads a public key in PEM form. Throws if it is neither RSA, ECDSA nor Ed25519, and for a certificate or private key. */
export function readPolicyKey(pem: Buffer): PolicyKey {
  // createPublicKey derives a key from these too. Nodes refuse them, and with them all images of the policy.
  const [, label = 'no PEM'] = /-----BEGIN ([^-]+)-----/.exec(pem.toString('latin1')) ?? [];
  if (!/^(?:RSA )?PUBLIC KEY$/.test(label)) throw new TypeError(`it is ${label} instead of PUBLIC KEY`);
  const key = createPublicKey({ key: pem, format: 'pem' });
  if (!['rsa', 'ec', 'ed25519'].includes(key.asymmetricKeyType ?? '')) {
    throw new TypeError(`a key of type ${String(key.asymmetricKeyType)} is not supported`);
  }
  const spki = key.export({ type: 'spki', format: 'der' });
  return { key, fingerprint: createHash('sha256').update(spki).digest('hex') };
}
