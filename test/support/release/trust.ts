import type { VerifyTrust } from '../../../lib/bundle/signatureCheck.ts';

/** The trust of a test that is not about trust: unsigned releases, no network. */
export const believeAll: VerifyTrust = {
  keyrings: [],
  fingerprints: [],
  allowUnsigned: true,
  fetchFile: () => Promise.resolve(undefined),
};
