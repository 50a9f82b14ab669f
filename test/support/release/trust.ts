import type { VerifyTrust } from '../../../lib/bundle/open/signatureCheck.ts';

/** The trust in tests of other subjects: unsigned releases, no network. */
export const acceptUnsigned: VerifyTrust = {
  keyrings: [],
  fingerprints: [],
  allowUnsigned: true,
  fetchFile: () => Promise.resolve(undefined),
};
