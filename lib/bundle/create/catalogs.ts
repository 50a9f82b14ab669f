import { catalogName, catalogSourceManifest, clusterCatalogManifest } from '#config/catalogSource';
import type { ConfigManifest } from '#config/manifest';
import type { SiteOperator, SiteReport } from '#config/siteReport';
import type { ArchiveWriter } from '#content/archive';
import type { FetchFile } from '#content/http';
import { type Digest, formatReference, parseReference, type Reference } from '#content/oci';
import type { DerivedImage, ContentSource } from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { filterCatalog, openCatalog, type OpenedCatalog, type OperatorRequest, type Selection } from '#release/catalog';
import { goArchitecture, type Architecture } from '#release/version';
import { listBelow } from '#text';
import { resolveExtraImage, resolveExtraImages, type ExtraImage } from '../metadata/images.ts';
import type { SkippedImage } from '../metadata/metadata.ts';
import type { StoredBlob } from './contents.ts';
import type { ReleaseProvider } from './releaseProvider.ts';

/** The catalogs and the operators to add to a bundle. */
export interface CatalogRequest {
  /** Pullspecs of catalog images. */
  readonly catalogs: readonly string[];
  /** Each is taken from the first catalog that has it. */
  readonly operators: readonly OperatorRequest[];
  /** Leave out images of operators that are missing or have invalid names, instead of an error. */
  readonly skipMissing?: boolean;
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
  /** The images of operators that are left out. */
  readonly skipped: readonly SkippedImage[];
  readonly config: readonly ConfigManifest[];
  /** The provider of the bundle, with the filtered catalogs. */
  readonly provider: ReleaseProvider;
}

/**
 * Finds the extra images of a bundle. Reads catalogs, selects operators with the operators that they need, and builds a
 * catalog image of each. Throws `usage` for a catalog without operators, and `not-found` for an operator that no
 * catalog has. Throws `partial` for images of operators that cannot be used, of which a single one keeps its code. Also
 * throws the errors of the origin.
 */
export async function gatherExtraContent(
  { extraImages, operators: request = { catalogs: [], operators: [] }, site }: AdditionsRequest,
  arch: Architecture,
  provider: ReleaseProvider,
  context: Context,
): Promise<ExtraContent> {
  const chosen = await assignOperators(request, site?.operators ?? [], arch, provider, context);
  const catalogs: BundledCatalog[] = [];
  const derived = new Map<Digest, DerivedImage>();
  const images = new Map<string, OperatorImage>();
  for (const [{ pullspec, reference, opened }, operators] of chosen) {
    const filtered = await filterCatalog(opened, operators, context);
    const { digest } = filtered.image.root;
    derived.set(digest, filtered.image);
    const image = formatReference({ registry: reference.registry, repository: reference.repository, digest });
    catalogs.push({ name: catalogName(reference.repository), original: pullspec, image, ...filtered.selection });
    images.set(image, { catalog: pullspec, operators: [] });
    for (const { name, images: own } of filtered.selection.packages.flatMap(({ bundles }) => bundles))
      for (const each of own) {
        const { operators: others = [] } = images.get(each) ?? {};
        images.set(each, { catalog: pullspec, operators: [...others, name] });
      }
    for (const words of filtered.selection.missing) context.log('warn', `${pullspec} lacks an operator: ${words}`);
  }
  const extended = new CatalogProvider(provider, derived);
  const { usable, skipped } = await checkOperatorImages(images, extended, request.skipMissing ?? false, context);
  return {
    catalogs,
    images: await resolveExtraImages(extraImages, extended, usable),
    skipped,
    config: catalogs.flatMap(({ name, image }) => [
      catalogSourceManifest(name, image),
      clusterCatalogManifest(name, image),
    ]),
    provider: extended,
  };
}

/** The operator bundles that name an image, and their catalog. */
type OperatorImage = Omit<SkippedImage, 'image'>;

/** The codes of errors for images that will not be there at the next attempt either. */
const unusable = ['invalid-reference', 'invalid-manifest', 'not-found', 'unauthorized', 'denied'] as const;

/**
 * Finds the images of operators that cannot be used: missing ones, and names that are no pullspec, which published
 * catalogs have (OCPBUGS-49991). With `skipMissing`, leaves them out with a warning.
 */
async function checkOperatorImages(
  images: ReadonlyMap<string, OperatorImage>,
  provider: Pick<ReleaseProvider, 'sourceOf'>,
  skipMissing: boolean,
  context: Context,
): Promise<{ readonly usable: (Reference & { readonly digest: Digest })[]; readonly skipped: SkippedImage[] }> {
  const usable: (Reference & { readonly digest: Digest })[] = [];
  const failed: { readonly named: SkippedImage; readonly failure: PluginError }[] = [];
  const check = async ([image, owner]: [string, OperatorImage]): Promise<void> => {
    try {
      usable.push(await resolveExtraImage(image, provider));
    } catch (error) {
      if (!isPluginError(error) || !unusable.some((code) => code === error.code)) throw error;
      failed.push({ named: { image, ...owner, operators: [...new Set(owner.operators)].sort() }, failure: error });
    }
  };
  await Promise.all([...images].map(check));
  // In the order of their names, not of the answers.
  failed.sort((a, b) => (a.named.image < b.named.image ? -1 : 1));
  const errors = failed.map(({ named: { image, operators, catalog }, failure }) => {
    const owner =
      operators.length === 0 ? `the catalog ${catalog}` : `${operators.join(', ')} of the catalog ${catalog}`;
    const message = `${owner} needs ${JSON.stringify(image)}, which cannot be used: ${failure.message}`;
    return new PluginError(failure.code, message, {
      hint: imageHint,
      settings: ['skipMissingOperatorImages'],
      cause: failure,
    });
  });
  const [first, ...others] = errors;
  if (first && !skipMissing) {
    if (others.length === 0) throw first;
    const title = `${errors.length} images of operators cannot be used:`;
    const messages = errors.map(({ message }) => message);
    throw new PluginError('partial', listBelow(title, messages), { hint: imageHint, settings: first.settings });
  }
  for (const { message } of errors) context.log('warn', `skipped: ${message}`);
  const isUsed = (image: string): boolean => failed.every(({ named }) => named.image !== image);
  warnOfTags([...images.keys()].filter(isUsed), context);
  return { usable, skipped: failed.map(({ named }) => named) };
}

const imageHint =
  'Mirror the image, take another version of the operator, or leave the image out if the operator works without it.';

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
  provider: ReleaseProvider,
  context: Context,
): Promise<ReadonlyMap<NamedCatalog, OperatorRequest[]>> {
  const assigned = new Map<NamedCatalog, OperatorRequest[]>();
  for (const pullspec of catalogs) {
    context.log('info', `reading the catalog ${pullspec}`);
    const { registry, repository, tag = 'latest', digest } = parseReference(pullspec);
    const reference = { registry, repository };
    const source = provider.sourceOf({ ...reference, ...(digest && { digest }) });
    const root = await source.resolve(digest ?? tag).catch((error: unknown) => {
      if (!isPluginError(error) || error.code === 'interrupted') throw error;
      const { code, message, hint, settings } = error;
      throw new PluginError(code, `the catalog ${pullspec} cannot be read: ${message}`, {
        hint,
        settings,
        cause: error,
      });
    });
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

/** A provider that also has images that were built for the bundle. */
class CatalogProvider implements ReleaseProvider {
  readonly #base: ReleaseProvider;
  readonly #derived: ReadonlyMap<Digest, DerivedImage>;

  constructor(base: ReleaseProvider, derived: ReadonlyMap<Digest, DerivedImage>) {
    this.#base = base;
    this.#derived = derived;
  }

  get signatures(): ReleaseProvider['signatures'] {
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
