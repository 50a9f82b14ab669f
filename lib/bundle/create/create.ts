import { basename, join } from 'node:path';
import { signatureManifests } from '#config/signatures';
import { sumSizes, type Digest, formatReference, type Reference } from '#content/oci';
import { type ContentSource, readContent } from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError, type ErrorCode } from '#errors';
import { findRelease, type FoundRelease } from '#release/load';
import { readStreamsOf, type OSImageStreams } from '#release/payload';
import type { Release } from '#release/release';
import { requireVerified, type NamedResult, checkReleaseImages, finderIn, type ImageReader } from '#release/sigstore';
import type { Architecture } from '#release/version';
import { listImages, selectExtraImages, type BundleImage } from '../metadata/images.ts';
import { describeReleases, splitReleases, type BundleMetadata } from '../metadata/metadata.ts';
import { checkFolder, checkOutput } from '../open/sidecars.ts';
import { subtractBase, readBase } from './base.ts';
import { gatherExtraContent, type ExtraContent, type BundledCatalog } from './catalogs.ts';
import { gatherContents, warnOfImages, type Contents } from './contents.ts';
import { checkExisting, reuseBundle } from './existing.ts';
import type { ReleaseProvider } from './releaseProvider.ts';
import { listWanted, loadReleases, measureReleases, readVerifiedPayloads, type WantedReleases } from './releases.ts';
import type { CreateRequest } from './request.ts';
import { checkReleasePath, checkSite, warnOfSpace } from './siteCheck.ts';
import { listArtifacts, layOutBundle, writeBundle } from './writeBundle.ts';

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
  /** The catalogs with their operators; absent for an existing bundle of a release that was given by image. */
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
  const plan = await planBundle(request, source, context);
  if ('outcome' in plan) return plan;
  const { path, contents, layout, provider, ...details } = plan;
  const { metadata } = layout;
  const bytes = sumSizes(metadata.blobs);
  if (request.site) warnOfSpace(request.site, bytes, context);
  if (request.dryRun) return { path, outcome: 'planned', metadata, fetched: bytes, ...details };
  await using reused = await reuseBundle(path, contents, provider, context);
  const { digests, fetched } = await writeBundle(path, layout, contents, {}, reused ?? provider, context);
  const { digest } = digests;
  return { path, outcome: 'created', metadata, digest, fetched: fetched - (reused?.reused ?? 0), ...details };
}

/** Reads everything but blobs, and checks it. Returns the finished bundle if there is one. Writes no bundle. */
async function planBundle(request: CreateRequest, source: ReleaseProvider, context: Context) {
  await checkFolder(request.output, request.dryRun);
  const foundReleases: FoundRelease[] = [];
  for (const each of request.releases)
    foundReleases.push(await findRelease(each, (reference) => source.sourceOf(reference)));
  const references = foundReleases.map(({ reference }) => reference);
  const requestedReleases = listWanted(request);
  const gatherFor = (arch: Architecture): Promise<ExtraContent> => gatherExtraContent(request, arch, source, context);
  const extraContent = requestedReleases && (await gatherFor(requestedReleases.arch));
  let base = request.base && (await readBase(request.base, references, source, context));
  const pathOf = ({ versions, arch }: WantedReleases): string =>
    join(request.output, bundleName(versions, arch, base?.version));
  // Without a finished bundle, checks that it can be written.
  const findExisting = async (path: string, { images, catalogs }: ExtraContent): Promise<CreateResult | undefined> => {
    const expected = { references, extraImages: images.map(({ name }) => name), base, reports: request.reports };
    const trust = { ...request.trust, fetchFile: source.fetchFile };
    const existing = await checkExisting(path, expected, request, trust, context);
    if (!existing && !request.dryRun) await checkOutput(path);
    if (existing && request.site) warnOfSpace(request.site, sumSizes(existing.metadata.blobs), context);
    return existing && { path, outcome: 'unchanged', fetched: 0, catalogs, ...existing };
  };
  const existing = extraContent && (await findExisting(pathOf(requestedReleases), extraContent));
  if (existing) {
    checkReleasePath(splitReleases(existing.metadata), context);
    if (request.site)
      checkSite(request.site, await readVerifiedPayloads(foundReleases, context), extraContent.catalogs, context);
    return existing;
  }

  const trust = { ...request.trust, known: source.signatures, fetchFile: source.fetchFile };
  const signed = await loadReleases(foundReleases, { ...request, isLocal: source.isLocal }, trust, context);
  const releases = signed.map(({ release }) => release);
  const { arch } = signed[0].release;
  const named = { versions: releases.map(({ version }) => version), arch };
  let path = pathOf(named);
  // For a release by image, the version is known only now.
  const additions = extraContent ?? (await gatherFor(arch));
  const finished = requestedReleases ? undefined : await findExisting(path, additions);
  const { config, catalogs, provider } = additions;
  const extraImages = selectExtraImages(additions.images, releases);
  checkReleasePath(releases, context);
  if (request.site) checkSite(request.site, releases, catalogs, context);
  if (finished) return finished;

  const lists = listImages(signed, extraImages);
  context.log('info', `reading the manifests of ${lists.flat().length} images`);
  const sourceOf = (reference: Reference): ContentSource => provider.sourceOf(reference);
  const gathered = await gatherContents(lists.flat(), sourceOf, context);
  warnOfImages(gathered.notAttached ?? [], context);
  const streams = await Promise.all(releases.map((release) => readStreamsOf(release, sourceOf, context)));
  const needed = streams.filter((each) => each !== undefined);
  const judged = releases.map((release, index) => ({ release, images: lists[index] ?? [] }));
  const { contents: checked, policies } = await checkContents(gathered, judged, provider, context);
  requireVerified(policies, references.map(formatReference).join(', '), request.trust.allowUnsigned, context);
  const { contents, leftOut } = subtractBase(checked, base);
  if (base && !leftOut) {
    base = undefined;
    path = pathOf(named);
    const whole = await findExisting(path, additions);
    if (whole) return whole;
  }
  const extras = extraImages.map(({ name }) => name);
  const artifacts = listArtifacts(extraImages, checked.manifests);
  const bytes = measureReleases(checked, lists);
  const more = releases.map(({ version }, index) => {
    return { risks: request.risks?.get(version) ?? [], bytes: bytes[index] ?? 0 };
  });
  const facts = {
    ...describeReleases(signed, extras, request.tool, more),
    ...(artifacts.length > 0 && { artifacts }),
    ...(additions.skipped.length > 0 && { skippedImages: additions.skipped }),
    ...(request.reports && { reports: request.reports }),
    ...(leftOut && { base: leftOut }),
  };
  const { volumeSize } = request;
  const split = volumeSize === undefined ? undefined : { name: basename(path), volumeSize };
  const layout = layOutBundle(facts, contents, [...signed.flatMap(signatureManifests), ...config], split);
  const osImageStreams = needed.length > 0 && { osImageStreams: needed };
  return { path, contents, layout, provider, policies, catalogs, ...osImageStreams };
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
    'Check the name. If it is right, the source lacks a part of the release: mirror it there again, or use another source.',
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
