import { createHash } from 'node:crypto';
import { readdir, readFile, stat, statfs } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { writeAtomically } from '#content/files';
import { sumSizes, type Digest } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { PluginError } from '#errors';
import { mirrorFolder } from '#node/machine';
import { retentionShare } from '#readiness/nodes';
import { formatBytes } from '#text';

/** The file beside the certificate of a mirror with the quota of its bundles in bytes. It is empty for none. */
export const quotaFile = 'quota';

/** The bytes that more copies of bundles may take in a folder; less than 0 if the present ones take too much. */
export interface RetentionRoom {
  readonly bytes: number;
  /** What limits them, for messages, and what to do. */
  readonly limit: string;
  readonly hint: string;
}

/** Measures the room for copies: within the quota, and within three quarters of the file system. */
export async function measureRoom(folder: string): Promise<RetentionRoom> {
  const { blocks, bfree, bsize } = await statfs(folder);
  const share = {
    bytes: blocks * bsize * (1 - retentionShare) - (blocks - bfree) * bsize,
    limit: `75 % of the file system of ${folder}`,
    hint: 'Mount a larger file system there. Above 85 %, the kubelet removes images.',
  };
  const text = await readFile(join(folder, basename(mirrorFolder), quotaFile), 'utf8').catch(() => '');
  if (text === '') return share;
  const names = (await readdir(folder)).filter((name) => /^bundle-[0-9a-f]{12}\.(?:tar|base)$/.test(name));
  const taken = await sumFiles(names.map((name) => join(folder, name)));
  const quota = {
    bytes: Number(text) - taken,
    limit: `the quota of ${formatBytes(Number(text))}`,
    hint: 'Install the mirrors again with a larger quota.',
  };
  return quota.bytes < share.bytes ? quota : share;
}

/** Returns the size of some files in bytes. Files that do not exist have none. */
export async function sumFiles(paths: readonly string[]): Promise<number> {
  return sumSizes(await Promise.all(paths.map((path) => stat(path).catch(() => ({ size: 0 })))));
}

/**
 * Copies content to a file, which gets its name when it is complete and synced. `digest`: the digest that it must have.
 * Throws `digest-mismatch`, `disk-full`, `not-writable`, `interrupted`, and the errors of reading.
 */
export async function copyToFile(
  chunks: AsyncIterable<Buffer>,
  path: string,
  digest: Digest | undefined,
  { signal }: Pick<Context, 'signal'>,
): Promise<void> {
  const hash = createHash('sha256');
  const verified = async function* (): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      checkInterrupted(signal);
      if (digest !== undefined) hash.update(chunk);
      yield chunk;
    }
    const copyDigest = `sha256:${hash.digest('hex')}`;
    if (digest !== undefined && copyDigest !== digest)
      throw new PluginError('digest-mismatch', `the copy of the bundle is ${copyDigest} instead of ${digest}`);
  };
  await writeAtomically(path, verified(), { mode: 0o600 });
}
