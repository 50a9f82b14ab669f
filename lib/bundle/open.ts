/** Opened bundles: a tar, volumes or a directory, with or without their base, and their signatures. */
export { entryKindOf, type Bundle, type Problem, type ProblemSubject } from './open/bundle.ts';
export {
  addBases,
  addContents,
  baseHint,
  completeBundle,
  describeMissingBlobs,
  descriptorOf,
  listMissingBlobs,
  openComplete,
} from './open/deltaBase.ts';
export { identifyBundle, identityFields, parseIdentity, type BundleEvidence } from './open/identity.ts';
export { holdsTar, openBundle } from './open/open.ts';
export { openRemoteTar } from './open/openTar.ts';
export { findDigest, readDigestFile, upgradeBundleName } from './open/sidecars.ts';
export { describeExtraImages, verifyUntrusted, type VerifyTrust } from './open/signatureCheck.ts';
export {
  checkAttachments,
  checkReleases,
  checkSigned,
  requireListing,
  type SignedBundle,
} from './open/signedBundle.ts';
