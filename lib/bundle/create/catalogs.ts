import type { ArchiveWriter } from '../../content/archive/archiveWriter.ts';
import { filterCatalog, openCatalog, type OpenedCatalog } from '../../release/catalog/catalogImage.ts';
import type { OperatorRequest, Selection } from '../../release/catalog/selection.ts';
import type { SiteOperator, SiteReport } from '../../config/siteTypes.ts';
import { catalogName, catalogSourceManifest, clusterCatalogManifest } from '../../config/catalogSource.ts';
import type { ConfigManifest } from '../../config/manifest.ts';
import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import type { FetchFile } from '../../content/http/fetchFile.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { formatReference, parseReference, type Reference } from '../../content/oci/reference.ts';
import { goArchitecture, type Architecture } from '../../release/version.ts';
import type { DerivedImage } from '../../content/store/derivedImage.ts';
import type { ContentSource } from '../../content/store/store.ts';
import { resolveExtraImages, type ExtraImage } from '../images.ts';
import type { StoredBlob } from './contents.ts';
import type { BundleOrigin } from './origin.ts';

/** The catalogs and the operators to add to a bundle. */
export interface CatalogRequest {
  /** Pullspecs of catalog images. */
  readonly catalogs: readonly string[];
  /** Each is taken from the first catalog that has it. */
  readonly operators: readonly OperatorRequest[];
}

/** A catalog of a bundle, with its selected operators. */
export interface BundledCatalog extends Selection {
  /** The name of its CatalogSource. */
  readonly name: string;
  /** The pullspec of the original catalog, and the pullspec of the filtered one by digest. */
  readonly original: string;
  readonly image: string;
}

/** What a bundle has in addition to the release. */
export interface AdditionsRequest {
  /** Pullspecs of images. */
  readonly extraImages: readonly string[];
  readonly operators?: CatalogRequest;
  /** The site of the bundle. Updates of its operators are added, if a catalog has them. */
  readonly site?: SiteReport;
}

/** The content of a bundle in addition to the release. */
export interface ExtraContent {
  readonly catalogs: readonly BundledCatalog[];
  /** The images that were asked for, the catalogs and the images of their operators. */
  readonly images: readonly ExtraImage[];
  readonly config: readonly ConfigManifest[];
  /** The origin of the bundle, with the filtered catalogs. */
  readonly origin: BundleOrigin;
}

/**
 * Finds the extra images of a bundle. Reads catalogs, selects operators with the operators that they need, and builds a
 * catalog image of each. Throws `usage` for a catalog without operators, `not-found` for an operator that no catalog
 * has, and the errors of the origin.
 */
export async function gatherExtraContent(
  { extraImages, operators: request = { catalogs: [], operators: [] }, site }: AdditionsRequest,
  arch: Architecture,
  origin: BundleOrigin,
  context: Context,
): Promise<ExtraContent> {
  const chosen = await assignOperators(request, site?.operators ?? [], arch, origin, context);
  const catalogs: BundledCatalog[] = [];
  const derived = new Map<Digest, DerivedImage>();
  const images = new Set<string>();
  for (const [{ pullspec, reference, opened }, operators] of chosen) {
    const filtered = await filterCatalog(opened, operators, context);
    const { digest } = filtered.image.root;
    derived.set(digest, filtered.image);
    const image = formatReference({ registry: reference.registry, repository: reference.repository, digest });
    catalogs.push({ name: catalogName(reference.repository), original: pullspec, image, ...filtered.selection });
    for (const each of [image, ...filtered.images]) images.add(each);
    for (const words of filtered.selection.missing) context.log('warn', `${pullspec} lacks an operator: ${words}`);
  }
  warnOfTags([...images], context);
  const extended = new CatalogOrigin(origin, derived);
  return {
    catalogs,
    images: await resolveExtraImages([...extraImages, ...images], extended),
    config: catalogs.flatMap(({ name, image }) => [
      catalogSourceManifest(name, image),
      clusterCatalogManifest(name, image),
    ]),
    origin: extended,
  };
}

interface NamedCatalog {
  readonly pullspec: string;
  readonly reference: Reference;
  readonly opened: OpenedCatalog;
}

/** Reads the catalogs, and assigns each operator to the first one that has it. */
async function assignOperators(
  { catalogs, operators }: CatalogRequest,
  siteOperators: readonly SiteOperator[],
  arch: Architecture,
  origin: BundleOrigin,
  context: Context,
): Promise<ReadonlyMap<NamedCatalog, OperatorRequest[]>> {
  const assigned = new Map<NamedCatalog, OperatorRequest[]>();
  for (const pullspec of catalogs) {
    context.log('info', `reading the catalog ${pullspec}`);
    const { registry, repository, tag = 'latest', digest } = parseReference(pullspec);
    const reference = { registry, repository };
    const source = origin.sourceOf({ ...reference, ...(digest && { digest }) });
    const root = await source.resolve(digest ?? tag);
    const opened = await openCatalog({ source, root }, goArchitecture(arch), context);
    assigned.set({ pullspec, reference, opened }, []);
  }
  const all = [...assigned];
  const listOf = (name: string): OperatorRequest[] | undefined =>
    all.find(([{ opened }]) => opened.catalog.packages.has(name))?.[1];
  for (const operator of operators) (listOf(operator.name) ?? all[0]?.[1])?.push(operator);
  for (const { name, channel, version } of siteOperators) {
    if (operators.some((operator) => operator.name === name)) continue;
    const list = listOf(name);
    if (list) list.push({ name, channel, installed: version });
    else context.log('warn', `operator ${name} of the site is in no given catalog: the bundle has no update for it`);
  }
  const idle = all.find(([, list]) => list.length === 0);
  if (!idle) return assigned;
  throw new PluginError('usage', `no operator is to be taken from ${idle[0].pullspec}`);
}

/** Warns of images by tag: a node that has an image by its digest does not find it by a tag. */
function warnOfTags(images: readonly string[], context: Context): void {
  for (const image of images.filter((each) => parseReference(each).digest === undefined)) {
    const message = `an operator names ${image} by tag: nodes without a registry do not find it in their image store`;
    context.log('warn', message);
  }
}

/** An origin that also has images that were built for the bundle. */
class CatalogOrigin implements BundleOrigin {
  readonly #base: BundleOrigin;
  readonly #derived: ReadonlyMap<Digest, DerivedImage>;

  constructor(base: BundleOrigin, derived: ReadonlyMap<Digest, DerivedImage>) {
    this.#base = base;
    this.#derived = derived;
  }

  get signatures(): BundleOrigin['signatures'] {
    return this.#base.signatures;
  }

  get repository(): string | undefined {
    return this.#base.repository;
  }

  get isLocal(): boolean {
    return this.#base.isLocal === true;
  }

  get fetchFile(): FetchFile {
    return this.#base.fetchFile;
  }

  sourceOf(reference: Reference): ContentSource {
    const derived = reference.digest && this.#derived.get(reference.digest);
    return derived ? derived.source : this.#base.sourceOf(reference);
  }

  async fetchBlob(blob: StoredBlob, writer: ArchiveWriter, onProgress: (present: number) => void): Promise<void> {
    const { descriptor } = blob;
    const own = [...this.#derived.values()].find(({ source }) => source.has(descriptor.digest));
    if (own) await writer.push(descriptor, () => own.source.fetch(descriptor));
    else await this.#base.fetchBlob(blob, writer, onProgress);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#base[Symbol.asyncDispose]();
  }
}
