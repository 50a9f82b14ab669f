/** Sigstore signatures of images, and the policies that require them. */
export {
  exportPublicKey,
  fingerprintOfKey,
  formatEnvelope,
  isSignedBy,
  parseEnvelope,
  signEnvelope,
  signPayload,
  type Envelope,
} from './sigstore/envelope.ts';
export {
  isEnforcedByDefault,
  policiesFor,
  readImagePolicy,
  rootFingerprint,
  scopesOf,
  type ImagePolicy,
} from './sigstore/imagePolicy.ts';
export { readPolicyKey, type PolicyKey } from './sigstore/trustRoot.ts';
export { listOtherKeys, loadExpectedKeys, nameKey, releaseKeys, type ExpectedKeys } from './sigstore/policyKeys.ts';
export {
  checkReleaseImages,
  finderIn,
  readerOf,
  requireVerified,
  type ImageReader,
  type NamedImage,
  type NamedResult,
} from './sigstore/releaseCheck.ts';
