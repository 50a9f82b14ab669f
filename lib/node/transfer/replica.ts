import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Bundle } from '#bundle/open';
import { hashFile, openRegular } from '#content/files';
import type { Connections } from '#content/http';
import { hexOf, type Digest } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { PluginError } from '#errors';
import { OutlineHash, type BundleOutline } from '../contentCheck.ts';
import { type RemoteServer, Transfer } from './transfer.ts';

/** Returns the path of the copy of a bundle in a folder. */
export function replicaPath(folder: string, digest: Digest): string {
  return join(folder, `bundle-${hexOf(digest).slice(0, 12)}.tar`);
}

/** Returns the path of the fetched base blobs of a delta bundle in a folder. */
export function baseBlobsPath(folder: string, digest: Digest): string {
  return replicaPath(folder, digest).replace(/tar$/, 'base');
}

/**
 * Downloads a bundle from another machine into a folder, and returns its path. Resumes an interrupted transfer. Only a
 * file with the right digest gets its final name. Throws `busy`, `disk-full`, `not-writable`, `digest-mismatch`, and
 * what asking the server throws.
 */
export async function fetchBundle(
  source: RemoteServer & { readonly digest: Digest },
  folder: string,
  connections: Connections,
  context: Context,
): Promise<string> {
  const { digest } = source;
  const path = replicaPath(folder, digest);
  if (await stat(path).catch(() => undefined)) {
    await checkWholeDigest(path, digest, context);
    return path;
  }
  await using transfer = await Transfer.open({ kind: 'bundle', digest, isAnyTar: true, isNamed: true }, path, context);
  await transfer.receive(source, connections, context);
  return path;
}

/** Reads a file, and compares its digest. Throws `digest-mismatch` and the errors of reading. */
export async function checkWholeDigest(path: string, digest: Digest, context: Context): Promise<void> {
  await using file = await openRegular(path);
  compareDigest(path, await hashFile(file, path, context.signal), digest);
}

/**
 * Reads every byte of the tar of a bundle, and compares its digest: on a device, in volumes or in files. Throws
 * `digest-mismatch`, also if the bundle was opened from other bytes, `unsupported` for a directory, `interrupted`, and
 * the errors of reading.
 */
export async function checkBundleDigest(bundle: Bundle, digest: Digest, context: Context): Promise<void> {
  compareDigest(bundle.path, (await hashBundle(bundle, context)).digest, digest);
}

/**
 * Reads a bundle completely, and returns its digest and outline. `onRead` gets the number of bytes of each part. Throws
 * `unsupported` for a directory, and `interrupted`.
 */
export async function hashBundle(
  bundle: Bundle,
  { signal }: Context,
  onRead: (bytes: number) => void = () => undefined,
): Promise<{ readonly digest: Digest; readonly outline: BundleOutline }> {
  const outline = new OutlineHash(bundle);
  const digests =
    bundle.form === 'tar' &&
    (await bundle.scan((_, chunk) => {
      checkInterrupted(signal);
      outline.update(chunk);
      onRead(chunk.length);
    }));
  if (digests) return { digest: digests.digest, outline: outline.finish() };
  throw new PluginError('unsupported', `${bundle.path} is a directory, which has no digest`, {
    hint: 'Name the tar, or the device that it was written onto.',
  });
}

/** Reads the outline of a copy of a bundle that only this account can change. Undefined for a directory. */
export async function readOutline(bundle: Bundle): Promise<BundleOutline | undefined> {
  if (!bundle.chunks) return undefined;
  const outline = new OutlineHash(bundle);
  if (outline.headSize !== undefined)
    for await (const chunk of bundle.chunks(0, outline.headSize)) outline.update(chunk);
  return outline.finish();
}

/** Throws `digest-mismatch` unless a bundle has the expected digest. */
export function compareDigest(path: string, actualDigest: Digest, digest: Digest): void {
  if (actualDigest === digest) return;
  const message = `${path} is not the expected bundle: its digest is ${actualDigest}, not ${digest}`;
  const hint = 'Do not use it. Copy the bundle again.';
  throw new PluginError('digest-mismatch', message, { hint });
}
