import { rm, stat, lstat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { formatManifest, type WrittenAs } from '#config/manifest';
import { type ArchiveDigests, parseVolumeName, volumeName, type Volume, isBegun, partialOf } from '#content/archive';
import {
  renameDurably,
  writeDurably,
  describeWriteError,
  syncFolder,
  checkFileWritable,
  checkFolderCreatable,
  makeFolders,
  takeLock,
  checkLock,
  RootFolder,
  decodeText,
  readSmallFile,
} from '#content/files';
import { hexOf, isDigest, type Digest, digestIn } from '#content/oci';
import { isPluginError, PluginError, messageOf } from '#errors';
import type { BundleMetadata } from '../metadata/metadata.ts';

/** The files to write beside a bundle. */
export interface SidecarOptions {
  /** The `.yaml` with the UpgradeBundle; true by default. */
  readonly withManifest?: boolean;
}

/**
 * Writes the files beside a bundle under temporary names: `<bundle>.sha256` for sha256sum and `<bundle>.yaml`, an
 * UpgradeBundle to apply. Removes the old files. Returns the function that renames the new files, which must be called
 * after the bundle has its name. For volumes, `.sha256` lists each volume, and the whole tar in a comment, because
 * sha256sum would not find that file.
 */
export async function prepareSidecars(
  path: string,
  { digest, volumes }: ArchiveDigests,
  metadata: BundleMetadata,
  { withManifest = true }: SidecarOptions = {},
): Promise<() => Promise<void>> {
  const name = basename(path);
  const lines = volumes.map((volume, index) => `${hexOf(volume)}  ${volumeName(name, index)}`);
  const whole = `${hexOf(digest)}  ${name}`;
  // A digest beside another tar would be trusted. So the old files are removed before the tar is
  // replaced, and the new ones are written after it. If the run is killed meanwhile, the next run
  // computes the digest. The .sha256 file is written last: if it exists, everything does.
  const texts: (readonly [string, string])[] = [
    ...(withManifest ? ([[`${path}.yaml`, formatManifest(upgradeBundleOf(digest, metadata))]] as const) : []),
    [`${path}.sha256`, [...lines, lines.length > 0 ? `# ${whole}` : whole, ''].join('\n')],
  ];
  try {
    for (const [file, text] of texts) await writeDurably(`${file}.partial`, text, { mode: 0o644 });
    for (const [file] of texts.toReversed()) await rm(file, { force: true });
    await syncFolder(dirname(path));
  } catch (error) {
    throw describeWriteError(error, path);
  }
  return async () => {
    try {
      for (const [file] of texts) await renameDurably(`${file}.partial`, file);
    } catch (error) {
      throw describeWriteError(error, path);
    }
  };
}

/**
 * Removes temporary files of a killed run beside a finished bundle, unless another run is active. Throws
 * `not-writable`, also for a folder of that name.
 */
export async function removeLeftovers(path: string): Promise<void> {
  const sidecars = [`${path}.yaml.partial`, `${path}.sha256.partial`];
  const lock = lockOf(path);
  const journal = `${path}.partial.journal`;
  const isUnfinished = await isBegun(path);
  const leftovers = isUnfinished ? sidecars : [...sidecars, journal];
  const presence = await Promise.all([lock, ...leftovers].map(exists));
  if (!presence.includes(true)) return;
  try {
    await using _lock = await takeLock(lock, path);
    for (const leftover of leftovers) await rm(leftover, { force: true });
  } catch (error) {
    // Another run may write it. The caller does not fail for leftovers, because the bundle is complete.
    if (!isPluginError(error)) throw describeWriteError(error, path);
  }
}

/** The largest .sha256 file in bytes. A thousand volumes have a line each. */
const sizeLimit = 1024 * 1024;

/**
 * Reads the digest of a bundle from `<bundle>.sha256`; undefined without such a file or line. Throws `invalid-file` for
 * a file in another form.
 */
export async function readDigestFile(path: string): Promise<Digest | undefined> {
  return (await readDigests(path))?.get(basename(path));
}

/**
 * Does the same for a finished bundle in some files. Also returns undefined if the .yaml file is missing, or if a file
 * is newer than the .sha256 file, which may then belong to another bundle.
 */
export async function readCurrentDigest(
  path: string,
  files: readonly Pick<Volume, 'path'>[],
): Promise<Digest | undefined> {
  const paths = [`${path}.yaml`, `${path}.sha256`, ...files.map((file) => file.path)];
  const [yaml, sha256 = 0, ...times] = await Promise.all(paths.map(timeOf));
  if (yaml === undefined || times.some((time) => time === undefined || time > sha256)) return undefined;
  return readDigestFile(path);
}

/**
 * Reads the digests in `<bundle>.sha256` by file name: of a bundle and of its volumes. Undefined if there is no such
 * file that can be read. Throws `invalid-file`.
 */
export async function readDigests(path: string): Promise<ReadonlyMap<string, Digest> | undefined> {
  const folder = new RootFolder(dirname(path));
  const bytes = await folder.read(`${basename(path)}.sha256`, sizeLimit).catch(() => undefined);
  if (bytes === undefined) return undefined;
  // If a name is listed twice, the first line counts.
  return new Map(
    parseDigests(Buffer.from(bytes), `${path}.sha256`)
      .map(({ name, digest }) => [name, digest] as const)
      .toReversed(),
  );
}

/**
 * Finds the digest of a bundle in a file of sha256sum: in the line with its name, or in the only line that is not for a
 * volume. Throws `invalid-file` without such a line, and the errors of readSmallFile.
 */
export async function findDigest(file: string, bundle: string): Promise<Digest> {
  const lines = parseDigests(await readSmallFile(file, sizeLimit), file).filter(({ name }) => !parseVolumeName(name));
  const line = lines.find(({ name }) => name === basename(bundle)) ?? (lines.length === 1 ? lines[0] : undefined);
  if (line) return line.digest;
  throw new PluginError('invalid-file', `${file} has no digest of ${basename(bundle)}`, {
    hint: 'It should have the format of sha256sum: 64 hex digits, two blanks, and the name of the bundle.',
  });
}

/**
 * Parses lines of sha256sum, also with the marks and capitals of Windows, and in the form of BSD and macOS:
 * `SHA256 (name) = hex`. Lines of other texts are refused, because a digest that is not compared proves nothing.
 */
function parseDigests(bytes: Buffer, file: string): { digest: Digest; name: string }[] {
  const lines = decodeText(bytes).split(/\r\n|\r|\n/);
  return lines.flatMap((line, index) => {
    const [, hex, rest = ''] = /^\\?(?:# )?([0-9a-f]{64})(?: [ *](.*))?\s*$/i.exec(line) ?? [];
    const [, name = rest, bsd = hex] = /^SHA256 ?\((.*)\) ?= ?([0-9a-f]{64})\s*$/i.exec(line) ?? [];
    const digest = `sha256:${(bsd ?? '').toLowerCase()}`;
    if (isDigest(digest)) return [{ digest, name: basename(name.trimEnd()) }];
    if (/^\s*(?:#.*)?$/.test(line)) return [];
    throw new PluginError('invalid-file', `${file} is not in the form of sha256sum, from line ${index + 1} on`, {
      hint: 'Copy it again from where the bundle was made, or remove it: nothing was compared with it.',
    });
  });
}

/** Returns the name of the UpgradeBundle of a bundle, such as `4.20.3-x86-64`. */
export function upgradeBundleName({ version, arch }: Pick<BundleMetadata, 'version' | 'arch'>): string {
  // Kubernetes names have no underscores.
  return `${version}-${arch}`.replaceAll('_', '-');
}

/** What is written of an UpgradeBundle beside a bundle. */
type BundleManifest = WrittenAs<
  'upgrade-bundle.openshift.io/v1alpha1',
  'UpgradeBundle',
  {
    readonly spec: {
      readonly bundle: { readonly digest: string; readonly version: string; readonly releaseDigest: string };
    };
  }
>;

function upgradeBundleOf(digest: Digest, metadata: BundleMetadata): BundleManifest {
  return {
    apiVersion: 'upgrade-bundle.openshift.io/v1alpha1',
    kind: 'UpgradeBundle',
    metadata: { name: upgradeBundleName(metadata) },
    spec: { bundle: { digest, version: metadata.version, releaseDigest: digestIn(metadata.release) } },
  };
}

async function timeOf(path: string): Promise<number | undefined> {
  return (await stat(path).catch(() => undefined))?.mtimeMs;
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}

/**
 * Checks that a path is a folder or can become one, before any request. Writes nothing in a dry run. Throws
 * `not-writable`.
 */
export async function checkFolder(path: string, isDryRun = false): Promise<void> {
  const stats = await stat(path).catch(() => lstat(path).catch(() => undefined));
  if (stats?.isDirectory()) return;
  if (!stats) return isDryRun ? undefined : checkFolderCreatable(path);
  const what = stats.isSymbolicLink() ? 'is a link to a folder that does not exist' : 'is not a folder';
  throw new PluginError('not-writable', `${path} ${what}`, {
    hint: 'Choose another output folder.',
    settings: ['output'],
  });
}

/**
 * Checks that a bundle can be written, without writing. Its folder, or the parent of a new folder, must be writable, no
 * folder may have its name, and no other run may write it. Throws `not-writable` and `busy`.
 */
export async function checkOutput(path: string): Promise<void> {
  await checkLock(lockOf(path), path);
  for (const file of [path, partialOf(path), `${path}.sha256`, `${path}.yaml`]) await checkFileWritable(file);
}

/** Creates the folder of a bundle if it is missing. Throws `disk-full` and `not-writable`. */
export async function makeFolder(path: string): Promise<void> {
  try {
    await makeFolders(path);
  } catch (error) {
    const described = describeWriteError(error, path);
    if (isPluginError(described)) throw described;
    throw new PluginError('not-writable', `the folder ${path} cannot be created: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

/** Returns the path of the lock file of a bundle. */
export function lockOf(path: string): string {
  return `${path}.lock`;
}
