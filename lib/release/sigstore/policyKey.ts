import { constants, createHash, createPublicKey, verify, type KeyObject } from 'node:crypto';

/** A public key of a policy, with the SHA-256 of its SPKI form in hex. */
export interface PolicyKey {
  readonly key: KeyObject;
  readonly fingerprint: string;
}

/** The elliptic curves of Go’s crypto/x509. */
const curves = ['secp224r1', 'prime256v1', 'secp384r1', 'secp521r1'];

/** Reads a public key in PEM form. Throws a TypeError for a key that nodes refuse, a certificate and a private key. */
export function readPolicyKey(pem: Buffer): PolicyKey {
  // createPublicKey derives a key from these too. Nodes refuse them, and with them all images of the policy.
  const [, label = 'text without PEM'] = /-----BEGIN ([^-]+)-----/.exec(pem.toString('latin1')) ?? [];
  if (!/^(?:RSA )?PUBLIC KEY$/.test(label)) throw new TypeError(`it is ${label} instead of PUBLIC KEY`);
  const key = createPublicKey({ key: pem, format: 'pem' });
  requireUsableKey(key);
  const spki = key.export({ type: 'spki', format: 'der' });
  return { key, fingerprint: createHash('sha256').update(spki).digest('hex') };
}

/**
 * Throws a TypeError for a public key that nodes cannot check signatures with (Go’s crypto/x509 and crypto/rsa;
 * sigstore/sigstore, pkg/signature/verifier.go).
 */
export function requireUsableKey({ asymmetricKeyType: type, asymmetricKeyDetails: details }: KeyObject): void {
  if (type === 'rsa') {
    const { modulusLength = 0, publicExponent = 0n } = details ?? {};
    if (modulusLength < 1024) throw new TypeError(`an RSA key of ${modulusLength} bits is too short`);
    if (publicExponent < 2n || publicExponent >= 2n ** 31n) throw new TypeError('the exponent of its key is too large');
  } else if (type === 'ec') {
    const curve = details?.namedCurve ?? 'unnamed';
    if (!curves.includes(curve)) throw new TypeError(`a key on the curve ${curve} is not supported`);
  } else if (type !== 'ed25519') {
    throw new TypeError(`a key of type ${String(type)} is not supported`);
  }
}

/** Returns whether a content is signed by an RSA or ECDSA key, with SHA-256. */
export function isSignedWith(key: KeyObject, content: Buffer, signature: Buffer, plainForm = false): boolean {
  try {
    const options = plainForm ? { dsaEncoding: 'ieee-p1363' as const } : { padding: constants.RSA_PKCS1_PADDING };
    return verify('sha256', content, { key, ...options }, signature);
  } catch {
    // The signature is malformed.
    return false;
  }
}
