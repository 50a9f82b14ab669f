import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { metadataPath, type BundleMetadata } from '#bundle/metadata';
import { openBundle, readDigestFile, baseHint } from '#bundle/open';
import { parseVolumeName } from '#content/archive';
import { RootFolder } from '#content/files';
import { digestOf, type Digest, digestIn } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { hintOf, isPluginError, messageOf, PluginError } from '#errors';
import type { Host } from '../machine/host.ts';
import { runProgram } from '../machine/programs.ts';
import type { BlockDevice } from './blockDevices.ts';

/** A bundle on a medium. Nothing in it is verified. Each search returns the same object until the medium changes. */
export interface FoundBundle {
  /** The path of the device. */
  readonly device: string;
  /** The path to open: the device, the file, or the common name of volumes. */
  readonly path: string;
  readonly label: string | undefined;
  readonly filesystem: string | undefined;
  readonly version: string;
  readonly arch: string;
  /** The release image by digest. */
  readonly release: string;
  /** The size in bytes. */
  readonly size: number;
  /** The number of its volumes. */
  readonly volumes: number;
  /** The digest of the whole bundle, from the .sha256 file. */
  readonly digest: Digest | undefined;
  /** The base version of a delta, and the base release by digest. */
  readonly base: string | undefined;
  readonly baseRelease: string | undefined;
  /** The digest of its metadata, which is the same for each copy of a bundle. */
  readonly identity: Digest;
}

/** Why a medium cannot be used: its file system, a folder, its silence, a failed read, or a bundle that is damaged. */
export type RejectedKind = 'filesystem' | 'folder' | 'silent' | 'unreadable' | 'damaged';

/** A file or device that looks like a bundle but cannot be used, and the reason. */
export interface Rejected {
  readonly kind: RejectedKind;
  readonly device: string;
  readonly path: string;
  readonly reason: string;
  readonly hint: string | undefined;
}

/** The bundles on a medium, and the files and devices that look like a bundle and are none. */
export interface Findings {
  readonly bundles: readonly FoundBundle[];
  readonly rejected: readonly Rejected[];
}

/** The source of a medium, for messages. */
export interface MediumSource {
  readonly device: string;
  readonly label?: string | undefined;
  readonly filesystem?: string | undefined;
}

/** The number of bytes at the beginning of a device that identify a bundle. */
const headSize = 64 * 1024;

/**
 * Reads the beginning of a device of a host; empty if the drive is empty. Another process reads it, because a read of a
 * hung device would block a thread of this process. Throws `not-found` without dd, and `interrupted`.
 */
export async function readHead(host: Host, path: string, context: Context): Promise<Buffer> {
  // Without nonblock, a drive would close its open tray.
  const args = [`if=${path}`, `bs=${headSize}`, 'count=1', 'iflag=nonblock,fullblock', 'status=none'];
  const { stdout } = await runProgram(host, 'dd', args, context, { encoding: 'latin1' });
  return Buffer.from(stdout, 'latin1');
}

/**
 * Returns a number that changes with the medium in a drive, if the kernel has it (Linux 5.15, `diskseq`). `sys` is the
 * path of sysfs.
 */
export async function readSequence({ kernelName }: BlockDevice, sys: string): Promise<string> {
  const folder = join(sys, 'class/block', kernelName);
  // A partition has the number of its disk.
  for (const path of [join(folder, 'diskseq'), join(folder, '../diskseq')]) {
    const text = await readFile(path, 'utf8').catch(() => undefined);
    if (text !== undefined) return text.trim();
  }
  return '';
}

/**
 * Returns the number of sectors that this machine has written to a device; empty if the kernel does not know it. `sys`
 * is the path of sysfs.
 */
export async function readWrites({ kernelName }: BlockDevice, sys: string): Promise<string> {
  const text = await readFile(join(sys, 'class/block', kernelName, 'stat'), 'utf8').catch(() => '');
  return text.trim().split(/\s+/)[6] ?? '';
}

/** The names of bundles on a medium; they are safe to print. */
const fileName = /^upgrade-[^\p{C}\p{Zl}\p{Zp}]{1,120}\.tar(?:\.\d{3})?$/iu;
const entryLimit = 10_000;
const bundleLimit = 64;

/**
 * Lists the regular files in the top folder of a medium that have a bundle’s name, with a text that changes with the
 * file. Throws `not-readable`, and `too-large` for too many files or bundles.
 */
export async function listFiles(folder: string): Promise<ReadonlyMap<string, string>> {
  const entries = await new RootFolder(folder).list('', (name) => fileName.test(name), entryLimit);
  const files = entries
    .filter(({ stats }) => stats.isFile())
    .map(({ path, stats }): [string, string] => [path, `${stats.size} ${stats.mtimeMs} ${stats.ino}`])
    .sort(([a], [b]) => (a < b ? -1 : 1));
  if (listBundles(files.map(([name]) => name)).length > bundleLimit)
    throw new PluginError('too-large', `${folder} has more than ${bundleLimit} bundles`, {
      hint: 'Keep the bundles that are needed.',
    });
  return new Map(files);
}

/** Lists the files with a bundle’s name in the folders of a medium, which are not searched: what to do about them. */
export async function listMisplaced(folder: string, device: string): Promise<Rejected[]> {
  const root = new RootFolder(folder);
  const folders = await root.list('', () => true, entryLimit).catch(() => []);
  const rejected: Rejected[] = [];
  for (const { path: name } of folders.filter(({ stats }) => stats.isDirectory()).slice(0, bundleLimit)) {
    const files = await root.list(name, (each) => fileName.test(each), entryLimit).catch(() => []);
    const [first] = files.filter(({ stats }) => stats.isFile());
    if (!first) continue;
    const reason = 'it is in a folder, and bundles are found at the top of a medium only';
    rejected.push({
      kind: 'folder',
      device,
      path: join(folder, first.path),
      reason,
      hint: 'Move it out of the folder.',
    });
  }
  return rejected;
}

function listBundles(names: Iterable<string>): string[] {
  return [...new Set([...names].map((name) => parseVolumeName(name)?.path ?? name))];
}

/**
 * The time for reading headers and metadata.json of all files of a medium, in milliseconds. Nothing of them is
 * verified. 64 bundles on a slow drive need less.
 */
const usualTimeLimit = 120_000;

/** Opens the possible bundles in a folder. After the time limit in milliseconds, rejects the rest. */
export async function examineFiles(
  folder: string,
  names: Iterable<string>,
  place: MediumSource,
  context: Context,
  timeLimit = usualTimeLimit,
): Promise<Findings> {
  const paths = listBundles(names).map((name) => join(folder, name));
  return examine(paths, place, context, timeLimit);
}

/**
 * Examines a tar that is written to a device. `firstEntry` is the name of its first file: a tar that does not begin
 * with the metadata of a bundle is rejected as damaged.
 */
export async function examineTar(
  path: string,
  firstEntry: string,
  place: MediumSource,
  context: Context,
): Promise<Findings> {
  if (firstEntry === metadataPath) return examine([path], place, context);
  const reason = `it holds a tar, but no upgrade bundle: it does not begin with ${metadataPath}`;
  return { bundles: [], rejected: [{ kind: 'damaged', device: place.device, path, reason, hint: undefined }] };
}

async function examine(
  paths: readonly string[],
  place: MediumSource,
  context: Context,
  timeLimit = usualTimeLimit,
): Promise<Findings> {
  const bundles: FoundBundle[] = [];
  const rejected: Rejected[] = [];
  const timeUp = AbortSignal.timeout(timeLimit);
  const limited = { ...context, signal: AbortSignal.any([context.signal, timeUp]) };
  for (const path of paths) {
    try {
      checkInterrupted(limited.signal);
      bundles.push(await readFoundBundle(path, place, limited));
    } catch (error) {
      checkInterrupted(context.signal);
      const { reason, hint } = isPluginError(error, 'interrupted') ? describeLate(timeLimit) : describeError(error);
      const kind = isPluginError(error, 'not-readable') ? 'unreadable' : 'damaged';
      rejected.push({ kind, device: place.device, path, reason, hint });
    }
  }
  return { bundles, rejected };
}

function describeError(error: unknown): Pick<Rejected, 'reason' | 'hint'> {
  return { reason: messageOf(error), hint: hintOf(error) };
}

function describeLate(timeLimit: number): Pick<Rejected, 'reason' | 'hint'> {
  return {
    reason: `it was not read, because finding the bundles of one medium may take ${timeLimit / 1000} s`,
    hint: 'Keep only the bundles that are needed on the medium, or use a faster one.',
  };
}

async function readFoundBundle(path: string, place: MediumSource, context: Context): Promise<FoundBundle> {
  await using bundle = await openBundle(path, context, { onMedium: isFileOn(place, path) });
  const { metadata, volumes } = bundle;
  const { version, arch, release, size, base } = metadata;
  if (bundle.faults.length > 0) throw new PluginError('invalid-bundle', bundle.faults[0]?.message ?? '');
  if (bundle.size !== size) {
    const words = `only the first ${bundle.size} of its ${size} bytes are present`;
    throw new PluginError('invalid-bundle', `${path} is not written to its end: ${words}`);
  }
  if (base) context.log('debug', `${path} is a delta. ${baseHint(metadata)}`);
  return {
    device: place.device,
    path,
    label: place.label,
    filesystem: place.filesystem,
    version,
    arch,
    release,
    size,
    volumes: volumes.length,
    digest: await readDigestFile(path),
    base: base?.version,
    baseRelease: base?.release,
    identity: identityOf(metadata),
  };
}

/** Returns whether a path is a file on a medium, and not the device itself. Such a file must not be a link. */
export function isFileOn({ device }: Pick<MediumSource, 'device'>, path: string): boolean {
  return path !== device;
}

/** Returns the bundles that are not the base of a present delta. */
export function withoutBases(bundles: readonly FoundBundle[]): readonly FoundBundle[] {
  const bases = new Set(bundles.flatMap(({ baseRelease }) => (baseRelease === undefined ? [] : digestIn(baseRelease))));
  return bundles.filter(({ release }) => !bases.has(digestIn(release)));
}

/** Returns the identity of a bundle: the digest of its metadata, which is the same for each copy. */
export function identityOf({ volumes: _volumes, size: _size, ...same }: BundleMetadata): Digest {
  return digestOf(JSON.stringify(same));
}
