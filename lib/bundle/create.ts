/** Creation of a bundle: its origins, its contents, and the file. */

import { basename, join } from 'node:path';
import { signatureManifests } from '#config/signatures';
import { sumSizes, type Digest, formatReference, type Reference } from '#content/oci';
import { type ContentSource, readContent } from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError, type ErrorCode } from '#errors';
import type { UpdateRisk } from '#release/graph';
import { findRelease, type FoundRelease, type ReleaseRequest, type TrustRequest } from '#release/load';
import { readStreamsOf, type OSImageStreams } from '#release/payload';
import type { Release } from '#release/release';
import { requireVerified, type NamedResult, checkReleaseImages, finderIn, type ImageReader } from '#release/sigstore';
import type { Architecture } from '#release/version';
import { subtractBase, readBase, type Base, type BaseRequest } from './create/base.ts';
import { gatherExtraContent, type AdditionsRequest, type BundledCatalog } from './create/catalogs.ts';
import { gatherContents, layOutBundle, listArtifacts, warnOfImages, type Contents } from './create/contents.ts';
import { findExisting, type ExistingBundle, type SameBundle } from './create/existing.ts';
import type { ReleaseProvider } from './create/releaseProvider.ts';
import { listWanted, loadReleases, measureReleases, listLoaded, readVerifiedPayloads } from './create/releases.ts';
import { checkReleasePath, checkSite, warnOfSpace } from './create/siteCheck.ts';
import { keepBundle, writeBundle, type BundlePlan } from './create/writeBundle.ts';
import { listImages, selectExtraImages, type BundleImage } from './metadata/images.ts';
import { describeReleases, splitReleases, type BundleMetadata, type ReportPlace } from './metadata/metadata.ts';
import { checkFolder, checkOutput } from './open/sidecars.ts';

export type { BaseRequest } from './create/base.ts';
export type { BundledCatalog, CatalogRequest } from './create/catalogs.ts';
export { gatherContents, layOutBundle, listArtifacts } from './create/contents.ts';
export { openLocalProvider, RegistryProvider, type ReleaseProvider } from './create/releaseProvider.ts';
export {
  listBundledVersions,
  openReleaseSource,
  type LocalExtraImage,
  type ReleaseSource,
  type ReleaseSourceRequest,
} from './create/releaseSource.ts';
export { planReleases } from './create/releases.ts';
export { heldImagesOf } from './create/siteCheck.ts';
export { writeBundle } from './create/writeBundle.ts';

/** The content of a new bundle, and its folder. */
export interface CreateRequest extends AdditionsRequest {
  /** The releases in the order of the updates. */
  readonly releases: readonly [ReleaseRequest, ...ReleaseRequest[]];
  /** The known risks of the updates to these releases, by version. */
  readonly risks?: ReadonlyMap<string, readonly UpdateRisk[]>;
  /** The base of a delta bundle. The bundle leaves out the blobs of its base. */
  readonly base?: BaseRequest;
  /** An existing or new folder. */
  readonly output: string;
  readonly trust: Omit<TrustRequest, 'known' | 'fetchFile'>;
  /** The largest size of a file in bytes. A larger bundle is split into volumes. */
  readonly volumeSize?: number;
  /**
   * How drives with the bundle take reports of the site; by default they take none on a drive without a file system.
   */
  readonly reports?: ReportPlace | undefined;
  /** Report what a run would do, and write nothing. */
  readonly dryRun: boolean;
  /** Check every byte of a finished bundle before skipping it. */
  readonly verifyExisting: boolean;
  /** The name and version of this program, for the metadata. */
  readonly tool: string;
}

/** The result of createBundle. Sizes are in bytes. */
export interface CreateResult {
  readonly path: string;
  readonly outcome: 'created' | 'unchanged' | 'planned';
  readonly metadata: BundleMetadata;
  /** The digest of the whole file; undefined if nothing was written. */
  readonly digest?: Digest;
  /** Whether every byte of an unchanged bundle was read. If not, the digest is that of its .sha256 file. */
  readonly isRead?: boolean;
  /** The bytes that were fetched from the source; in a dry run, the bytes to fetch. */
  readonly fetched: number;
  /**
   * The sigstore signatures of the images, by the image policies of the release; undefined if the bundle is unchanged.
   */
  readonly policies?: readonly NamedResult[];
  /** The catalogs with their operators. */
  readonly catalogs?: readonly BundledCatalog[];
  /**
   * The operating system streams of the releases that need them described in the cluster; absent if none does, and for
   * an existing bundle.
   */
  readonly osImageStreams?: readonly OSImageStreams[];
}

/**
 * Creates `<output>/upgrade-<version>-<arch>.tar` from a release, or `…-via-<version>.tar` from several, or a delta
 * bundle `…-from-<version>.tar`, or volumes `….tar.000` and so on, with `.sha256` and `.yaml` files. Checks the
 * signatures of the releases before it fetches any blob, and fetches each blob once, into its final place. Resumes an
 * interrupted run, and keeps a finished bundle.
 */
export async function createBundle(
  request: CreateRequest,
  provider: ReleaseProvider,
  context: Context,
): Promise<CreateResult> {
  try {
    return await create(request, provider, context);
  } catch (error) {
    throw withAdvice(error);
  }
}

async function create(request: CreateRequest, source: ReleaseProvider, context: Context): Promise<CreateResult> {
  const { site, dryRun } = request;
  const plan = await planBundle(request, source, context);
  const { path, metadata } = plan.result;
  const bytes = sumSizes(metadata.blobs);
  if (site) warnOfSpace(site, bytes, context);
  if ('keep' in plan) {
    const { digest, computed } = plan.keep;
    if (!dryRun) await keepBundle(path, plan.keep, context);
    return { ...plan.result, outcome: 'unchanged', digest, isRead: computed !== undefined, fetched: 0 };
  }
  if (dryRun) return { ...plan.result, outcome: 'planned', fetched: bytes };
  const { digests, fetched } = await writeBundle(plan.write, plan.provider, context);
  return { ...plan.result, outcome: 'created', digest: digests.digest, fetched };
}

/** What a run is to do, as data: keep the finished bundle, or write one. `result` is what is known of its result. */
type CreatePlan = {
  readonly result: Omit<CreateResult, 'outcome' | 'digest' | 'isRead' | 'fetched'>;
} & ({ readonly keep: SameBundle } | { readonly write: BundlePlan; readonly provider: ReleaseProvider });

/** Plans a bundle: reads and checks everything but blobs, and writes nothing. */
async function planBundle(
  { releases: wanted, risks, base: baseRequest, output, volumeSize, reports, tool, ...request }: CreateRequest,
  source: ReleaseProvider,
  context: Context,
): Promise<CreatePlan> {
  const { extraImages, operators, site, dryRun, verifyExisting } = request;
  await checkFolder(output, dryRun);
  const found: FoundRelease[] = [];
  for (const each of wanted) found.push(await findRelease(each, (reference) => source.sourceOf(reference)));
  const references = found.map(({ reference }) => reference);
  const trust = { ...request.trust, known: source.signatures, fetchFile: source.fetchFile };
  let loading: ReturnType<typeof loadReleases> | undefined;
  const load = () => (loading ??= loadReleases(found, wanted, source.isLocal, trust, context));

  // For a release by image, the version is known only after its payload is read.
  const { versions, arch } = listWanted(wanted) ?? listLoaded(await load());
  const additions = await gatherExtraContent({ extraImages, operators, site }, arch, source, context);
  const { catalogs, provider } = additions;
  const base = baseRequest && (await readBase(baseRequest, references, source, context));
  // If there is no such bundle yet, checks that it can be written.
  const findAt = async (known: Base | undefined): Promise<{ path: string; existing?: ExistingBundle }> => {
    const path = join(output, bundleName(versions, arch, known?.version));
    const extras = additions.images.map(({ name }) => name);
    const expected = { references, extraImages: extras, base: known, reports, volumeSize };
    const existing = await findExisting(path, expected, { verifyExisting, dryRun }, trust, context);
    if (existing?.kind !== 'same' && !dryRun) await checkOutput(path);
    return { path, existing };
  };
  let { path, existing } = await findAt(base);
  if (existing?.kind === 'same') {
    checkReleasePath(splitReleases(existing.metadata), context);
    if (site) {
      const loaded = (await loading)?.map(({ release }) => release);
      checkSite(site, loaded ?? (await readVerifiedPayloads(found, context)), catalogs, context);
    }
    return { result: { path, metadata: existing.metadata, catalogs }, keep: existing };
  }

  const signed = await load();
  const releases = signed.map(({ release }) => release);
  checkReleasePath(releases, context);
  if (site) checkSite(site, releases, catalogs, context);
  const images = selectExtraImages(additions.images, releases);
  const lists = listImages(signed, images);
  const { contents: all, policies, streams } = await readContents(releases, lists, provider, context);
  requireVerified(policies, references.map(formatReference).join(', '), trust.allowUnsigned, context);
  const { contents, leftOut } = subtractBase(all, base);
  if (base && !leftOut) {
    ({ path, existing } = await findAt(undefined));
    if (existing?.kind === 'same') return { result: { path, metadata: existing.metadata, catalogs }, keep: existing };
  }
  const artifacts = listArtifacts(images, all.manifests);
  const bytes = measureReleases(all, lists);
  const more = releases.map(({ version }, index) => {
    return { risks: risks?.get(version) ?? [], bytes: bytes[index] ?? 0 };
  });
  const extras = images.map(({ name }) => name);
  const facts = {
    ...describeReleases(signed, extras, tool, more),
    ...(artifacts.length > 0 && { artifacts }),
    ...(additions.skipped.length > 0 && { skippedImages: additions.skipped }),
    ...(reports && { reports }),
    ...(leftOut && { base: leftOut }),
  };
  const split = volumeSize === undefined ? undefined : { name: basename(path), volumeSize };
  const layout = layOutBundle(facts, contents, [...signed.flatMap(signatureManifests), ...additions.config], split);
  const blobs = [...contents.blobs.values()].map(({ descriptor }) => descriptor);
  const reusable = blobs.filter(({ digest }) => existing?.blobs.has(digest));
  const osImageStreams = streams.length > 0 && { osImageStreams: streams };
  const result = { path, metadata: layout.metadata, policies, catalogs, ...osImageStreams };
  return { result, write: { path, layout, contents, reusable }, provider };
}

/**
 * Returns the file name of a bundle of releases in the order of the updates. `base` is the version of the base release
 * of a delta bundle.
 */
function bundleName(versions: readonly string[], arch: Architecture, base?: string): string {
  const via = versions.length > 1 ? `-via-${versions.slice(0, -1).join('-')}` : '';
  return `upgrade-${versions.at(-1) ?? ''}-${arch}${via}${base === undefined ? '' : `-from-${base}`}.tar`;
}

const corrupt =
  'None of it was kept. The source, or a mirror or proxy before it, has corrupt content. Repair the source or use ' +
  'another one, and run the same command again to resume.';

const advice: Partial<Record<ErrorCode, string>> = {
  'digest-mismatch': corrupt,
  'size-mismatch': corrupt,
  'not-found':
    'Check the name. If it is right, the source lacks a part of the release: mirror it there again, or use ' +
    'another source.',
  'not-writable': 'Choose another output folder, or make this one writable.',
  interrupted: 'Run the same command again: it resumes.',
  'too-large': 'This is not a release image. Check the name and the address of the registry.',
};

/** Adds a hint to an error of `create` if it has none. Of several failures, uses the first. */
function withAdvice(error: unknown): unknown {
  if (!isPluginError(error)) return error;
  const failures = error.code === 'partial' && error.cause instanceof AggregateError ? error.cause.errors : [];
  const first: unknown = (failures as unknown[])[0] ?? error;
  if (!isPluginError(first)) return error;
  const hint = first.hint ?? advice[first.code] ?? error.hint;
  return new PluginError(error.code, error.lines, {
    hint,
    settings: hint === corrupt ? ['idmsFile'] : error.settings,
    cause: error.cause,
  });
}

/**
 * Reads the manifests of the images of each release, checks their sigstore signatures, and reads the operating system
 * streams. Of the blobs, reads only these.
 */
async function readContents(
  releases: readonly Release[],
  lists: readonly (readonly BundleImage[])[],
  provider: ReleaseProvider,
  context: Context,
) {
  const images = lists.flat();
  const sourceOf = (reference: Reference): ContentSource => provider.sourceOf(reference);
  context.log('info', `reading the manifests of ${images.length} images`);
  const contents = await gatherContents(images, sourceOf, context);
  warnOfImages(contents.notAttached ?? [], context);
  const streams = await Promise.all(releases.map((release) => readStreamsOf(release, sourceOf, context)));
  const judged = releases.map((release, index) => ({ release, images: lists[index] ?? [] }));
  const checked = await checkContents(contents, judged, provider, context);
  return { ...checked, streams: streams.filter((each) => each !== undefined) };
}

/** The largest size of payloads that are kept for the bundle, in bytes. Those of a release have 60 KB. */
const keptLimit = 16 * 1024 * 1024;

/**
 * Checks the images of each release of a bundle against the image policies of that release, before large blobs are
 * fetched. Reads only the signatures from the provider, each once, and adds them to the returned contents. Throws the
 * errors of the provider.
 */
async function checkContents(
  contents: Contents,
  releases: readonly { readonly release: Pick<Release, 'imagePolicies'>; readonly images: readonly BundleImage[] }[],
  provider: ReleaseProvider,
  context: Context,
): Promise<{ readonly contents: Contents; readonly policies: readonly NamedResult[] }> {
  const judged = releases.filter(({ release }) => release.imagePolicies.length > 0);
  if (judged.length === 0) return { contents, policies: [] };
  context.log('info', 'checking the sigstore signatures');
  const { manifests, tags } = contents;
  const payloads = new Map<Digest, Buffer>();
  let room = keptLimit;
  const reader: ImageReader = {
    ...finderIn(manifests, (tag) => tags.get(tag)),
    readPayload: async ({ reference }, descriptor) => {
      const kept = payloads.get(descriptor.digest);
      if (kept) return kept;
      const payload = await readContent(provider.sourceOf(reference), descriptor, descriptor.size);
      if (payload.length <= room) {
        payloads.set(descriptor.digest, payload);
        room -= payload.length;
      }
      return payload;
    },
  };
  const policies: NamedResult[] = [];
  for (const { release, images } of judged)
    policies.push(...(await checkReleaseImages(images, release.imagePolicies, reader, context.signal)));
  return { contents: { ...contents, payloads }, policies };
}
