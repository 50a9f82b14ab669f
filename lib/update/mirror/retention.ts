import { createHash } from 'node:crypto';
import { statfs } from 'node:fs/promises';
import { checkInterrupted, type Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { writeAtomically } from '../../content/files/atomicWrite.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { retentionShare } from '../../readiness/preflight/nodeCheck.ts';

/** Returns whether at most three quarters of a file system would be in use with some bytes more. */
export async function fitsShare(folder: string, bytes: number): Promise<boolean> {
  const { blocks, bfree, bsize } = await statfs(folder);
  return (blocks - bfree) * bsize + bytes <= blocks * bsize * (1 - retentionShare);
}

/** Checks that a file system has space for some bytes more. Throws `disk-full`. */
export async function requireShare(folder: string, bytes: number): Promise<void> {
  if (await fitsShare(folder, bytes)) return;
  throw new PluginError('disk-full', `${folder} would be more than 75 % full with the bundle for the mirror`, {
    hint: 'Mount a larger file system there. Above 85 %, the kubelet removes images.',
  });
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
    const found = `sha256:${hash.digest('hex')}`;
    if (digest !== undefined && found !== digest)
      throw new PluginError('digest-mismatch', `the copy of the bundle is ${found} instead of ${digest}`);
  };
  await writeAtomically(path, verified(), { mode: 0o600 });
}
