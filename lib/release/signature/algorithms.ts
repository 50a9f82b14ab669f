// The numbers of OpenPGP (RFC 9580, section 9, and the draft on post-quantum cryptography), for messages.
const publicKeyNames: Readonly<Record<number, string>> = {
  1: 'RSA',
  2: 'RSA for encryption',
  3: 'RSA for signatures',
  16: 'ElGamal',
  17: 'DSA',
  18: 'ECDH',
  19: 'ECDSA',
  22: 'EdDSA (ed25519)',
  25: 'X25519',
  26: 'X448',
  27: 'Ed25519',
  28: 'Ed448',
  30: 'ML-DSA-65+Ed25519',
  31: 'ML-DSA-87+Ed448',
  32: 'SLH-DSA-SHAKE-128s',
  33: 'SLH-DSA-SHAKE-128f',
  34: 'SLH-DSA-SHAKE-256s',
  35: 'ML-KEM-768+X25519',
  36: 'ML-KEM-1024+X448',
};

const hashNames: Readonly<Record<number, string>> = {
  1: 'MD5',
  2: 'SHA-1',
  3: 'RIPEMD-160',
  8: 'SHA-256',
  9: 'SHA-384',
  10: 'SHA-512',
  11: 'SHA-224',
  12: 'SHA3-256',
  14: 'SHA3-512',
};

/** Returns the name of an OpenPGP public-key algorithm by its number. */
export function publicKeyAlgorithmName(number: number): string {
  return publicKeyNames[number] ?? `public-key algorithm ${number}`;
}

/** Returns the name of an OpenPGP hash algorithm by its number. */
export function hashAlgorithmName(number: number): string {
  return hashNames[number] ?? `hash algorithm ${number}`;
}
