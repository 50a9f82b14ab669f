import { dirname } from 'node:path';
import { ArchiveWriter } from '../../content/archive/archiveWriter.ts';
import type { ArchiveDigests } from '../../content/archive/volumeDigests.ts';
import type { Context } from '../../context.ts';
import { takeLock } from '../../content/files/lock.ts';
import { lockOf, makeFolder } from '../output.ts';
import { prepareSidecars, type SidecarOptions } from '../sidecars.ts';
import type { Contents } from './contents.ts';
import { fillBundle } from './fill.ts';
import type { BundleLayout } from './layout.ts';
import type { BundleOrigin } from './origin.ts';

/**
 * Writes a bundle and the files beside it, or resumes an interrupted run. A digest file is never beside a tar with
 * another digest. Returns the digests, and the number of fetched bytes. Throws `busy`, `disk-full`, `not-writable` and
 * the errors of the origin.
 */
export async function writeBundle(
  path: string,
  { tar, metadata }: BundleLayout,
  contents: Contents,
  sidecars: SidecarOptions,
  origin: BundleOrigin,
  context: Context,
): Promise<{ readonly digests: ArchiveDigests; readonly fetched: number }> {
  await makeFolder(dirname(path));
  await using _lock = await takeLock(lockOf(path), path);
  const writer = await ArchiveWriter.open(path, tar, context);
  try {
    const { digests, fetched } = await fillBundle(writer, contents, origin, context);
    const placeSidecars = await prepareSidecars(path, digests, metadata, sidecars);
    await writer.finish();
    await placeSidecars();
    return { digests, fetched };
  } catch (error) {
    await writer.close();
    throw error;
  }
}
