import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import {
  encodeMetadata,
  parseMetadata,
  splitReleases,
  type BundleMetadata,
  readBundledSignatures,
} from '#bundle/metadata';
import {
  type Bundle,
  checkAttachments,
  checkReleases,
  requireListing,
  type VerifyTrust,
  identityFields,
} from '#bundle/open';
import type { SignaturesByDigest } from '#config/signatures';
import { writeAtomically } from '#content/files';
import { type Descriptor, type Manifest, digestOf, isDigest, type Digest, digestIn, parseJson } from '#content/oci';
import { Overlay, readContent, readImageManifest, type ContentSource } from '#content/store';
import type { Context } from '#context';
import { ignoring, isPluginError, messageOf } from '#errors';
import { isFields, type Fields } from '#fields';
import type { BundleOutline } from '#node/contentCheck';
import type { SignedRelease } from '#release/load';
import {
  type AdminGate,
  readPayloadFiles,
  listSystemImages,
  readStreamsOf,
  type OSImageStreams,
} from '#release/payload';
import { isForPlatform, type Release } from '#release/release';
import type { VerifiedSignature } from '#release/signature';
import type { UpgradeBundle } from './upgradeBundle.ts';

/** The largest content to keep, in bytes. The layers with the manifests of a release have a few megabytes. */
const largest = 256 * 1024 * 1024;

/** Facts about a bundle whose digest and signature are verified. They are enough to update a cluster with it. */
export interface BundleFacts {
  /** The digest of the whole file. */
  readonly digest: Digest;
  /** The metadata, which agrees with the signed release. */
  readonly metadata: BundleMetadata;
  /** The valid signatures of the releases, and of the images in multi-architecture releases. */
  readonly signatures: ReadonlyMap<Digest, readonly VerifiedSignature[]>;
  /** The acknowledgements that an update from this release to another minor version requires. */
  readonly gates?: readonly AdminGate[];
  /** The feature sets with which clusters of the release pin images; undefined if its manifests do not say. */
  readonly pinsIn?: readonly string[];
  /** The operating system streams that clusters of the release need described; undefined if they need none. */
  readonly streams?: OSImageStreams;
  /** The facts about each release of a bundle with several, in the order of the updates. */
  readonly hops?: readonly BundleFacts[];
  /** The size and the beginning of the bundle, by which other nodes check what they fetch. */
  readonly outline?: BundleOutline;
  /** Of one of several releases: the bytes that it and the later ones add to the releases before it. */
  readonly bytes?: number;
}

/** The bytes by which facts can be verified again without the bundle. */
interface Evidence {
  readonly digest: Digest;
  readonly metadata: Buffer;
  readonly signatures: SignaturesByDigest;
  /** What was read of the releases and their operating systems: manifests, configurations, layers with the payload. */
  readonly contents: ReadonlyMap<Digest, Buffer>;
  /** Undefined for a bundle that is a directory. */
  readonly outline?: BundleOutline | undefined;
}

/**
 * Verifies the signature of the release in a bundle with this digest, and that the metadata agrees with the release.
 * Writes the bytes of that proof to a file that only root can read. Verifies the sigstore signatures of the images too.
 * Throws the errors of checkReleases and checkAttachments, `not-writable` and `disk-full`.
 */
export async function gatherFacts(
  bundle: Bundle,
  digest: Digest,
  file: string,
  trust: VerifyTrust,
  context: Context,
  outline?: BundleOutline,
): Promise<BundleFacts> {
  const { path, metadata } = bundle;
  requireListing(bundle);
  const contents = new Map<Digest, Buffer>();
  const signatures = await readBundledSignatures(bundle, context);
  const content = keepContent(bundle.content, contents);
  const releases = await checkReleases({ path, metadata, content, signatures }, trust, context);
  await checkAttachments(bundle, releases, trust, context);
  const streams = await readAllStreams(releases, content, context);
  for (const [index, { release }] of releases.entries())
    await readPlatforms(release, streams[index], content, context).catch(ignoring('not-found'));
  const evidence = { digest, metadata: encodeMetadata(metadata), signatures, contents, outline };
  await writeAtomically(file, formatEvidence(evidence), { mode: 0o600 });
  return joinFacts({ digest, metadata, outline }, releases, streams);
}

/** Wraps a source, and adds a copy of all content that is read through it to `contents`. */
function keepContent(source: ContentSource, contents: Map<Digest, Buffer>): ContentSource {
  const keep = async (descriptor: Descriptor): Promise<Readable> => {
    const bytes = contents.get(descriptor.digest) ?? (await readContent(source, descriptor, largest));
    contents.set(descriptor.digest, bytes);
    return Readable.from([bytes]);
  };
  return {
    name: source.name,
    resolve: async (tagOrDigest) => {
      const descriptor = await source.resolve(tagOrDigest);
      contents.set(descriptor.digest, await readContent(source, descriptor));
      return descriptor;
    },
    fetch: (descriptor, start) => (start ? source.fetch(descriptor, start) : keep(descriptor)),
    exists: (descriptor) => source.exists(descriptor),
    tags: () => source.tags(),
  };
}

/**
 * Reads the facts of a bundle from the file that gatherFacts wrote on this node, and verifies the chain of trust again.
 * Undefined if there is no such file, or if another account can access it. Throws the errors of checkReleases.
 */
export async function readFacts(
  file: string,
  digest: Digest,
  trust: VerifyTrust,
  context: Context,
): Promise<BundleFacts | undefined> {
  const bytes = await readPrivateFile(file, context);
  const evidence = bytes && parseEvidence(bytes);
  if (evidence?.digest !== digest) return undefined;
  const { signatures, contents } = evidence;
  try {
    const metadata = parseMetadata(evidence.metadata, file);
    const content = new Overlay(file, undefined, contents);
    const releases = await checkReleases({ path: file, metadata, content, signatures }, trust, context);
    const streams = await readAllStreams(releases, content, context);
    // A file that lacks a configuration counts as damaged: the bundle itself has it.
    if (streams.some((each) => each && each.problems.length > 0)) return undefined;
    return joinFacts({ digest, metadata, outline: evidence.outline }, releases, streams);
  } catch (error) {
    // A corrupt file counts as missing, because the bundle itself has the same facts.
    if (!isPluginError(error) || ['interrupted', 'unsigned', 'untrusted'].includes(error.code)) throw error;
    context.log('warn', `${file} is ignored: ${messageOf(error)}`);
    return undefined;
  }
}

/**
 * Reads the metadata and the contents by which an agent of this node verified a bundle. Checks the digest of each, and
 * no signature. Undefined if there is no such file, or if another account can access it. Throws `invalid-bundle`.
 */
export async function readEvidence(
  file: string,
  context: Context,
): Promise<{ readonly metadata: BundleMetadata; readonly contents: ReadonlyMap<Digest, Buffer> } | undefined> {
  const bytes = await readPrivateFile(file, context);
  const evidence = bytes && parseEvidence(bytes);
  if (!evidence) return undefined;
  const whole = [...evidence.contents].filter(([digest, content]) => digestOf(content) === digest);
  return { metadata: parseMetadata(evidence.metadata, file), contents: new Map(whole) };
}

/** Reads the facts of any bundle as readFacts does, with the digest that their file states. */
export async function readFactsOf(
  file: string,
  trust: VerifyTrust,
  context: Context,
): Promise<BundleFacts | undefined> {
  const bytes = await readPrivateFile(file, context);
  const evidence = bytes && parseEvidence(bytes);
  return evidence && (await readFacts(file, evidence.digest, trust, context));
}

/**
 * Reads what machine config controllers of each platform read of a multi-architecture release. The release itself was
 * read for one. Throws `not-found` for content that a bundle leaves out.
 */
async function readPlatforms(
  { children }: Release,
  streams: OSImageStreams | undefined,
  content: ContentSource,
  context: Context,
): Promise<void> {
  if (children.length === 0 || !streams) return;
  for (const child of children) await readPayloadFiles(content, await readDescribed(content, child), context);
  for (const image of listSystemImages(streams)) {
    const root = await readImageManifest(content, await content.resolve(digestIn(image)));
    for (const child of root.manifests.filter(isForPlatform)) await readDescribed(content, child);
  }
}

/** Reads the manifest of an image and its configuration. */
async function readDescribed(content: ContentSource, descriptor: Descriptor): Promise<Manifest> {
  const manifest = await readImageManifest(content, descriptor);
  if (manifest.config) await readContent(content, manifest.config);
  return manifest;
}

/** Reads the streams of each release by the labels of its images. The executable is not read: it has 100 MB. */
async function readAllStreams(
  releases: readonly SignedRelease[],
  content: ContentSource,
  context: Context,
): Promise<(OSImageStreams | undefined)[]> {
  return await Promise.all(releases.map(({ release }) => readStreamsOf(release, () => content, context)));
}

/** What is known of a bundle, whichever of its releases is meant. */
type WholeFacts = Pick<BundleFacts, 'digest' | 'metadata'> & { readonly outline: BundleOutline | undefined };

function joinFacts(
  { digest, metadata, outline }: WholeFacts,
  releases: readonly SignedRelease[],
  streams: readonly (OSImageStreams | undefined)[],
): BundleFacts {
  const signatures = new Map(releases.flatMap((each) => [...each.signatures]));
  const pinsIn = releases.at(-1)?.release.pinsIn;
  const hops = splitFacts({ digest, metadata, outline }, releases, streams);
  return { digest, metadata, signatures, pinsIn, streams: streams.at(-1), hops, ...(outline && { outline }) };
}

/** Splits the facts about a bundle with several releases into the facts about each; undefined for one release. */
function splitFacts(
  { digest, metadata, outline }: WholeFacts,
  releases: readonly SignedRelease[],
  streams: readonly (OSImageStreams | undefined)[],
): readonly BundleFacts[] | undefined {
  const sizes = metadata.releases?.map(({ bytes }) => bytes);
  return (
    sizes &&
    splitReleases(metadata).map((own, index) => ({
      digest,
      metadata: own,
      signatures: releases[index]?.signatures ?? new Map<never, never>(),
      gates: releases[index]?.release.gates ?? [],
      pinsIn: releases[index]?.release.pinsIn,
      streams: streams[index],
      ...(outline && { outline }),
      bytes: sizes.slice(index).reduce((total, size) => total + size, 0),
    }))
  );
}

async function readPrivateFile(path: string, context: Context): Promise<Buffer | undefined> {
  try {
    await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const stats = await file.stat();
    if (stats.isFile() && stats.uid === process.geteuid?.() && (stats.mode & 0o077) === 0) return await file.readFile();
    context.log('warn', `${path} is ignored: other accounts can access it`);
    return undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      context.log('warn', `${path} is ignored: ${messageOf(error)}`);
    return undefined;
  }
}

function formatEvidence({ digest, metadata, signatures, contents, outline }: Evidence): string {
  const encode = (bytes: Buffer): string => bytes.toString('base64');
  return JSON.stringify({
    digest,
    metadata: encode(metadata),
    signatures: Object.fromEntries([...signatures].map(([signed, list]) => [signed, list.map(encode)])),
    contents: Object.fromEntries([...contents].map(([name, bytes]) => [name, encode(bytes)])),
    ...(outline && formatOutline(outline)),
  });
}

function parseEvidence(bytes: Buffer): Evidence | undefined {
  const decode = (text: unknown): Buffer => Buffer.from(String(text), 'base64');
  const entries = (value: unknown): [Digest, unknown][] =>
    Object.entries(isFields(value) ? value : {}).flatMap(([name, each]) => (isDigest(name) ? [[name, each]] : []));
  try {
    const { digest, metadata, signatures, contents, ...record } = parseJson(bytes.toString()) as Fields;
    if (typeof digest !== 'string' || !isDigest(digest) || typeof metadata !== 'string') return undefined;
    return {
      digest,
      metadata: decode(metadata),
      signatures: new Map(
        entries(signatures).map(([signed, list]) => [signed, Array.isArray(list) ? list.map(decode) : []]),
      ),
      contents: new Map(entries(contents).map(([name, text]) => [name, decode(text)])),
      outline: parseOutline(record),
    };
  } catch {
    return undefined;
  }
}

/** An outline in a record: the size of the bundle in bytes, and `<size>:<digest>` of what is before its first blob. */
export interface RecordedOutline {
  readonly size?: number;
  readonly head?: string;
}

/** Returns the outline in the form that parseOutline reads. */
export function formatOutline({ size, head }: BundleOutline): RecordedOutline {
  return { size, ...(head && { head: `${head.size}:${head.digest}` }) };
}

/** Reads the outline of a record; undefined if it has none, or an invalid one. */
export function parseOutline({ size, head }: { readonly size?: unknown; readonly head?: unknown } = {}):
  | BundleOutline
  | undefined {
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size <= 0) return undefined;
  if (typeof head !== 'string' || head === '') return { size };
  const [, bytes = '', digest = ''] = /^(\d{1,15}):(sha256:[0-9a-f]{64})$/.exec(head) ?? [];
  if (!isDigest(digest) || Number(bytes) > size) return undefined;
  return { size, head: { size: Number(bytes), digest } };
}

/**
 * Describes how verified facts differ from the bundle that an UpgradeBundle allows: by the digest of the bundle, the
 * version, or the digest of the release. Undefined if they differ in nothing that it states.
 */
export function describeMismatch(
  { spec: { bundle } }: Pick<UpgradeBundle, 'spec'>,
  facts: BundleFacts,
): string | undefined {
  // The facts about one of several releases have its version.
  const { metadata } = facts.hops?.at(-1) ?? facts;
  const own = { digest: facts.digest, version: metadata.version, releaseDigest: digestIn(metadata.release) };
  for (const [field, what] of identityFields) {
    const [allowed, actual] = [bundle[field], own[field]];
    if (allowed !== undefined && allowed !== actual)
      return `the bundle that was found has the ${what} ${actual}, and ${allowed} is allowed (spec.bundle.${field})`;
  }
  return undefined;
}
