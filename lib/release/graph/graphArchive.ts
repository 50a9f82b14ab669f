import { resolve } from 'node:path';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { createGunzip } from 'node:zlib';
import { Parser, type ReadEntry } from 'tar';
import { makeLayer } from '#content/archive';
import { readSmallFile } from '#content/files';
import { formatUrl, type FetchFile } from '#content/http';
import { hexOf, type Digest } from '#content/oci';
import { deriveImage, type BaseImage, type DerivedImage, type Layer } from '#content/store';
import type { Context } from '#context';
import { isPluginError, messageOf, PluginError } from '#errors';

/** The URL of the graph data of all releases, a gzipped tar. */
const publicGraphData = 'https://api.openshift.com/api/upgrades_info/graph-data';

/** The files of a graph-data archive by their paths in it: `version`, `channels/stable-4.12.yaml`. */
export type GraphData = ReadonlyMap<string, Buffer>;

// The published archive has 1 MB compressed, 3000 files, and 5 MB of tar.
const archiveLimit = 64 * 1024 * 1024;
const tarLimit = 256 * 1024 * 1024;
const entryLimit = 50_000;
const depthLimit = 16;
const pathLimit = 512;

/** The files that the update service reads in addition to `version` and `channels`, and needs to start. */
const expected = ['blocked-edges/', 'raw/metadata.json'];

/**
 * The paths that an update service reads, or keeps from an archive of the repository, below the root. The repository
 * has more, such as scripts and a symbolic link (openshift/cincinnati-graph-data 731d0424). Sources:
 * `DEFAULT_OUTPUT_ALLOWLIST` of github_openshift_secondary_metadata_scraper, and metadata-helper, in
 * openshift/cincinnati (49c914f8).
 */
const usedPath = /^(?:LICENSE|version|channels|blocked-edges|raw|signatures)(?=\/|$)/;

/**
 * Gets a graph-data archive from a path, or from a file or http(s) URL. Throws `not-readable`, `not-found`, `too-large`
 * above 64 MiB, `usage` for another protocol, and the errors of `fetchFile`.
 */
export async function fetchGraphData(
  location: string,
  fetchFile: FetchFile,
): Promise<{ bytes: Buffer; /** The location, safe for messages. */ where: string }> {
  const url = /^[a-z][a-z0-9+.-]+:/i.test(location) && URL.canParse(location) ? new URL(location) : undefined;
  if (!url) return readArchive(resolve(location));
  if (url.protocol === 'file:' && url.host === '') return readArchive(fileURLToPath(url));
  if (!/^https?:$/.test(url.protocol)) {
    throw new PluginError('usage', `${url.protocol}//${url.host}/… cannot be the address of a graph-data archive`, {
      hint: `Give the path of a tar, a URL such as file:///home/me/graph-data.tar.gz, or ${publicGraphData}.`,
    });
  }
  const bytes = await fetchFile(url, archiveLimit);
  if (bytes) return { bytes, where: formatUrl(url) };
  throw new PluginError('not-found', `${formatUrl(url)} has no graph data`, {
    hint: `All graph data is at ${publicGraphData}.`,
  });
}

/**
 * Reads a tar of graph data, gzipped or not. Returns the files that an update service reads by path, sorted, without
 * the single top folder that archives of repositories have. These must be only files and folders, with a `version` of
 * schema 1 and a channel. Calls `warn` for other missing files. Throws `invalid-file`, and `too-large` above the
 * limits. `where` is for messages.
 */
export async function readGraphData(
  archive: Buffer,
  where: string,
  warn: (message: string) => void,
): Promise<GraphData> {
  const files = await unpack(archive, where);
  const version = files.get('version')?.toString('utf8').trim();
  if (version === undefined) throw invalid(where, 'it has no file “version”');
  if (!/^1\.\d+\.\d+$/.test(version)) {
    throw invalid(where, `its schema version is “${version.slice(0, 50)}”, and only 1 is known`);
  }
  const has = (prefix: string): boolean => [...files.keys()].some((path) => path.startsWith(prefix));
  if (!has('channels/')) throw invalid(where, 'it has no channels');
  for (const path of expected) {
    if (!has(path)) warn(`${where} has no ${path}: the update service may refuse it`);
  }
  return new Map([...files].sort(([a], [b]) => (a < b ? -1 : 1)));
}

async function readArchive(path: string): Promise<{ bytes: Buffer; where: string }> {
  try {
    return { bytes: await readSmallFile(path, archiveLimit), where: path };
  } catch (cause) {
    if (isPluginError(cause, 'too-large')) throw cause;
    throw new PluginError('not-readable', `the graph data cannot be read: ${messageOf(cause)}`, { cause });
  }
}

async function unpack(archive: Buffer, where: string): Promise<ReadonlyMap<string, Buffer>> {
  const files = new Map<string, Buffer>();
  // Links and devices, with their types. They are refused only where the update service reads.
  const others = new Map<string, string>();
  let entries = 0;
  let problem: PluginError | undefined;
  const check = (): void => {
    if (problem) throw problem;
  };
  const readEntry = (entry: ReadEntry): void => {
    // Without the lookbehind, a run of slashes would take quadratic time.
    const path = entry.path.replace(/^(?:\.\/)+/, '').replace(/(?<!\/)\/+$/, '');
    problem ??= checkPath(entry, path, where);
    if (++entries > entryLimit) problem ??= tooLarge(where, `more than ${entryLimit} entries`);
    if (files.has(path) || others.has(path)) problem ??= invalid(where, `it has ${quote(path)} twice`);
    const isFile = ['File', 'OldFile', 'ContiguousFile'].includes(entry.type);
    if (!isFile && entry.type !== 'Directory') others.set(path, entry.type);
    if (problem || !isFile) {
      entry.resume();
      return;
    }
    const chunks: Buffer[] = [];
    files.set(path, Buffer.alloc(0));
    entry.on('data', (chunk) => chunks.push(chunk));
    entry.on('end', () => files.set(path, Buffer.concat(chunks)));
  };
  const parser = new Parser({
    onReadEntry: readEntry,
    onwarn: (code, message) => {
      if (code !== 'TAR_ENTRY_INFO') problem ??= invalid(where, messageOf(message));
    },
  });
  parser.on('error', (cause: unknown) => (problem ??= invalid(where, messageOf(cause), cause)));
  let length = 0;
  let ended = false as boolean;
  parser.on('eof', () => (ended = true));
  try {
    for await (const chunk of inflate(archive)) {
      // The parser would decompress data that is compressed twice, to any size.
      if (length === 0 && !isTar(chunk)) throw invalid(where, 'it is not a tar, nor a gzipped one');
      length += chunk.length;
      if (length > tarLimit) throw tooLarge(where, `more than ${tarLimit} bytes when it is unpacked`);
      // The parser is slow on data after the end.
      if (!ended) parser.write(chunk);
      check();
    }
  } catch (cause) {
    throw isPluginError(cause) ? cause : invalid(where, messageOf(cause), cause);
  }
  const closed = new Promise<void>((done) => parser.once('close', done).once('error', () => done()));
  parser.end();
  await closed;
  check();
  checkFolders(files, where);
  return chooseFiles(files, others, where);
}

function inflate(archive: Buffer): AsyncIterable<Buffer> {
  const bytes = Readable.from([archive]);
  const packed = archive[0] === 0x1f && archive[1] === 0x8b;
  return packed ? bytes.pipe(createGunzip()) : bytes;
}

/** Returns whether bytes begin with a ustar header. No compressed format begins like that. */
function isTar(start: Buffer): boolean {
  return start.toString('latin1', 257, 262) === 'ustar';
}

function checkPath({ type }: ReadEntry, path: string, where: string): PluginError | undefined {
  if (path === '' || path === '.')
    return type === 'Directory' ? undefined : invalid(where, 'it has a file without a name');
  const parts = path.split('/');
  if (parts.some((part) => part === '' || part === '.' || part === '..' || /[\u0000-\u001f\u007f\\]/.test(part))) {
    return invalid(where, `${quote(path)} is not a path below its root`);
  }
  if (parts.length > depthLimit || Buffer.byteLength(path) > pathLimit) {
    return invalid(where, `it has a path that is too long: ${quote(path)}`);
  }
  return undefined;
}

function checkFolders(files: ReadonlyMap<string, Buffer>, where: string): void {
  for (const path of files.keys()) {
    for (let slash = path.indexOf('/'); slash >= 0; slash = path.indexOf('/', slash + 1)) {
      const folder = path.slice(0, slash);
      if (files.has(folder)) throw invalid(where, `${quote(folder)} is a file and a folder`);
    }
  }
}

/** Returns the files that count, by their paths below the root. */
function chooseFiles(
  files: ReadonlyMap<string, Buffer>,
  others: ReadonlyMap<string, string>,
  where: string,
): ReadonlyMap<string, Buffer> {
  const roots = new Set([...files.keys(), ...others.keys()].map((path) => path.slice(0, path.indexOf('/') + 1)));
  const [first = ''] = roots;
  const root = roots.size === 1 && files.has(`${first}version`) ? first : '';
  const counts = (path: string): boolean => path.startsWith(root) && usedPath.test(path.slice(root.length));
  for (const [path, type] of others) {
    if (counts(path)) throw invalid(where, `${quote(path)} is neither a file nor a folder (${type})`);
  }
  return new Map([...files].flatMap(([path, bytes]) => (counts(path) ? [[path.slice(root.length), bytes]] : [])));
}

function quote(path: string): string {
  return JSON.stringify(path.slice(0, 200));
}

function tooLarge(where: string, what: string): PluginError {
  return new PluginError('too-large', `${where} has ${what}: it is not graph data`);
}

function invalid(where: string, why: string, cause?: unknown): PluginError {
  return new PluginError('invalid-file', `${where} is not a graph-data archive: ${why}`, {
    hint: `Graph data is published at ${publicGraphData}.`,
    cause,
  });
}

/** The content of a graph-data image. */
interface GraphDataOptions {
  /** The graph-data archive: its bytes, a path, or a file or http(s) URL. */
  readonly archive: Buffer | string;
  /** Release signatures that the update service serves, by the digests of the releases. */
  readonly signatures: ReleaseSignatures;
  /**
   * The base of the image: an image or a manifest list, with `/bin/bash` and `cp`, because the update service runs it
   * to copy the data. The `cli` image of a release is always available.
   */
  readonly base: BaseImage;
  readonly fetchFile: FetchFile;
}

/** The folder of the data in a graph-data image, from the root. */
const graphDataFolder = 'var/lib/cincinnati-graph-data';

// The operator mounts here the volume that the update service reads (cincinnati-operator,
// `newGraphDataInitContainer`).
const command = ['/bin/bash', '-c', `exec cp -rp /${graphDataFolder}/* /var/lib/cincinnati/graph-data`];

/**
 * Builds the image with the graph data for an update service in a cluster, and release signatures as
 * `signatures/sha256/<hex>/signature-N`. It is one layer on the base, for each architecture of the base. The same
 * inputs give the same bytes on every machine. Throws the errors of `fetchGraphData` and `readGraphData`,
 * `invalid-manifest` for an unusable base, and the errors of its source.
 */
export async function buildGraphDataImage(options: GraphDataOptions, context: Context): Promise<DerivedImage> {
  const { archive, signatures, base, fetchFile } = options;
  const { bytes, where } =
    typeof archive === 'string'
      ? await fetchGraphData(archive, fetchFile)
      : { bytes: archive, where: 'the given archive' };
  const data = await readGraphData(bytes, where, (message) => context.log('warn', message));
  const layer = makeGraphLayer(data, signatures);
  context.log('debug', `graph data: ${data.size} files, a layer of ${layer.bytes.length} bytes`);
  return deriveImage(base, {
    what: 'the graph-data image',
    layer,
    createdBy: 'graph data',
    // No entrypoint of the base: it would get the command as its arguments.
    configure: ({ Env = [] }) => ({ Env, Cmd: command }),
    hint: 'Build it on an image for linux that has bash and cp, such as the cli image of a release.',
  });
}

type ReleaseSignatures = ReadonlyMap<Digest, readonly Uint8Array[]>;

/**
 * Returns the layer of graph data, with release signatures as `signatures/sha256/<hex>/signature-N`, where the update
 * service (cincinnati, metadata-helper) looks for them.
 */
function makeGraphLayer(data: GraphData, signatures: ReleaseSignatures): Layer {
  const files = [...addSignatures(data, signatures)];
  return makeLayer(new Map(files.map(([path, content]) => [`${graphDataFolder}/${path}`, content])));
}

/** Adds signatures to the signatures of the data, each once. */
function addSignatures(data: GraphData, signatures: ReleaseSignatures): GraphData {
  const files = new Map(data);
  for (const [digest, list] of signatures) {
    const prefix = `signatures/sha256/${hexOf(digest)}/signature-`;
    let number = 1;
    for (const signature of list) {
      const bytes = Buffer.from(signature);
      const taken = (): Buffer | undefined => files.get(`${prefix}${number}`);
      while (taken() && !taken()?.equals(bytes)) number += 1;
      files.set(`${prefix}${number}`, bytes);
    }
  }
  return files;
}
