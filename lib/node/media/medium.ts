import { constants } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openBundle } from '../../bundle/open.ts';
import { metadataPath, type BundleMetadata } from '../../bundle/metadata.ts';
import { readDigestFile } from '../../bundle/sidecars.ts';
import { baseHint } from '../../bundle/complete.ts';
import type { Context } from '../../context.ts';
import { isPluginError, messageOf, PluginError } from '../../errors.ts';
import { digestOf, type Digest } from '../../oci/digest.ts';
import { digestIn } from '../../oci/reference.ts';
import { RootFolder } from '../../files/rootFolder.ts';
import { parseVolumeName } from '../../archive/volumes.ts';
import type { BlockDevice } from './blockDevices.ts';

/** A bundle on a medium. Nothing in it has been verified. It is the same object in each look for as long as nothing on the medium changes. */
export interface FoundBundle {
  /** The device, as this machine calls it. */
  readonly device: string;
  /** What to open: the device itself, or the file, also that which volumes have in common. */
  readonly path: string;
  readonly label: string | undefined;
  readonly filesystem: string | undefined;
  readonly version: string;
  readonly arch: string;
  /** By digest. */
  readonly release: string;
  /** In bytes. */
  readonly size: number;
  /** How many files it lies in. */
  readonly volumes: number;
  /** Of the whole, as the .sha256 file beside it says. */
  readonly digest: Digest | undefined;
  /** The version that it leaves out of, as a delta, and the release that this is, by digest. */
  readonly base: string | undefined;
  readonly baseRelease: string | undefined;
  /** Of its metadata: the same for each copy of a bundle, in one file or not. */
  readonly identity: Digest;
}

/** Something on a medium that looks like a bundle, and why it is none that can be used. */
export interface Rejected {
  readonly device: string;
  readonly path: string;
  readonly reason: string;
  readonly hint: string | undefined;
}

/** What was found on a medium. */
export interface Findings {
  readonly bundles: readonly FoundBundle[];
  readonly rejected: readonly Rejected[];
}

/** Where a medium is, for the words about what is on it. */
export interface MediumSource {
  readonly device: string;
  readonly label?: string | undefined;
  readonly filesystem?: string | undefined;
}

/** Enough to tell one bundle from the next by what its metadata says, in bytes. */
const headSize = 64 * 1024;

/** Reads the beginning of a device, less where it is shorter; nothing where no disc is in the drive. `path` is for this process. */
export async function readHead(path: string): Promise<Buffer> {
  // A drive whose tray is open would close it.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch(() => undefined);
  if (!file) return Buffer.alloc(0);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(headSize), 0, headSize, 0);
    return buffer.subarray(0, bytesRead);
  } catch {
    return Buffer.alloc(0);
  } finally {
    await file.close();
  }
}

/** Tells one medium from the next in the same drive, as far as the kernel does (Linux 5.15, `diskseq`). `sys` is where sysfs is. */
export async function readSequence({ kernelName }: BlockDevice, sys: string): Promise<string> {
  const folder = join(sys, 'class/block', kernelName);
  // A partition has that of its disk.
  for (const path of [join(folder, 'diskseq'), join(folder, '../diskseq')]) {
    const text = await readFile(path, 'utf8').catch(() => undefined);
    if (text !== undefined) return text.trim();
  }
  return '';
}

/** How many sectors this machine has written to a device since it is there; empty if the kernel does not tell. `sys` is where sysfs is. */
export async function readWrites({ kernelName }: BlockDevice, sys: string): Promise<string> {
  const text = await readFile(join(sys, 'class/block', kernelName, 'stat'), 'utf8').catch(() => '');
  return text.trim().split(/\s+/)[6] ?? '';
}

/** What the name of a bundle on a medium looks like: it can be shown as it is. */
const fileName = /^upgrade-[^\p{C}\p{Zl}\p{Zp}]{1,120}\.tar(?:\.\d{3})?$/u;
const entryLimit = 10_000;
const bundleLimit = 64;

/**
 * The regular files in the uppermost folder of a medium that are called as bundles are, with what tells that they have changed. Throws `not-readable`,
 * and `too-large` if there are too many files or bundles to look at.
 */
export async function listFiles(folder: string): Promise<ReadonlyMap<string, string>> {
  const entries = await new RootFolder(folder).list('', (name) => fileName.test(name), entryLimit);
  const files = entries
    .filter(({ stats }) => stats.isFile())
    .map(({ path, stats }): [string, string] => [path, `${stats.size} ${stats.mtimeMs} ${stats.ino}`])
    .sort(([a], [b]) => (a < b ? -1 : 1));
  if (listBundles(files.map(([name]) => name)).length > bundleLimit)
    throw new PluginError('too-large', `${folder} has more than ${bundleLimit} bundles`, {
      hint: 'Leave those on it that are needed.',
    });
  return new Map(files);
}

function listBundles(names: Iterable<string>): string[] {
  return [...new Set([...names].map((name) => parseVolumeName(name)?.path ?? name))];
}

/** Opens what may be bundles in a folder. */
export async function examineFiles(
  folder: string,
  names: Iterable<string>,
  place: MediumSource,
  context: Context,
): Promise<Findings> {
  const paths = listBundles(names).map((name) => join(folder, name));
  return examine(paths, place, context);
}

/** Opens the tar on a device. */
export async function examineTar(
  path: string,
  firstEntry: string,
  place: MediumSource,
  context: Context,
): Promise<Findings> {
  if (firstEntry === metadataPath) return examine([path], place, context);
  const reason = `it holds a tar, but no upgrade bundle: it does not begin with ${metadataPath}`;
  return { bundles: [], rejected: [{ device: place.device, path, reason, hint: undefined }] };
}

async function examine(paths: readonly string[], place: MediumSource, context: Context): Promise<Findings> {
  const bundles: FoundBundle[] = [];
  const rejected: Rejected[] = [];
  for (const path of paths) {
    try {
      bundles.push(await describe(path, place, context));
    } catch (error) {
      if (isPluginError(error, 'interrupted')) throw error;
      const hint = isPluginError(error) ? error.hint : undefined;
      rejected.push({ device: place.device, path, reason: messageOf(error), hint });
    }
  }
  return { bundles, rejected };
}

async function describe(path: string, place: MediumSource, context: Context): Promise<FoundBundle> {
  const bundle = await openBundle(path, context, { onMedium: isFileOn(place, path) });
  try {
    const { metadata, volumes } = bundle;
    const { version, arch, release, size, base } = metadata;
    if (bundle.faults.length > 0) throw new PluginError('invalid-bundle', bundle.faults[0]?.message ?? '');
    if (bundle.size !== size) {
      const words = `of its ${size} bytes only the first ${bundle.size} are there`;
      throw new PluginError('invalid-bundle', `${path} is not written to its end: ${words}`);
    }
    if (base) context.log('debug', `${path} is a delta. ${baseHint(metadata)}`);
    return {
      ...{ device: place.device, path, label: place.label, filesystem: place.filesystem },
      ...{ version, arch, release, size, volumes: volumes.length },
      digest: await readDigestFile(path),
      base: base?.version,
      baseRelease: base?.release,
      identity: identityOf(metadata),
    };
  } finally {
    await bundle.close();
  }
}

/** Whether a path is that of a file that was found on a medium, to which no link may lead, and not the medium itself. */
export function isFileOn({ device }: Pick<MediumSource, 'device'>, path: string): boolean {
  return path !== device;
}

/** Bundles that are there for their own sake: not those of which a delta that is there too leaves out what they have. */
export function withoutBases(bundles: readonly FoundBundle[]): readonly FoundBundle[] {
  const bases = new Set(bundles.flatMap(({ baseRelease }) => (baseRelease === undefined ? [] : digestIn(baseRelease))));
  return bundles.filter(({ release }) => !bases.has(digestIn(release)));
}

/** Tells one bundle from the next by what its metadata says: each copy of a bundle has the same identity, in one file or not. */
export function identityOf({ volumes: _volumes, size: _size, ...same }: BundleMetadata): Digest {
  return digestOf(JSON.stringify(same));
}
