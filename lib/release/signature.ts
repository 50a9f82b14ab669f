/** OpenPGP signatures of releases: keyrings, trust, checksums and encryption. */
export { findSignedFile, type SignedFile } from './signature/checksums.ts';
export { decryptWith, encryptTo, isEncrypted, readEncryptionKey } from './signature/encryption.ts';
export {
  armorTrusted,
  loadKeyring,
  parseFingerprint,
  redHatReleaseKey,
  type KeyMaterial,
} from './signature/keyring.ts';
export { fingerprintOf, type VerifiedSignature } from './signature/signature.ts';
export { collectSignatures, verifyRelease } from './signature/trust.ts';
