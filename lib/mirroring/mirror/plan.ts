import {
  copyImages,
  type CopyOptions,
  CopyFailure,
  describeFailures,
  type Image,
  keepAttachments,
  copyReleasesLast,
  type CopyGuard,
  type OrderedImage,
  CopyTally,
  type CopyCounts,
} from '#content/copy';
import { attachmentName, isIndex, type Descriptor, type Reference, type Digest } from '#content/oci';
import { DestinationError } from '#content/registry';
import { Directory, type ContentPlace, type ContentStore, ImageGraphReader, blobsOf } from '#content/store';
import { checkInterrupted, type Context } from '#context';
import { asFailure, isPluginError } from '#errors';
import { formatPlace, type Place, type MirrorGroup, type MirrorImage } from './destination.ts';

/** Options of mirroring. */
interface MirrorOptions {
  /** The number of parallel transfers. */
  readonly concurrency: number;
  /** The repositories that were filled before; this run adds its own. Their blobs are mounted. */
  readonly filled?: FilledRepositories;
  /** Opens a repository for writing. Called once for each repository. */
  readonly openStore: (place: Place) => ContentStore;
  readonly guard?: CopyGuard;
  /**
   * Downloads a blob from a registry into a file, or uploads it to another registry, faster than a stream, and verifies
   * it.
   */
  readonly download: (
    blob: Descriptor,
    references: readonly Reference[],
    place: ContentPlace | Pick<Reference, 'registry' | 'repository'>,
    onProgress: (present: number) => void,
  ) => Promise<void>;
}

/** The number of copied objects of a mirror run, and the images with attachments. */
export interface MirrorResult extends CopyCounts {
  readonly attachments: number;
  /** The images that have sigstore attachments. */
  readonly attached: ReadonlySet<MirrorImage>;
  /** Whether any of the images is a manifest list. Other tools may need an option to keep it complete. */
  readonly hasLists: boolean;
}

/**
 * Reads the manifests of images and of their sigstore attachments, and groups them by destination repository. Throws
 * one error for all failed images, before anything is written.
 */
export async function planMirror(images: readonly MirrorImage[], context: Context): Promise<MirrorGroup[]> {
  const reader = new ImageGraphReader();
  let done = 0;
  const graphs = await Promise.allSettled(
    images.map(async ({ source, digest }) => {
      const graph = await reader.read(source, digest);
      context.onEvent({ kind: 'manifests', read: (done += 1), images: images.length });
      for (const tag of graph.notAttached)
        context.log('warn', `${tag} in ${source.name} is left out, because no attachment is an image that can run`);
      return graph;
    }),
  );
  checkInterrupted(context.signal);
  const failures = new Map<CopyFailure, string[]>();
  const read = images.flatMap((image, index) => {
    const graph = graphs[index];
    if (graph?.status === 'fulfilled') return [{ image, graph: graph.value }];
    failures.set(new CopyFailure('source', image.source.name, image.digest, graph?.reason), [image.name]);
    return [];
  });
  if (failures.size > 0) throw firstOfAll(failures, images.length);
  const groups = Map.groupBy(read, ({ image }) => keyOf(image.target.place));
  return [...groups.values()].flatMap((group) =>
    group[0] ? [{ place: group[0].image.target.place, images: group }] : [],
  );
}

/**
 * Copies the planned images: manifest lists with all their images, and sigstore attachments by their tags. Skips
 * present content, mounts content of other repositories in the same registry or directory, and copies release images
 * last. Throws the errors of copyImages.
 */
export async function runMirror(
  groups: readonly MirrorGroup[],
  options: MirrorOptions,
  context: Context,
): Promise<MirrorResult> {
  const stores = groups.map((group) => ({ group, store: options.openStore(group.place) }));
  // Report an unreachable registry, or a registry that refuses the user, once instead of for every image.
  const [first] = stores;
  const root = first?.group.images[0]?.graph.root;
  if (first && root) {
    await first.store.exists(root).catch((error: unknown) => {
      const failure = new CopyFailure('destination', first.store.name, root.digest, asFailure(error));
      throw describeFailures(new Map([[failure, []]]), 1);
    });
  }
  const copies = await Promise.all(stores.map(({ group, store }) => keepAttachments(listCopies(group), store)));
  const tally = new CopyTally(copies, context.onEvent);
  const { concurrency, filled = new FilledRepositories() } = options;
  await copyReleasesLast(
    stores.map(({ group, store }, index) => ({
      store,
      images: copies[index] ?? [],
      copy: async (images, isEmpty) => {
        const sources = sourcesOf(group);
        const counting = { ...context, onEvent: tally.listenTo(index) };
        const copying = {
          concurrency,
          isEmpty,
          mountFrom: (blob: Descriptor) => [...new Set([...sources, ...filled.having(blob, group.place)])],
          moverOf: moversOf(store, group, options, counting),
        };
        await copyImages(images, store, copying, counting);
        await store.close();
        filled.add(group.place, images);
      },
    })),
    options.guard,
  );
  const all = groups.flatMap(({ images }) => images);
  return {
    attachments: all.reduce((sum, { graph }) => sum + graph.attachments.size, 0),
    attached: new Set(all.flatMap(({ image, graph }) => (graph.attachments.size > 0 ? [image] : []))),
    hasLists: all.some(({ graph }) => isIndex(graph.root)),
    ...tally.counts(),
  };
}

function firstOfAll(failures: ReadonlyMap<CopyFailure, readonly string[]>, total: number): Error {
  // An error that prevents all reads, such as a registry that is down, is reported once.
  const [first, ...others] = failures.keys();
  const same = first && others.length > 0 && others.every(({ message }) => message === first.message);
  return same && isPluginError(first.cause) ? first.cause : describeFailures(failures, total);
}

function keyOf(place: Place): string {
  return place.kind === 'directory' ? `${place.root} ${place.repository}` : formatPlace(place);
}

function listCopies({ images }: MirrorGroup): OrderedImage[] {
  return images.flatMap(({ image, graph: { root, manifests, attachments } }) => {
    const { name, source, target, isRelease = false } = image;
    return [
      { name, source, root, manifests, tags: target.tag === undefined ? [] : [target.tag], isRelease },
      ...[...attachments].map(([tag, attachment]) => ({
        name: `the ${attachmentName(tag)} of ${name}`,
        source,
        root: attachment,
        manifests,
        tags: [tag],
        isAttachment: true,
      })),
    ];
  });
}

/** Returns the repositories of the same registry that a group’s images come from. */
function sourcesOf({ place, images }: MirrorGroup): string[] {
  const sources = images.flatMap(({ image: { reference } }) =>
    reference && place.kind === 'registry' && reference.registry === place.registry ? [reference.repository] : [],
  );
  return [...new Set(sources)].filter((repository) => repository !== place.repository);
}

/** Returns movers for blobs in a registry, which are faster than a stream. Blobs of other sources are streamed. */
function moversOf(
  store: ContentStore,
  { place, images }: MirrorGroup,
  { download }: MirrorOptions,
  context: Context,
): NonNullable<CopyOptions['moverOf']> {
  const references = Map.groupBy(images, ({ image }) => image.source);
  return (source) => {
    const reference = references.get(source)?.find(({ image }) => image.reference)?.image.reference;
    if (!reference) return undefined;
    return async (blob) => {
      let reported = 0;
      const report = (present: number): void => {
        context.onEvent({ kind: 'bytes', digest: blob.digest, bytes: present - reported });
        reported = present;
      };
      try {
        if (store instanceof Directory) await store.receive(blob, (file) => download(blob, [reference], file, report));
        else if (place.kind === 'registry') await download(blob, [reference], place, report);
      } catch (error) {
        const cause = error instanceof DestinationError ? error.failure : error;
        const isOurs = cause !== error || isPluginError(cause, 'disk-full') || isPluginError(cause, 'not-writable');
        throw isOurs ? new CopyFailure('destination', store.name, blob.digest, cause) : error;
      }
      report(blob.size);
    };
  };
}

/** The repositories that a command filled with images, and their blobs: other repositories mount these. */
export class FilledRepositories {
  readonly #repositories: { readonly place: Place; readonly blobs: ReadonlySet<Digest> }[] = [];

  /** Notes that a repository has images with all their blobs. */
  add(place: Place, images: readonly Pick<Image, 'manifests'>[]): void {
    const blobs = images.flatMap(({ manifests }) => blobsOf(manifests.values()));
    this.#repositories.push({ place, blobs: new Set(blobs.map(({ digest }) => digest)) });
  }

  /** Returns the other repositories with a blob in the same registry or directory. */
  having({ digest }: Pick<Descriptor, 'digest'>, place: Place): string[] {
    return this.#repositories
      .filter((each) => each.blobs.has(digest) && hostOf(each.place) === hostOf(place))
      .map((each) => each.place.repository)
      .filter((repository) => repository !== place.repository);
  }
}

function hostOf(place: Place): string {
  return place.kind === 'registry' ? `registry ${place.registry}` : `directory ${place.root}`;
}
