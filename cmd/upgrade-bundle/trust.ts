import type { Context } from '../../lib/context.ts';
import type { SignedRelease, TrustRequest } from '../../lib/release/load.ts';
import { fetchFile, type FetchFile } from '../../lib/release/signatureStore.ts';
import type { Connections } from '../../lib/store/connections.ts';
import type { Arguments } from '../command.ts';
import type { trustOptions } from '../options.ts';

/** Whom to believe about a release, by the trust options of a command. */
export function trustOf(args: Arguments<typeof trustOptions>): Omit<TrustRequest, 'known' | 'fetchFile'> {
  return {
    keyrings: args.signatureKeyring,
    fingerprints: args.trustFingerprint,
    allowUnsigned: args.allowUnsigned,
    store: args.signatureStore,
  };
}

/** How signature stores are asked over some connections. */
export function fetcherOf(connections: Connections, context: Context): FetchFile {
  return (url, limit) => fetchFile(connections, url, limit, context);
}

/** Who signed a release, as a line of words. */
export function nameSigners({ release, signatures }: SignedRelease): string {
  const own = signatures.get(release.digest) ?? [];
  if (own.length === 0) return 'nobody who is trusted';
  return own.map(({ userId, fingerprint }) => `${userId}, key ${fingerprint}`).join('; ');
}
