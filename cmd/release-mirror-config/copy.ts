import type { Context } from '../../lib/context.ts';
import type { Place } from '../../lib/release/mirror/destination.ts';
import { findPresent, planMirror, runMirror } from '../../lib/release/mirror/mirror.ts';
import { type MirrorImage } from '../../lib/release/mirror/mirrorGroup.ts';
import { Directory } from '../../lib/store/directory.ts';
import type { Registries } from '../../lib/registry/registries.ts';
import type { ContentStore } from '../../lib/store/store.ts';
import { formatBytes } from '../cli/format.ts';
import type { MirrorArguments } from './request.ts';
import type { MirrorOutcome } from './upload.ts';

/** Mirrors images, or in a dry run looks which are there; does nothing without images. */
export async function mirrorImages(
  images: readonly MirrorImage[],
  args: MirrorArguments,
  registries: Registries,
  context: Context,
): Promise<Pick<MirrorOutcome, 'result' | 'present'>> {
  if (images.length === 0) return {};
  const { verifyExisting, maxPerRegistry: concurrency } = args;
  const openStore = (place: Place): ContentStore =>
    place.kind === 'registry'
      ? registries.repository(place)
      : new Directory(place.root, place.repository, { verifyExisting }, context);
  context.log('info', `reading the manifests of ${images.length} images`);
  const groups = await planMirror(images, context);
  if (args.dryRun !== 'none') return { present: await findPresent(groups, openStore) };
  const download = registries.download.bind(registries);
  const result = await runMirror(groups, { concurrency, openStore, download }, context);
  const { copied, mounted, skipped } = result.blobs;
  const figures = [
    `${copied} blobs copied (${formatBytes(result.bytes)})`,
    ...(mounted > 0 ? [`${mounted} taken over from other repositories`] : []),
    ...(skipped > 0 ? [`${skipped} there already`] : []),
  ];
  context.log('info', figures.join(', '));
  return { result };
}
