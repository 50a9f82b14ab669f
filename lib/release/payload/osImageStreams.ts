import { isFile, readLayer } from '#content/archive';
import { isIndex, type Manifest, parseReference, type Reference, parseJson } from '#content/oci';
import { readContent, readImageManifest, type ContentSource } from '#content/store';
import type { Context } from '#context';
import { asFailure, PluginError } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf, textsOf, type Fields } from '#fields';
import { readPayloadManifests, type Release } from '../release.ts';
import { majorOf } from '../version.ts';
import { readFeatureSets, readImageReferences } from './metadata.ts';
import type { PayloadFiles } from './payload.ts';

/** An operating system for nodes with its extensions, by digest: an entry of `status.availableStreams`. */
export interface OSImageStreamSet {
  /** The stream: `rhel-9`. */
  readonly name: string;
  readonly osImage: string;
  readonly osExtensionsImage: string;
}

/**
 * Where the commit was read. `executable`: machine-config-controller has it; `image`: the variable SOURCE_GIT_COMMIT of
 * the machine-config-operator image, which its build took, or else the label; `payload`: image-references only.
 */
type CommitSource = 'executable' | 'image' | 'payload' | 'unknown';

/** The operating system streams that machine-config-controller of a release must find described in its cluster. */
export interface OSImageStreams {
  readonly version: string;
  /** The feature sets of clusters with which it waits for them. */
  readonly featureSets: readonly string[];
  /** The commit that machine-config-operator was built from, which it compares; undefined if it is unknown. */
  readonly commit?: string;
  readonly commitSource: CommitSource;
  /** The complete streams, sorted by name as machine-config-controller sorts them. */
  readonly availableStreams: readonly OSImageStreamSet[];
  /** Why they cannot be described: each is a blocker for an update without a registry. */
  readonly problems: readonly string[];
}

/** Options for reading operating system streams. */
export interface StreamOptions {
  /** Read the commit from the executable too, if its layer is there. */
  readonly executable?: boolean;
}

/** The content of the images of a release. */
type ReleaseContent = (reference: Reference) => ContentSource;

const labels = {
  stream: 'io.openshift.os.streamclass',
  bootc: 'containers.bootc',
  extensions: 'io.openshift.os.extensions',
  commit: 'io.openshift.build.commit.id',
} as const;
const operator = 'machine-config-operator';
const systemTag = /^(?:rhel|stream)[a-zA-Z0-9.-]*-coreos[a-zA-Z0-9.-]*(?:-extensions[a-zA-Z0-9.-]*)?$/;
/** Returns whether readOSImageStreams reads the configuration of a component, by its name after that of the release. */
export function isReadForStreams(name: string): boolean {
  const component = name.split('/').at(-1) ?? '';
  return component === operator || systemTag.test(component);
}

const systemSource = 'github.com/openshift/os';
const commitHash = /^[0-9a-f]{7,64}$/;
// A label becomes a name in the API (RFC 1123), and part of messages.
const streamName = /^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/;

/**
 * Reads the operating system streams of a release, by the rules of machine-config-controller (openshift
 * machine-config-operator d20efd9b9, pkg/osimagestream). `files` are those of its payload. Reads the manifests and
 * configurations of the operating system images and of machine-config-operator. With `executable`, also reads the
 * layers of the latter for the commit, which takes seconds. Undefined if no cluster with this release needs the
 * streams. Content that is missing or malformed becomes a problem. Throws the errors of readImageReferences, and
 * `interrupted`.
 */
export async function readOSImageStreams(
  files: PayloadFiles,
  version: string,
  sourceOf: ReleaseContent,
  context: Context,
  { executable = false }: StreamOptions = {},
): Promise<OSImageStreams | undefined> {
  const featureSets = readFeatureSets(files, version, 'OSImageStream', context) ?? [];
  if (featureSets.length === 0) return undefined;
  const { images } = readImageReferences(files, `the release ${version}`);
  const problems: string[] = [];
  const read = async (name: string, pullspec: string): Promise<ImageConfig | undefined> => {
    try {
      return await readConfig(pullspec, sourceOf);
    } catch (error) {
      if (!(error instanceof Error) || context.signal.aborted) throw error;
      problems.push(`the labels of ${name} cannot be read: ${error.message}`);
      return undefined;
    }
  };
  const streams = new Map<string, { os: Set<string>; extensions: Set<string> }>();
  for (const { name, isSystem, isSource } of listTags(files)) {
    const pullspec = images.get(name)?.pullspec;
    if ((!isSystem && !isSource) || pullspec === undefined) continue;
    const config = await read(name, pullspec);
    const role = config && readRole(config.labels);
    if (!role) {
      // The source is that of several repositories, also of images without an operating system.
      if (config && isSystem) problems.push(`${name} has no label ${labels.stream} of an operating system stream`);
      continue;
    }
    const stream = streams.get(role.stream) ?? { os: new Set(), extensions: new Set() };
    stream[role.kind].add(pullspec);
    streams.set(role.stream, stream);
  }
  const availableStreams = [...streams]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([name, { os, extensions }]) => {
      const [[osImage], [osExtensionsImage]] = [os, extensions];
      if (os.size > 1 || extensions.size > 1) problems.push(`the stream ${name} has several images of one kind`);
      if (osImage === undefined) problems.push(`the stream ${name} has no operating system image`);
      if (osExtensionsImage === undefined) problems.push(`the stream ${name} has no extensions image`);
      return osImage === undefined || osExtensionsImage === undefined ? [] : [{ name, osImage, osExtensionsImage }];
    });
  if (streams.size === 0) problems.push('no image of the release has the labels of an operating system stream');
  const image = images.get(operator);
  const config = image && (await read(operator, image.pullspec));
  const stated = listTags(files).find(({ name }) => name === operator)?.commit;
  const built = executable && config ? await readExecutable(config, stated, context) : undefined;
  const { commit, commitSource, problem } = chooseCommit(stated, config, built);
  if (problem !== undefined) problems.push(problem);
  return { version, featureSets, commit, commitSource, availableStreams, problems };
}

/** Lists the pullspecs of the operating systems in streams, each with that of its extensions. */
export function listSystemImages({ availableStreams }: Pick<OSImageStreams, 'availableStreams'>): string[] {
  return availableStreams.flatMap(({ osImage, osExtensionsImage }) => [osImage, osExtensionsImage]);
}

/** Returns whether clusters with a feature set must find these streams described. */
export function needsStreams(
  streams: OSImageStreams | undefined,
  featureSet: string | undefined,
): streams is OSImageStreams {
  return streams?.featureSets.includes(featureSet ?? 'Default') === true;
}

/** Reads the same for a release that is read already. Reads its payload again only if a cluster needs the streams. */
export async function readStreamsOf(
  { descriptor, version, reference, streamsIn = [] }: Release,
  sourceOf: ReleaseContent,
  context: Context,
  options: StreamOptions = {},
): Promise<OSImageStreams | undefined> {
  if (streamsIn.length === 0) return undefined;
  const files = await readPayloadManifests(sourceOf(reference), descriptor, context);
  return readOSImageStreams(files, version, sourceOf, context, options);
}

interface Tag {
  readonly name: string;
  /** The name is that of an operating system image or of extensions. */
  readonly isSystem: boolean;
  /** It is built from the source of the operating system. */
  readonly isSource: boolean;
  readonly commit: string | undefined;
}

function listTags(files: PayloadFiles): Tag[] {
  const references = parseJson(files.get('image-references')?.toString('utf8') ?? '{}');
  return listOf(fieldsAt(references, 'spec')['tags']).map((tag) => {
    const { name } = tag;
    const noted = fieldsOf(tag['annotations']);
    const isSource = textOf(noted['io.openshift.build.source-location'])?.includes(systemSource) === true;
    const commit = textOf(noted[labels.commit]);
    return { name: String(name), isSystem: systemTag.test(String(name)), isSource, commit };
  });
}

/** The labels and variables of an image. */
interface ImageConfig {
  readonly labels: Fields;
  readonly variables: readonly string[];
  readonly source: ContentSource;
  readonly manifest: Manifest;
}

/** Of a manifest list, the image for amd64 or the first: the labels are those of the release, not of a platform. */
async function readConfig(pullspec: string, sourceOf: ReleaseContent): Promise<ImageConfig> {
  const reference = parseReference(pullspec);
  const source = sourceOf(reference);
  const root = await readImageManifest(source, await source.resolve(reference.digest ?? ''));
  const child = root.manifests.find(({ platform }) => platform?.architecture === 'amd64') ?? root.manifests[0];
  const manifest = isIndex(root) && child ? await readImageManifest(source, child) : root;
  const { config } = manifest;
  if (!config) throw new PluginError('invalid-manifest', `${pullspec} has no configuration`);
  const { Labels, Env } = fieldsAt(parseJson((await readContent(source, config)).toString('utf8')), 'config');
  return { labels: fieldsOf(Labels), variables: textsOf(Env), source, manifest };
}

function readRole(own: Fields): { readonly stream: string; readonly kind: 'os' | 'extensions' } | undefined {
  const stream = textOf(own[labels.stream]);
  if (stream === undefined || !streamName.test(stream)) return undefined;
  const [bootc, extensions] = [labels.bootc, labels.extensions].map((name) => String(own[name]).toLowerCase());
  if (bootc === 'true' || bootc === '1') return { stream, kind: 'os' };
  return extensions === 'true' ? { stream, kind: 'extensions' } : undefined;
}

/** Returns the commits that the image and the payload state, the surest first. */
function listCommits(stated: string | undefined, config: ImageConfig | undefined): readonly [own: string[], string[]] {
  // The build takes the variable, which the image keeps; the label and the payload repeat it.
  const prefix = 'SOURCE_GIT_COMMIT=';
  const variable = config?.variables.findLast((each) => each.startsWith(prefix))?.slice(prefix.length);
  const valid = (...commits: (string | undefined)[]): string[] =>
    commits.flatMap((each) => (each !== undefined && commitHash.test(each) ? [each] : []));
  const own = valid(variable, textOf(config?.labels[labels.commit]));
  return [own, [...new Set([...own, ...valid(stated)])]];
}

/** A delta bundle may lack the layer, and the labels are enough then. */
async function readExecutable(
  config: ImageConfig,
  stated: string | undefined,
  context: Context,
): Promise<BuiltCommit | undefined> {
  try {
    return await readBuiltCommit(config.source, config.manifest, listCommits(stated, config)[1], context);
  } catch (error) {
    context.log('debug', `the executable of ${operator} cannot be read: ${asFailure(error).message}`);
    return undefined;
  }
}

function chooseCommit(
  stated: string | undefined,
  config: ImageConfig | undefined,
  built: BuiltCommit | undefined,
): Pick<OSImageStreams, 'commit' | 'commitSource'> & { readonly problem?: string } {
  const [own, commits] = listCommits(stated, config);
  const [commit] = commits;
  const proven = built?.set ?? (built?.present.length === 1 ? built.present[0] : undefined);
  if (proven !== undefined) return { commit: proven, commitSource: 'executable' };
  const unknown = (problem: string) => ({ commitSource: 'unknown', problem }) as const;
  if (commit === undefined) return unknown(`the commit that ${operator} was built from is unknown`);
  if (commits.length > 1)
    return unknown(`${operator} names several commits that it was built from: ${commits.join(', ')}`);
  if (built) return unknown(`the executable of ${operator} does not have its commit ${commit}`);
  return { commit, commitSource: own.includes(commit) ? 'image' : 'payload' };
}

const executable = /^(?:\.?\/)*usr\/bin\/machine-config-controller$/;
const setting = Buffer.from('machine-config-operator/pkg/version.Hash=');
const commitStart = /^[0-9a-f]{7,64}/;
// Real sizes: 100 MB for each of five executables in one layer, which has 200 MB packed.
const limits = { packed: 2 ** 30, unpacked: 2 ** 32, of: 'an executable', code: 'invalid-manifest' } as const;

/** The commits in the executable machine-config-controller of an image. */
interface BuiltCommit {
  /** The commit that its build settings name. Undefined if the build left the settings out (`-trimpath`). */
  readonly set: string | undefined;
  /** The stated commits that stand anywhere in it. */
  readonly present: readonly string[];
}

/**
 * Reads the commit that machine-config-controller compares from its executable in an image, from the last layer down.
 * Reads the build settings that Go keeps in it, and searches for the stated commits. Undefined if no layer has it.
 * Throws the errors of reading a layer.
 */
async function readBuiltCommit(
  source: ContentSource,
  { layers }: Manifest,
  stated: readonly string[],
  context: Context,
): Promise<BuiltCommit | undefined> {
  for (const layer of layers.toReversed()) {
    const texts = [setting, ...stated.map((commit) => Buffer.from(commit))];
    const searches: Search[] = [];
    await readLayer(source, layer, limits, context, (entry) => {
      if (!executable.test(entry.path) || !isFile(entry)) return undefined;
      const search = new Search(texts);
      searches.push(search);
      return search;
    });
    const [search] = searches;
    if (!search) continue;
    const set = commitStart.exec(search.found.get(setting)?.toString('latin1') ?? '')?.[0];
    return { set, present: stated.filter((_, index) => search.found.has(texts[index + 1] ?? setting)) };
  }
  return undefined;
}

/** Searches a stream of bytes for texts, and keeps what follows the first occurrence of each. */
class Search {
  /** The 64 bytes after each text, by the text. */
  readonly found = new Map<Buffer, Buffer>();
  readonly #wanted: readonly Buffer[];
  #tail = Buffer.alloc(0);

  constructor(texts: readonly Buffer[]) {
    this.#wanted = texts;
  }

  write(chunk: Buffer): void {
    // A text and what follows it are shorter than the tail, so none is lost between two chunks.
    const bytes = Buffer.concat([this.#tail, chunk]);
    this.#find(bytes, bytes.length - 64);
    this.#tail = Buffer.from(bytes.subarray(-256));
  }

  end(): void {
    this.#find(this.#tail, this.#tail.length);
  }

  /** Finds texts that end before a place. */
  #find(bytes: Buffer, before: number): void {
    for (const text of this.#wanted) {
      const end = bytes.indexOf(text) + text.length;
      if (end >= text.length && end <= before && !this.found.has(text)) {
        this.found.set(text, Buffer.from(bytes.subarray(end, end + 64)));
      }
    }
  }
}

/** What decides the default stream in a cluster. */
interface StreamCluster {
  /** The version that the cluster was installed with, by installedVersionOf; undefined if it is unknown. */
  readonly installedVersion?: string;
  /** The OSImageStream `cluster`, if there is one. */
  readonly existing?: Fields;
}

/** The annotations that say what an OSImageStream is for. */
export const streamAnnotations = {
  version: 'machineconfiguration.openshift.io/release-image-version',
  payload: 'machineconfiguration.openshift.io/release-payload-image',
} as const;

/** An OSImageStream of machineconfiguration.openshift.io/v1, as machine-config-controller makes it. */
export type OSImageStream = Readonly<StreamObject>;

interface StreamObject {
  readonly apiVersion: 'machineconfiguration.openshift.io/v1';
  readonly kind: 'OSImageStream';
  readonly metadata: { readonly name: string; readonly annotations: Readonly<Record<string, string>> };
  readonly spec: { readonly defaultStream: string };
  readonly status: { readonly availableStreams: readonly OSImageStreamSet[]; readonly defaultStream: string };
}

/**
 * Formats the OSImageStream that machine-config-controller makes from these streams for a release image, which is
 * `status.desired.image` of ClusterVersion. Keeps the default stream of an existing object. Throws `not-ready` if there
 * are problems, or if the streams lack the default of the cluster.
 */
export function formatOSImageStream(
  streams: OSImageStreams,
  releaseImage: string,
  cluster: StreamCluster = {},
): OSImageStream {
  const { commit, version, availableStreams, problems } = streams;
  const [problem] = problems;
  if (problem !== undefined || commit === undefined) {
    const why = problem ?? 'its commit is unknown';
    throw new PluginError('not-ready', `the operating system streams of ${version} cannot be described: ${why}`, {
      hint: noStreamsAdvice,
    });
  }
  const defaultStream = chooseDefaultStream(streams, cluster);
  return {
    apiVersion: 'machineconfiguration.openshift.io/v1',
    kind: 'OSImageStream',
    metadata: {
      name: 'cluster',
      annotations: { [streamAnnotations.version]: commit, [streamAnnotations.payload]: releaseImage },
    },
    spec: { defaultStream },
    status: { availableStreams, defaultStream },
  };
}

/** What to do if the streams of a release cannot be described in the cluster. */
export const noStreamsAdvice =
  'Give the cluster a mirror with the release image and all operating system images, or use another release.';

/** What an OSImageStream is for, as machine-config-controller compares it. */
interface StreamTarget {
  readonly commit: string | undefined;
  readonly releaseImage: string | undefined;
}

/** Reads from its annotations what an OSImageStream is for. A value is undefined if it is missing. */
export function readStreamTarget(object: Fields | undefined): StreamTarget {
  const noted = fieldsAt(object, 'metadata', 'annotations');
  return { commit: textOf(noted[streamAnnotations.version]), releaseImage: textOf(noted[streamAnnotations.payload]) };
}

/**
 * Returns the version that a cluster was installed with, by its ClusterVersion: the completed update that is oldest, or
 * during the installation the desired one.
 */
export function installedVersionOf(clusterVersion: Fields): string | undefined {
  const { history, desired } = fieldsOf(clusterVersion['status']);
  const completed = listOf(history)
    .filter(({ state, completionTime }) => state === 'Completed' && textOf(completionTime) !== undefined)
    .sort((a, b) => Date.parse(String(a['completionTime'])) - Date.parse(String(b['completionTime'])));
  return textOf((completed[0] ?? fieldsOf(desired))['version']);
}

function chooseDefaultStream({ version, availableStreams }: OSImageStreams, cluster: StreamCluster): string {
  const names = availableStreams.map(({ name }) => name);
  const { spec, status } = cluster.existing ?? {};
  const kept = textOf(fieldsOf(spec)['defaultStream']) ?? textOf(fieldsOf(status)['defaultStream']);
  const [only] = names;
  const chosen = kept ?? (only !== undefined && names.length === 1 ? only : builtinDefault(names, version, cluster));
  if (names.includes(chosen)) return chosen;
  const which = `${version} has no operating system stream ${chosen}, the default of the cluster`;
  throw new PluginError('not-ready', `${which}; it has ${names.join(', ')}`, {
    hint: 'Set spec.defaultStream of the OSImageStream “cluster” to one of them.',
  });
}

/** OKD has no RHEL. Clusters that were installed with OpenShift 4 keep RHEL 9. */
function builtinDefault(names: readonly string[], version: string, { installedVersion }: StreamCluster): string {
  if (!names.some((name) => name.startsWith('rhel-'))) return 'centos-10';
  return (majorOf(installedVersion ?? '') || majorOf(version)) === 4 ? 'rhel-9' : 'rhel-10';
}
