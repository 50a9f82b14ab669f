import type { VerifyTrust } from '../../lib/bundle/vouching.ts';
import type { SignedRelease } from '../../lib/release/load.ts';
import type { FetchFile } from '../../lib/release/signatureStore.ts';
import type { Arguments } from '../command.ts';
import type { trustOptions } from '../options.ts';

/** Whom to believe about a bundle, by the trust options of a command. */
export function trustOf(args: Arguments<typeof trustOptions>, fetchFile: FetchFile): VerifyTrust {
  return {
    keyrings: args.signatureKeyring,
    fingerprints: args.trustFingerprint,
    allowUnsigned: args.allowUnsigned,
    store: args.signatureStore,
    fetchFile,
  };
}

/** Who signed a release, as a line of words. */
export function nameSigners({ release, signatures }: SignedRelease): string {
  const own = signatures.get(release.digest) ?? [];
  if (own.length === 0) return 'nobody who is trusted';
  return own.map(({ userId, fingerprint }) => `${userId}, key ${fingerprint}`).join('; ');
}
