import { isUtf8 } from 'node:buffer';
import { stat } from 'node:fs/promises';
import { basename, dirname, posix } from 'node:path';
import { splitReleases } from '#bundle/metadata';
import { openBundle, type Bundle } from '#bundle/open';
import { parseVolumeName, isFile, readLayer } from '#content/archive';
import { isMissing, RootFolder, readSmallFile, readSmallInput } from '#content/files';
import {
  type Descriptor,
  formatReference,
  parseReference,
  type Reference,
  isIndex,
  parseManifest,
  parseJson,
} from '#content/oci';
import { type ContentSource, readContent } from '#content/store';
import { checkInterrupted, type Context } from '#context';
import { asFailure, messageOf, PluginError, isPluginError } from '#errors';
import { fieldsAt, textOf } from '#fields';
import { findRelease, type ReleaseRequest } from '#release/load';
import { makeManifestFilter, type PayloadFiles } from '#release/payload';
import { readPayloadManifests } from '#release/release';
import { isVersion, type Architecture } from '#release/version';
import { imageReferences, readReleaseImages } from './image.ts';
import type { ManifestSet } from './lint.ts';

/** Where manifests are read that a text names. */
interface ManifestAccess {
  /** The architecture and the repository of a release that is named by its version. */
  readonly arch: Architecture;
  readonly repository: string;
  /** Returns the repository of a release image in its registry. */
  readonly sourceOf: (reference: Reference) => ContentSource;
  /** Of this process, for the target `-`. */
  readonly stdin: AsyncIterable<Buffer>;
}

/** Files that are manifests, units or scripts. */
const manifestPattern = /(?:^|\/)image-references$|\.(?:ya?ml|json|ign|bu|sh|bash|service|container|kube)$/;

/** A manifest in a release has less than a megabyte. All together are 10 MB. */
const limits = { file: 16 * 1024 * 1024, all: 256 * 1024 * 1024, files: 20_000 };

/**
 * Reads the manifests of a release in a registry, of each release and operator of a bundle, of a mirror directory, a
 * folder, a file, or `-`. Signatures are not checked. Throws `not-found` for a text that names none of them, what
 * opening it throws, and `too-large`.
 */
export async function readManifestSets(
  target: string,
  access: ManifestAccess,
  context: Context,
): Promise<readonly ManifestSet[]> {
  if (target === '-') return [oneFile(target, 'standard input.yaml', await readSmallInput(access.stdin, limits.file))];
  const stats = await stat(target).catch((error: unknown) => {
    if (isMissing(error)) return undefined;
    throw new PluginError('not-readable', `${target} cannot be read: ${messageOf(error)}`, { cause: error });
  });
  if (!stats && !parseVolumeName(target)) return [await readRegistry(requestOf(target, access), access, context)];
  if (stats?.isDirectory() && !(await holdsBundle(target))) return [await readFolder(target, context)];
  if (stats && !stats.isDirectory() && (manifestPattern.test(target) || stats.isFIFO()))
    return [{ ...oneFile(target, basename(target), await readSmallFile(target, limits.file)), root: dirname(target) }];
  return readBundle(target, context);
}

function requestOf(target: string, { arch, repository }: ManifestAccess): ReleaseRequest {
  if (isVersion(target)) return { version: target, arch, repository };
  if (/^[^/\s]+\/\S+[:@]\S+$/.test(target)) return { image: target };
  throw new PluginError('not-found', `there is no ${target}`, {
    hint: 'Name a version, a release image, a bundle, a folder or a file, or - for the standard input.',
  });
}

async function readRegistry(request: ReleaseRequest, access: ManifestAccess, context: Context): Promise<ManifestSet> {
  const { reference, descriptor, source } = await findRelease(request, access.sourceOf);
  return readRelease(
    'version' in request ? request.version : request.image,
    formatReference(reference),
    source,
    descriptor,
    context,
  );
}

async function readBundle(path: string, context: Context): Promise<ManifestSet[]> {
  await using bundle = await openBundle(path, context);
  const { content, metadata } = bundle;
  const sets: ManifestSet[] = [];
  for (const { release } of splitReleases(metadata)) {
    const descriptor = await content.resolve(parseReference(release).digest ?? '');
    sets.push(await readRelease(path, release, content, descriptor, context));
  }
  for (const { name, files } of await readOperatorManifests(bundle, context)) {
    sets.push({
      name: path,
      folder: `operators/${name}`,
      files: new Map([...files].map(([file, bytes]) => [file, decodeFile(bytes)])),
    });
  }
  return sets;
}

async function readRelease(
  name: string,
  release: string,
  source: ContentSource,
  descriptor: Descriptor,
  context: Context,
): Promise<ManifestSet> {
  return payloadSet(name, release, await readPayloadManifests(source, descriptor, context), context);
}

/**
 * Makes a set of the files of a payload, with the objects that self-managed clusters with a feature set have. `release`
 * is the release image by digest.
 */
export function payloadSet(
  name: string,
  release: string,
  files: PayloadFiles,
  context: Context,
  featureSet = 'Default',
): ManifestSet {
  const list = files.get(imageReferences)?.toString('utf8');
  const { version = '' } = readReleaseImages(list === undefined ? [] : [list], release) ?? {};
  const filter = makeManifestFilter(files, version, context, featureSet);
  return { name, release, filter, files: new Map([...files].map(([file, bytes]) => [file, decodeFile(bytes)])) };
}

/**
 * Reads the files of a folder, at any depth, sorted by path. Links are not followed, and hidden folders are left out.
 */
async function readFolder(path: string, context: Context): Promise<ManifestSet> {
  const folder = new RootFolder(path);
  const entries = await folder.tree(context.signal, '', { depth: 32, entries: 100_000 });
  const names = entries.filter(
    ({ path: name, stats }) => stats.isFile() && manifestPattern.test(name) && !/(?:^|\/)\./.test(name),
  );
  if (names.length > limits.files)
    throw new PluginError('too-large', `${path} has more than ${limits.files} manifests`);
  if (names.length === 0) {
    throw new PluginError('not-found', `${path} has no manifests`, {
      hint: 'Name a folder with YAML or JSON files, a mirror directory, or a bundle.',
    });
  }
  const files = new Map<string, string | { unreadable: string }>();
  let size = 0;
  for (const { path: name } of names) {
    checkInterrupted(context.signal);
    const content = await folder.read(name, limits.file).then(decodeFile, describeFailure);
    size += typeof content === 'string' ? content.length : 0;
    if (size > limits.all) throw new PluginError('too-large', `${path} has more than 256 MiB of manifests`);
    files.set(name, content);
  }
  return { name: path, root: path, files };
}

function oneFile(name: string, file: string, bytes: Buffer): ManifestSet {
  return { name, files: new Map([[file, decodeFile(bytes)]]) };
}

function decodeFile(bytes: Buffer): string | { unreadable: string } {
  return isUtf8(bytes) ? bytes.toString('utf8') : { unreadable: 'it is not text' };
}

function describeFailure(error: unknown): { unreadable: string } {
  return { unreadable: asFailure(error).message };
}

/** Whether a folder is a mirror directory, or has the volumes of a bundle. */
async function holdsBundle(path: string): Promise<boolean> {
  const entries = await new RootFolder(path).list();
  return entries.some(
    ({ path: name, stats }) => (name === 'v2' && stats.isDirectory()) || parseVolumeName(name) !== undefined,
  );
}

/** The labels of an operator’s bundle image: the folder of its manifests, and its package (operator-registry). */
const labels = {
  folder: 'operators.operatorframework.io.bundle.manifests.v1',
  package: 'operators.operatorframework.io.bundle.package.v1',
} as const;

// Real bundle images have less than 1 MB. A ClusterServiceVersion is limited by etcd.
const operatorLimits = { file: 16 * 1024 * 1024, packed: 256 * 1024 * 1024, unpacked: 1024 * 1024 * 1024 } as const;

/** The manifests of an operator, by the names of their files. */
interface OperatorManifests {
  /** The name of its package, and the first digits of the digest of its bundle image. */
  readonly name: string;
  readonly files: ReadonlyMap<string, Buffer>;
}

/**
 * Reads the manifests of the operators whose bundle images are among the extra images of a bundle. Skips images that it
 * does not have completely, with a warning. Throws `interrupted`.
 */
async function readOperatorManifests(
  { content, metadata }: Pick<Bundle, 'content' | 'metadata'>,
  context: Context,
): Promise<OperatorManifests[]> {
  const operators: OperatorManifests[] = [];
  for (const image of metadata.extraImages) {
    try {
      const operator = await readOperator(content, parseReference(image).digest ?? '', context);
      if (operator) operators.push(operator);
    } catch (error) {
      if (isPluginError(error, 'interrupted') || !(isPluginError(error) || error instanceof SyntaxError)) throw error;
      context.log('warn', `${image} is not checked: ${error.message}`);
    }
  }
  return operators;
}

async function readOperator(
  content: Bundle['content'],
  digest: string,
  context: Context,
): Promise<OperatorManifests | undefined> {
  const root = await content.resolve(digest);
  const where = `${root.digest} in ${content.name}`;
  const manifest = parseManifest(await readContent(content, root), where);
  // Bundle images run on no architecture, so they are no lists.
  if (isIndex(manifest) || !manifest.config) return undefined;
  const config = parseJson((await readContent(content, manifest.config)).toString());
  const { [labels.folder]: label, [labels.package]: owner } = fieldsAt(config, 'config', 'Labels');
  const folder = textOf(label)?.replace(/^\/+|\/+$/g, '');
  if (folder === undefined) return undefined;
  const files = new Map<string, Buffer>();
  for (const layer of manifest.layers) {
    const options = { ...operatorLimits, of: 'the bundle of an operator', code: 'invalid-file' } as const;
    await readLayer(content, layer, options, context, (entry) => {
      const path = entry.path.replace(/^(?:\.?\/)+/, '');
      if (!path.startsWith(`${folder}/`) || !/\.(?:ya?ml|json)$/.test(path) || !isFile(entry)) return undefined;
      if (entry.size > operatorLimits.file) throw new PluginError('too-large', `${path} in ${where} is too large`);
      const chunks: Buffer[] = [];
      return {
        write: (chunk) => chunks.push(chunk),
        end: () => files.set(posix.basename(path), Buffer.concat(chunks)),
      };
    });
  }
  return { name: `${textOf(owner) ?? 'operator'}-${root.digest.slice(7, 19)}`, files };
}
