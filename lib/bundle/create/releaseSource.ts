import { resolve } from 'node:path';
import type { SignaturesByDigest } from '#config/signatures';
import { RootFolder } from '#content/files';
import {
  childrenOf,
  isManifest,
  parseManifest,
  type Descriptor,
  isDigest,
  type Digest,
  formatReference,
  isRepository,
  parseReference,
  parseRepository,
  type Reference,
} from '#content/oci';
import type { Registries } from '#content/registry';
import {
  releaseRepository,
  openLocation,
  parseLocation,
  type Location,
  type OpenedLocation,
  readContent,
  type ContentSource,
} from '#content/store';
import type { Context } from '#context';
import { isPluginError, ignoreFailure, PluginError } from '#errors';
import { findRelease, type FoundRelease } from '#release/load';
import {
  isVersion,
  parseArchitecture,
  parseReleaseTag,
  parseVersion,
  releaseTag,
  unknownVersion,
  usualRepository,
  type Architecture,
} from '#release/version';
import { readBundledSignatures, readFolderSignatures } from '../metadata/bundledConfig.ts';
import { extraImageTag } from '../metadata/images.ts';
import { splitReleases } from '../metadata/metadata.ts';
import { readAdditionalImages, readReleaseRepositories } from '../metadata/originalNames.ts';
import { openComplete } from '../open/deltaBase.ts';
import { openBundle } from '../open/open.ts';
import { findSplit } from '../open/split.ts';

/** A release by its name, and the registries, directories and bundles to search for it. */
export interface ReleaseSourceRequest {
  /**
   * A pullspec, a version, `file://REPOSITORY:TAG` of a mirror directory, or the path of a bundle or mirror directory.
   */
  readonly release: string;
  /** The version to take from a bundle of several releases; by default the last one. */
  readonly bundledVersion?: string;
  /** The mirror directory or bundle for `file://` and for versions. */
  readonly fromDir?: string;
  readonly arch?: Architecture;
  /** The repository of release images: to find a version by its tag, and to name the release of a directory. */
  readonly repository?: string;
  /** Finds the pullspec of a version by update graphs. */
  readonly resolveVersion: (version: string) => Promise<string>;
}

/** A release with the source of each of its images. */
export interface ReleaseSource {
  readonly found: FoundRelease;
  /** The required version and architecture, if the user named them. */
  readonly wanted: { readonly version?: string; readonly arch?: Architecture };
  /** The signatures that are stored beside the images. */
  readonly signatures: SignaturesByDigest;
  /** Whether the release needs no registry. */
  readonly isLocal: boolean;
  /** Images in addition to those of the release. The release signature does not cover them. */
  readonly extraImages: readonly LocalExtraImage[];
  /**
   * Returns the source of one image: with a reference if it is in a registry, and with the repository if it is in a
   * directory or bundle.
   */
  sourceOf(name: string, reference: Reference): Promise<ImageSource>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** An extra image in a bundle or mirror directory. */
export interface LocalExtraImage {
  /** The name, like that of a component: the part of its tag after the tag of the release. */
  readonly name: string;
  readonly digest: Digest;
  /** The original reference, if it is known. */
  readonly origin: Reference | undefined;
}

/**
 * The content of one image. `reference` is its place in a registry, `repository` its place in a directory or bundle.
 */
export interface ImageSource {
  readonly source: ContentSource;
  readonly reference?: Reference;
  readonly repository?: string;
}

/**
 * Finds a release and the sources of its images. Throws `usage` for a text that names no release, `unknown-version`,
 * `not-found`, and the errors of the stores and of `resolveVersion`.
 */
export async function openReleaseSource(
  request: ReleaseSourceRequest,
  registries: Registries,
  context: Context,
): Promise<ReleaseSource> {
  const { release, bundledVersion, fromDir, arch, repository } = request;
  // Otherwise 4.12 would be the name of an image.
  const version = isVersion(release) || /^v?\d+\.\d[^/:@]*$/.test(release) ? parseVersion(release) : undefined;
  if (release.startsWith('file://')) {
    return openLocal(fromDir ?? '.', { ...parseLocal(release), repository }, context);
  }
  if (version !== undefined && fromDir !== undefined) {
    const local = { name: releaseRepository, version, arch: arch ?? 'x86_64', repository } as const;
    return openLocal(fromDir, local, context);
  }
  if (fromDir !== undefined)
    context.log('warn', `${release} is not searched in ${fromDir}: only versions and file:// are`);
  if (version === undefined && (await isPath(release))) return openPath(release, bundledVersion, repository, context);
  const sources = new Map<string, ContentSource>();
  const sourceOf = (reference: Reference): ContentSource => {
    const { registry, repository, digest } = reference;
    const key = `${formatReference({ registry, repository })} ${String(digest === undefined)}`;
    const source = sources.get(key) ?? registries.sourceOf(reference);
    sources.set(key, source);
    return source;
  };
  const foundRelease =
    version !== undefined && repository !== undefined
      ? await findRelease({ version, arch: arch ?? 'x86_64', repository }, sourceOf)
      : await findRelease({ image: version === undefined ? release : await request.resolveVersion(version) }, sourceOf);
  const { digest } = foundRelease.reference;
  return {
    // Clusters ask for a release by its original name, also if the user names a mirror.
    found: {
      ...foundRelease,
      reference: { ...registries.originalOf(foundRelease.reference, usualRepository), digest },
    },
    wanted: { version, arch },
    signatures: new Map(),
    isLocal: false,
    extraImages: [],
    sourceOf: async (_name, reference) => ({ source: sourceOf(reference), reference }),
    [Symbol.asyncDispose]: async () => {},
  };
}

interface LocalRelease {
  readonly name: string;
  readonly repository?: string;
  readonly wanted?: string;
  readonly version?: string;
  readonly arch?: Architecture;
}

async function openLocal(
  folder: string,
  { name, repository, wanted: tagOrDigest, version, arch }: LocalRelease,
  context: Context,
): Promise<ReleaseSource> {
  const path = resolve(folder);
  const location = await parseLocation((await findSplit(path)) ?? path);
  const opened = await openLocation(location, context);
  try {
    const content = opened.repository(name);
    if (!content) {
      throw new PluginError('not-found', `${path} has no repository ${name}`, {
        hint: `It has ${opened.repositories.join(', ')}.`,
      });
    }
    const tag = tagOrDigest ?? releaseTag(version ?? '', arch ?? 'x86_64');
    const descriptor = await content.resolve(tag).catch(async (error: unknown) => {
      if (!isPluginError(error, 'not-found') || version === undefined) throw error;
      throw unknownVersion(version, arch ?? 'x86_64', await content.tags(), path, error);
    });
    const repositories =
      location.kind === 'directory' ? await readReleaseRepositories(new RootFolder(path)) : undefined;
    const published = repository ?? repositories?.get(descriptor.digest) ?? usualRepository;
    const reference = { ...parseRepository(published), digest: descriptor.digest };
    return {
      found: { reference, descriptor, source: content },
      // A tag of the directory is not verified, so the payload must state the same version and architecture.
      wanted: parseReleaseTag(tag) ?? {},
      signatures: await readSignaturesBeside(location, context),
      ...localImages(path, name, content, opened),
      extraImages: isDigest(tag) ? [] : await findExtraImages(content, tag, await namesBeside(location)),
      [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
    };
  } catch (error) {
    await opened[Symbol.asyncDispose]();
    throw error;
  }
}

/** Returns the versions of a release that is the path of a bundle of several; undefined for any other release. */
export async function listBundledVersions(release: string, context: Context): Promise<string[] | undefined> {
  if (isVersion(release) || release.startsWith('file://') || !(await isPath(release))) return undefined;
  await using bundle = await openBundle(release, context);
  return bundle.metadata.releases?.map(({ version }) => version);
}

async function openPath(
  path: string,
  bundledVersion: string | undefined,
  repository: string | undefined,
  context: Context,
): Promise<ReleaseSource> {
  const bundle = await openComplete(path, { bases: [] }, context);
  const { content } = bundle;
  const metadata = splitReleases(bundle.metadata).find(({ version }) => version === bundledVersion) ?? bundle.metadata;
  const named = parseReference(metadata.release);
  const descriptor = await content.resolve(named.digest ?? '');
  const reference = { ...(repository === undefined ? named : parseRepository(repository)), digest: descriptor.digest };
  const alone = { repositories: [releaseRepository], repository: () => content };
  return {
    found: { reference, descriptor, source: content },
    wanted: {},
    signatures: await readBundledSignatures(bundle, context),
    ...localImages(path, releaseRepository, content, alone),
    extraImages: await findExtraImages(
      content,
      releaseTag(metadata.version, parseArchitecture(metadata.arch)),
      metadata.extraImages.map(parseReference),
    ),
    [Symbol.asyncDispose]: () => bundle[Symbol.asyncDispose](),
  };
}

function localImages(
  path: string,
  name: string,
  content: ContentSource,
  opened: Pick<OpenedLocation, 'repositories' | 'repository'>,
): Pick<ReleaseSource, 'isLocal' | 'sourceOf'> {
  const others = opened.repositories.flatMap((repository) => {
    const source = repository === name ? undefined : opened.repository(repository);
    return source ? [{ repository, source }] : [];
  });
  return {
    isLocal: true,
    sourceOf: async (image, reference) => {
      const tagOrDigest = reference.digest ?? reference.tag ?? '';
      let missing = tagOrDigest;
      for (const place of [{ repository: name, source: content }, ...others]) {
        const descriptor = await place.source.resolve(tagOrDigest).catch(ignoreFailure);
        const below = descriptor && (await findMissing(place.source, descriptor));
        if (descriptor && !below) return place;
        missing = below?.digest ?? missing;
      }
      throw new PluginError('incomplete', `${image}: ${missing} is missing or truncated in ${content.name}`, {
        hint: `Mirror the release to ${path} again: only what is missing is fetched.`,
      });
    },
  };
}

/** Finds the first content of an image that a source lacks or has with another size. */
async function findMissing(source: ContentSource, node: Descriptor): Promise<Descriptor | undefined> {
  if (await source.exists(node)) return undefined;
  const bytes = isManifest(node) ? await readContent(source, node).catch(ignoreFailure) : undefined;
  for (const child of bytes ? childrenOf(parseManifest(bytes, `${node.digest} in ${source.name}`)) : []) {
    const missing = await findMissing(source, child);
    if (missing) return missing;
  }
  return node;
}

/** Finds extra images by their tags, which begin with the tag of the release. One image may have several origins. */
async function findExtraImages(
  content: ContentSource,
  tag: string,
  names: readonly Reference[],
): Promise<LocalExtraImage[]> {
  const origins = Map.groupBy(names, ({ digest, ...name }) => digest && extraImageTag(tag, { ...name, digest }));
  const tags = (await content.tags()).filter((each) => each.startsWith(`${tag}-extra-`)).sort();
  const images = tags.map(async (each) => {
    const { digest } = await content.resolve(each);
    const own = (origins.get(each) ?? [undefined]).filter((origin) => !origin || origin.digest === digest);
    return own.map((origin) => ({ name: each.slice(tag.length + 1), digest, origin }));
  });
  return (await Promise.all(images)).flat();
}

/** Returns the original names of the additional images in a mirror directory; none for another location. */
async function namesBeside(location: Location): Promise<readonly Reference[]> {
  return location.kind === 'directory' ? readAdditionalImages(new RootFolder(location.path)) : [];
}

function parseLocal(text: string): { name: string; wanted: string } {
  const [, name = '', tagOrDigest = ''] = /^file:\/\/\/?([^:@]*)[:@]([^@]*)$/.exec(text) ?? [];
  if (isRepository(name) && (isDigest(tagOrDigest) || /^[\w.-]+$/.test(tagOrDigest)))
    return { name, wanted: tagOrDigest };
  throw new PluginError('usage', `${text} is not an image of a mirror directory`, {
    hint: `It is file://${releaseRepository}:<version>-<arch>; the mirror directory is given separately.`,
    settings: ['fromDir'],
  });
}

async function isPath(text: string): Promise<boolean> {
  return (await parseLocation(text)).kind !== 'registry';
}

async function readSignaturesBeside(location: Location, context: Context): Promise<SignaturesByDigest> {
  if (location.kind === 'registry') return new Map();
  const { kind, path } = location;
  if (kind === 'directory') return readFolderSignatures(new RootFolder(path), context);
  await using bundle = await openBundle(path, context);
  return await readBundledSignatures(bundle, context);
}
