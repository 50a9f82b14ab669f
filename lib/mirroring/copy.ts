import type { Context } from '../context.ts';
import type { Place } from '../release/mirror/destination.ts';
import { findPresent, planMirror, runMirror, type MirrorResult } from '../release/mirror/mirror.ts';
import type { MirrorImage } from '../release/mirror/mirrorGroup.ts';
import type { Registries } from '../registry/registries.ts';
import { Directory } from '../store/directory.ts';
import type { ContentStore } from '../store/store.ts';
import type { MirroringRequest } from './request.ts';

/** What became of the images. */
interface Copied {
  readonly result?: MirrorResult;
  readonly present?: ReadonlySet<MirrorImage>;
}

/** Mirrors images, or in a dry run finds those that are present. Does nothing without images. */
export async function mirrorImages(
  images: readonly MirrorImage[],
  { verifyExisting, concurrency, dryRun }: MirroringRequest,
  registries: Registries,
  context: Context,
): Promise<Copied> {
  if (images.length === 0) return {};
  const openStore = (place: Place): ContentStore =>
    place.kind === 'registry'
      ? registries.repository(place)
      : new Directory(place.root, place.repository, { verifyExisting }, context);
  context.log('info', `reading the manifests of ${images.length} images`);
  const groups = await planMirror(images, context);
  if (dryRun !== undefined) return { present: await findPresent(groups, openStore) };
  const download = registries.download.bind(registries);
  return { result: await runMirror(groups, { concurrency, openStore, download }, context) };
}
