/** Mirroring of releases, catalogs and other images to a registry or a directory. */

import { join as joinNames } from 'node:path/posix';
import { openReleaseSource, type ReleaseSource, type LocalExtraImage } from '#bundle/create';
import {
  readConfigFolder,
  additionalImagesPath,
  formatAdditionalImages,
  readAdditionalImages,
  type AdditionalImageName,
  extraImageTag,
  resolveExtraImage,
} from '#bundle/metadata';
import { describeExtraImages } from '#bundle/open';
import { writeTextFile } from '#config/manifest';
import type { MirroredSource, Mirrors, MirrorSetKind } from '#config/mirrorSets';
import { releaseManifests, signatureManifests, mergeSignatures, readAllSignatures } from '#config/signatures';
import type { UpdateServiceOptions } from '#config/updateService';
import { RootFolder } from '#content/files';
import type { FetchFile } from '#content/http';
import { formatReference, parseReference, type Reference } from '#content/oci';
import { Registries } from '#content/registry';
import type { ContentSource } from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { resolveVersion } from '#release/graph';
import { findRelease, loadRelease, type SignedRelease } from '#release/load';
import type { Release } from '#release/release';
import type { NamedResult } from '#release/sigstore';
import { usualRepository } from '#release/version';
import { countArchitectures } from './configuration.ts';
import { configFiles, prepareFiles, signatureFiles, writeFiles, type WrittenFile } from './manifestFolder.ts';
import { applyToCluster, checkCluster, checkRightsInCluster, type Applied } from './mirror/clusterConfig.ts';
import {
  formatTarget,
  type Destination,
  type MirrorImage,
  whileLocked,
  formatPlace,
  type Target,
} from './mirror/destination.ts';
import { mirrorImages, noteRepository, planCopies } from './mirror/imageCopies.ts';
import {
  importRelease,
  describeUpdateService,
  findGraphData,
  listMirrorImages,
  listMirrors,
  namedImages,
} from './mirror/images.ts';
import type { MirrorMeasure } from './mirror/measure.ts';
import { FilledRepositories, type MirrorResult } from './mirror/plan.ts';
import { readClusterUpdates } from './mirror/releases.ts';
import { withResumeHint, type MirroringAccess, type MirroringRequest, type ReleaseSearch } from './mirror/request.ts';

export { isImageConfig, type Applied, type ImageConfig } from './mirror/clusterConfig.ts';
export type { WrittenFile } from './manifestFolder.ts';
export { formatPlace, formatTarget, parseDestination, releaseName, type MirrorImage } from './mirror/destination.ts';
export type { MirrorMeasure } from './mirror/measure.ts';
export { FilledRepositories, type MirrorResult } from './mirror/plan.ts';
export { listReleases, readStoredReleases } from './mirror/releases.ts';
export type { MirroringRequest, ReleaseChoice } from './mirror/request.ts';

/** The result of a run or a dry run. */
export interface MirrorOutcome extends Applied {
  readonly signed: SignedRelease;
  readonly images: readonly MirrorImage[];
  /** The sigstore signatures of the images, by the image policies of the release. */
  readonly policies: readonly NamedResult[];
  /** The result of copying; undefined without images, and in a dry run. */
  readonly result?: MirrorResult;
  /** In a dry run, what would be copied. */
  readonly measure?: MirrorMeasure;
  /** The number of images that the cluster imported into an image stream. */
  readonly imported: number;
  readonly files: readonly WrittenFile[];
  /**
   * Whether its mirror directory has releases of several architectures, so that applying checks each signature alone.
   */
  readonly isMixed: boolean;
  readonly mirrors: Mirrors | undefined;
  readonly updateService?: UpdateServiceOptions;
}

/** A release whose signature is checked, and the connections to its source. */
interface OpenedRelease {
  readonly registries: Registries;
  readonly source: ReleaseSource;
  readonly signed: SignedRelease;
}

/**
 * Mirrors a release: its images, then its configuration files, then its configuration in the cluster. Checks the
 * signature and the cluster first. Mounts blobs of the repositories that earlier calls filled. Throws the errors of
 * loading and copying. If only the cluster fails, the outcome has the steps that succeeded.
 */
export function mirrorRelease(
  request: MirroringRequest,
  access: MirroringAccess,
  context: Context,
  filled = new FilledRepositories(),
): Promise<MirrorOutcome> {
  return withResumeHint(() =>
    withRelease(request, access, context, (opened) => carryOut(request, opened, access, filled, context)),
  );
}

/** Lists the source and the destination of each image, in the form of `oc image mirror`: `[source, destination]`. */
export function listMapping(
  request: MirroringRequest,
  access: MirroringAccess,
  context: Context,
): Promise<(readonly [source: string, destination: string])[]> {
  const { destination, additionalImages, skipReleaseImage } = request;
  return withRelease(request, access, context, async ({ registries, source, signed: { release } }) => {
    const pairs = namedImages(release, skipReleaseImage).map(async ([name, reference]) => {
      const { repository } = await source.sourceOf(name, reference);
      const from =
        repository === undefined ? formatReference(reference) : `file://${repository}@${reference.digest ?? ''}`;
      const target = destination?.(name, release);
      return [from, target ? formatTarget(target) : ''] as const;
    });
    const images = destination
      ? await findAdditionalImages(additionalImages, source, { release, destination }, registries, context)
      : [];
    const additional = images.map(({ origin, digest, target }) => {
      const from = source.isLocal || !origin ? `${source.found.source.name}@${digest}` : formatReference(origin);
      return [from, formatTarget(target)] as const;
    });
    return [...(await Promise.all(pairs)), ...additional];
  });
}

async function withRelease<R>(
  request: ReleaseSearch & Pick<MirroringRequest, 'configFolder' | 'trust'>,
  access: MirroringAccess,
  context: Context,
  use: (opened: OpenedRelease) => Promise<R>,
): Promise<R> {
  await using registries = new Registries(access.registries, context);
  await using source = await openSource(request, access, registries, context);
  const signed = await load(request, source, registries.fetchFile, context);
  return await use({ registries, source, signed });
}

function openSource(
  { graphUrl, ...request }: ReleaseSearch,
  access: MirroringAccess,
  registries: Registries,
  context: Context,
): Promise<ReleaseSource> {
  const resolve = async (version: string): Promise<string> => {
    const cluster = graphUrl === undefined ? await readClusterUpdates(access, context) : undefined;
    const options = { graphUrl, cluster, fetchFile: registries.fetchFile };
    return resolveVersion(version, request.arch, options, context).catch(async (error: unknown) => {
      if (graphUrl !== undefined || !isPluginError(error) || error.code === 'interrupted') throw error;
      const tagged = { version, arch: request.arch ?? cluster?.arch ?? 'x86_64', repository: usualRepository } as const;
      const { reference } = await findRelease(tagged, registries.sourceOf.bind(registries)).catch(
        (failure: unknown) => {
          throw isPluginError(failure, 'interrupted') ? failure : error;
        },
      );
      context.log('info', `${version} is found by its tag in ${usualRepository}, without an update graph`);
      return formatReference(reference);
    });
  };
  return openReleaseSource({ ...request, resolveVersion: resolve }, registries, context);
}

async function load(
  { configFolder, trust }: Pick<MirroringRequest, 'configFolder' | 'trust'>,
  source: ReleaseSource,
  fetchFile: FetchFile,
  context: Context,
): Promise<SignedRelease> {
  const { reference, descriptor, source: content } = source.found;
  const name = source.isLocal ? `${descriptor.digest} in ${content.name}` : formatReference(reference);
  context.log('info', `reading the release ${name}`);
  const written =
    configFolder === undefined ? [] : await readConfigFolder(new RootFolder(configFolder), '', context.signal);
  const signatures = mergeSignatures([source.signatures, readAllSignatures(written)]);
  // A directory or bundle with the signature needs no network. One that oc wrote may lack it.
  const offline = source.isLocal && (signatures.has(descriptor.digest) || trust.allowUnsigned);
  return loadRelease(source.found, source.wanted, { ...trust, known: signatures, fetchFile, offline }, context);
}

async function carryOut(
  request: MirroringRequest,
  opened: OpenedRelease,
  access: MirroringAccess,
  filled: FilledRepositories,
  context: Context,
): Promise<MirrorOutcome> {
  const { registries, source, signed } = opened;
  const { destination, configFolder, signatureFolder } = request;
  const kind = await chooseKind(request, access, context);
  const content = destination
    ? await findContent(destination, kind, request, opened, context)
    : { images: [], additional: [], mirrors: undefined, updateService: undefined };
  const { images, additional, mirrors, updateService } = content;
  const manifests = releaseManifests(signed, { mirrors, updateService });
  const signatures = signatureManifests(signed);
  if (images.length === 0 && manifests.length === 0) {
    context.log('warn', 'the release has no signature, so there is no configuration to write or apply');
  }

  const requested = { nothing: [], signatures, configuration: manifests }[request.apply];
  const files = [
    ...(configFolder === undefined ? [] : configFiles(configFolder, manifests, request.configRoot)),
    ...(signatureFolder === undefined ? [] : signatureFiles(signatureFolder, signatures)),
  ];
  const isDryRun = request.dryRun !== undefined;
  const { groups, policies } = await planCopies(images, signed.release, request.trust.allowUnsigned, context);
  // What is wrong with a place would be found hours later.
  await prepareFiles(files, isDryRun);
  if (requested.length > 0) await checkRightsInCluster(access, requested, request, context);

  // A directory may have a repository for each component.
  const roots = [...new Set(groups.flatMap(({ place }) => (place.kind === 'directory' ? [place.root] : [])))];
  const { copied, imported, written } = await whileLocked(isDryRun ? [] : roots, async () => {
    const copied = await mirrorImages(groups, request, filled, registries, context);
    if (copied.result) {
      await noteRepository(images, signed.release);
      await noteAdditionalImages(additional);
    }
    const imported =
      request.imageStream === undefined
        ? 0
        : await importRelease(request.imageStream, request, signed, source, access, context);
    return { copied, imported, written: await writeFiles(files, isDryRun) };
  });
  const isMixed = (await Promise.all(roots.map((root) => countArchitectures(root, context)))).some(
    (count) => count > 1,
  );
  const applied = await applyToCluster(access, requested, request, context);
  return {
    signed,
    images,
    policies,
    ...copied,
    imported,
    files: written,
    isMixed,
    mirrors,
    updateService,
    ...applied,
  };
}

/** Finds the images to mirror, and what the configuration says about their places. */
async function findContent(
  destination: Destination,
  kind: MirrorSetKind | undefined,
  request: Pick<MirroringRequest, 'skipReleaseImage' | 'graphData' | 'additionalImages' | 'certificateAuthority'>,
  { registries, source, signed }: OpenedRelease,
  context: Context,
): Promise<Pick<MirrorOutcome, 'images' | 'mirrors' | 'updateService'> & { additional: readonly AdditionalImage[] }> {
  const { skipReleaseImage, additionalImages: names, certificateAuthority } = request;
  const { release } = signed;
  const own = await listMirrorImages(signed, source, destination, skipReleaseImage, context);
  const graphData = await findGraphData(request.graphData, signed, source, destination, registries.fetchFile, context);
  const additional = await findAdditionalImages(names, source, { release, destination }, registries, context);
  const mirrors = kind && describeMirrors(kind, destination, additional, signed, context);
  const updateService =
    graphData && (await describeUpdateService(graphData, release, destination, certificateAuthority, context));
  return { images: [...own, ...(graphData ? [graphData] : []), ...additional], additional, mirrors, updateService };
}

function describeMirrors(
  kind: MirrorSetKind,
  destination: Destination,
  images: readonly AdditionalImage[],
  { release }: SignedRelease,
  context: Context,
): Mirrors | undefined {
  const sources = listMirrors(release, destination, context);
  const additional = listAdditionalMirrors(images);
  if (kind === 'icsp' && additional.tag.length > 0) {
    const names = additional.tag.map(({ source }) => source).join(', ');
    context.log('warn', `ImageContentSourcePolicy has no mirrors for tags: nodes find ${names} there by digest only`);
  }
  const all = [...sources, ...additional.digest, ...additional.tag];
  return all.length > 0 && canBeNamed(all, context) ? { kind, sources, additional } : undefined;
}

/**
 * Returns whether mirror sets can name these mirrors. Warns of an IPv6 address: neither mirror sets nor pullspecs have
 * one (openshift/api, ImageMirror; Bug 1780376).
 */
function canBeNamed(sources: readonly MirroredSource[], context: Context): boolean {
  const [address] = sources.flatMap(({ mirrors }) => mirrors.filter((mirror) => mirror.startsWith('[')));
  if (address === undefined) return true;
  const what = `mirror sets cannot name the IPv6 address in ${address}, so none is written`;
  context.log('warn', `${what}: name the registry by a host name that the nodes resolve, and mirror again`);
  return false;
}

/** Checks that the cluster responds, before the long copy, and returns the kind of mirror set to create. */
async function chooseKind(
  { apply, mirrorSet, destination }: Pick<MirroringRequest, 'apply' | 'mirrorSet' | 'destination'>,
  access: MirroringAccess,
  context: Context,
): Promise<MirrorSetKind | undefined> {
  if (apply === 'nothing') return mirrorSet;
  const isApplied = apply === 'configuration' && destination !== undefined;
  const accepted = await checkCluster(access, isApplied ? mirrorSet : undefined, context);
  return accepted ?? mirrorSet;
}

/** An image in addition to those of a release, with its original name if it is known. */
interface AdditionalImage extends MirrorImage {
  readonly origin: AdditionalImageName | undefined;
}

/** The places of a run: the destination and the release that additional images accompany. */
interface Accompanied {
  readonly release: Pick<Release, 'version' | 'arch'>;
  readonly destination: Destination;
}

/**
 * Finds the images to mirror in addition to those of a release: the named ones, and those beside a release in a
 * directory or bundle. The release signature covers none of them. In a registry, each has a repository of its own,
 * beside that of the release. Throws `not-found` for a named image that a directory lacks, `usage` for two images with
 * one target, and the errors of the sources.
 */
async function findAdditionalImages(
  names: readonly string[],
  source: ReleaseSource,
  { release, destination }: Accompanied,
  registries: Registries,
  context: Context,
): Promise<AdditionalImage[]> {
  const place = (name: string, origin: AdditionalImageName | undefined): Target =>
    targetOf(name, origin, { release, destination });
  const images = source.isLocal
    ? listLocal(names, source).map(({ name, digest, origin }) => {
        const named = origin && { ...origin, digest };
        return { name, digest, source: source.found.source, target: place(name, named), origin: named };
      })
    : await fetchNamed(names, place, registries);
  const words = describeExtraImages(images.map(({ name }) => name));
  if (words !== undefined) context.log('warn', words);
  checkTargets(images);
  return images;
}

/** Returns the mirrors of additional images in registries, apart for images by digest and by tag. */
function listAdditionalMirrors(
  images: readonly AdditionalImage[],
): Readonly<Record<'digest' | 'tag', MirroredSource[]>> {
  const mirrored = images.flatMap(({ origin, target: { place } }) => {
    if (!origin || place.kind !== 'registry') return [];
    const { registry, repository, tag } = origin;
    const source = formatReference({ registry, repository });
    const mirror = formatPlace(place);
    return mirror === source ? [] : [{ pulls: tag === undefined ? 'digest' : 'tag', source, mirrors: [mirror] }];
  });
  const listFor = (kind: string): MirroredSource[] =>
    mirrored.flatMap(({ pulls, ...each }) => (pulls === kind ? [each] : []));
  return { digest: listFor('digest'), tag: listFor('tag') };
}

/**
 * Writes the original names of additional images into the mirror directories that have them. Throws the errors of
 * `writeTextFile`.
 */
async function noteAdditionalImages(images: readonly AdditionalImage[]): Promise<void> {
  for (const { origin, target } of images) {
    if (!origin || target.place.kind !== 'directory') continue;
    const folder = new RootFolder(target.place.root);
    const names = await readAdditionalImages(folder);
    await writeTextFile(folder.path, additionalImagesPath, formatAdditionalImages([...names, origin]));
  }
}

async function fetchNamed(
  names: readonly string[],
  place: (name: string, origin: AdditionalImageName) => Target,
  registries: Registries,
): Promise<AdditionalImage[]> {
  const sources = new Map<string, ContentSource>();
  const sourceOf = (reference: Reference): ContentSource => {
    const key = formatReference(reference);
    const source = sources.get(key) ?? registries.sourceOf(reference);
    sources.set(key, source);
    return source;
  };
  const images = names.map(async (text) => {
    const resolvedReference = await resolveExtraImage(text, { sourceOf });
    const { registry, repository, digest } = resolvedReference;
    const reference = { registry, repository, digest };
    // Nodes ignore the tag of a name that has a digest too.
    const named = parseReference(text).digest === undefined ? resolvedReference : reference;
    const origin = { ...registries.originalOf(named), digest };
    const name = extraImageTag('', origin).slice(1);
    return { name, digest, source: sourceOf(reference), reference, target: place(name, origin), origin };
  });
  return Promise.all(images);
}

function listLocal(
  names: readonly string[],
  { extraImages, found: { source } }: ReleaseSource,
): readonly LocalExtraImage[] {
  for (const text of names) {
    const { registry, repository, tag, digest } = parseReference(text);
    const isNamed = ({ origin }: LocalExtraImage): boolean =>
      origin?.registry === registry &&
      origin.repository === repository &&
      (digest === undefined ? origin.tag === (tag ?? 'latest') : origin.digest === digest);
    if (extraImages.some(isNamed)) continue;
    throw new PluginError('not-found', `${source.name} does not have ${text} beside the release`, {
      hint: 'Mirror it to the directory first, together with the release.',
    });
  }
  return extraImages;
}

/**
 * Returns the target of an image: a repository beside that of the release, or in a directory a tag beside those of the
 * release.
 */
function targetOf(
  name: string,
  origin: AdditionalImageName | undefined,
  { release, destination }: Accompanied,
): Target {
  const beside = destination(name, release);
  if (!origin || beside.place.kind === 'directory') return beside;
  const repository = joinNames(beside.place.repository, '..', origin.repository);
  return { place: { ...beside.place, repository }, tag: origin.tag ?? `digest-${origin.digest.slice(7, 19)}` };
}

function checkTargets(images: readonly AdditionalImage[]): void {
  const targets = Map.groupBy(images, ({ target }) => formatTarget(target));
  for (const [target, same] of targets) {
    if (new Set(same.map(({ digest }) => digest)).size < 2) continue;
    const names = same.map(({ name, origin }) => (origin ? formatReference(origin) : name)).join(' and ');
    throw new PluginError('usage', `${names} would both become ${target}`, { hint: 'Name one of them by its digest.' });
  }
}
