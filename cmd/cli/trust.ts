import type { VerifyTrust } from '../../lib/bundle/signatureCheck.ts';
import type { Context } from '../../lib/context.ts';
import type { SignedRelease } from '../../lib/release/load.ts';
import { fetchFile, type FetchFile } from '../../lib/http/fetchFile.ts';
import type { Connections } from '../../lib/http/connections.ts';
import type { Arguments } from './command.ts';
import { trustOptions } from './options.ts';

const { 'signature-store': _store, ...rest } = trustOptions;

/** The trust options of a command that asks no network: a cluster without a registry has no way to a signature store either. */
export const offlineTrustOptions = rest;

/** The trust options of a command, which may have that for images besides. */
type TrustArguments = Arguments<typeof trustOptions> & { readonly requireSignedImages?: boolean };

/** Whom to believe about a release, by the trust options of a command. */
export function trustOf(args: TrustArguments): Omit<VerifyTrust, 'fetchFile'> {
  return {
    keyrings: args.signatureKeyring,
    fingerprints: args.trustFingerprint,
    allowUnsigned: args.allowUnsigned,
    store: args.signatureStore,
    ...(args.requireSignedImages === true && { requireSignedImages: true }),
  };
}

/** Whom to believe about a bundle, by `offlineTrustOptions`. */
export function offlineTrustOf(args: Omit<TrustArguments, 'signatureStore'>): VerifyTrust {
  return { ...trustOf({ ...args, signatureStore: undefined }), fetchFile: () => Promise.resolve(undefined) };
}

/** How signature stores are asked over some connections. */
export function fetcherOf(connections: Connections, context: Context): FetchFile {
  return (url, limit) => fetchFile(connections, url, limit, context);
}

/** Who signed a release, as a line of words. */
export function nameSigners({ release, signatures }: SignedRelease): string {
  const own = signatures.get(release.digest) ?? [];
  if (own.length === 0) return 'no trusted key';
  return own.map(({ userId, fingerprint }) => `${userId}, key ${fingerprint}`).join('; ');
}
