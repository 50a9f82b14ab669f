import { stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import {
  findArchive,
  listVolumeSets,
  parseVolumeName,
  planVolumes,
  volumeLimit,
  volumeName,
  type FoundArchive,
} from '#content/archive';
import { RootFolder } from '#content/files';
import { releaseRepository } from '#content/store';
import { PluginError } from '#errors';
import { listBelow } from '#text';
import { metadataPath, type BundleMetadata } from '../metadata/metadata.ts';
import { describeProblem, type Problem } from './bundle.ts';

/** The split of a bundle: the file name of the whole, and the largest size of a volume in bytes. */
export interface Split {
  readonly name: string;
  readonly volumeSize: number;
}

/** Returns the volumes of a bundle of `size` bytes, in the form of metadata.json; undefined if one file is enough. */
export function describeVolumes({ name, volumeSize }: Split, size: number): BundleMetadata['volumes'] {
  const volumes = planVolumes(name, size, volumeSize);
  return volumes.length > 1 ? volumes.map((volume) => ({ name: volume.path, size: volume.size })) : undefined;
}

/**
 * Returns the common name of a bundle in volumes, by the path of any volume, its own name, or a folder with this bundle
 * only; undefined for any other path. Throws `not-readable`.
 */
export async function findSplit(path: string): Promise<string | undefined> {
  const stats = await stat(path).catch(() => undefined);
  if (stats && !stats.isDirectory()) return parseVolumeName(path)?.path;
  if (!stats) return (await findArchive(path))?.path;
  if (await new RootFolder(path).statOf(`v2/${releaseRepository}`)) return undefined;
  const [name, ...others] = await listVolumeSets(path).catch(() => []);
  return name === undefined || others.length > 0 ? undefined : join(path, name);
}

/**
 * Returns problems for volumes of a bundle that are missing, that differ in size from its metadata, or that it does not
 * name. Metadata with other volumes than `create` writes is a problem too.
 */
export function checkVolumes(metadata: BundleMetadata, archive: FoundArchive): Problem[] {
  if (!isPlanned(metadata)) {
    const words = `${metadataPath} names volumes that create does not write for ${metadata.size} bytes`;
    return [describeProblem('inconsistent', 'metadata', metadataPath, words, 'Create the bundle again.')];
  }
  // Volumes may be joined to one file.
  if (archive.volumes[0]?.path === archive.path) return [];
  const { volumes: named } = metadata;
  const existing = [...archive.volumes, ...archive.severed];
  const sizes = new Map(existing.map((volume) => [volume.path, volume.size]));
  // Another program may have split the tar. The number of volumes is then unknown.
  const expected = named ?? (archive.severed.length > 0 ? [...archive.volumes, undefined] : []);
  const paths = expected.map((_, index) => volumeName(archive.path, index));
  const missing = expected.flatMap((volume, index) => checkVolume(paths[index] ?? '', volume?.size, sizes));
  const strays = named ? existing.filter(({ path }) => !paths.includes(path)) : [];
  return [
    ...missing,
    ...strays.map(({ path }) => {
      const words = `the volume ${path} does not belong to the bundle, which has ${paths.length} volumes`;
      return describeProblem('unexpected', 'volume', basename(path), words, 'Move this file to another folder.');
    }),
  ];
}

/** Compares a volume with its size in the metadata; undefined if it is unknown. */
function checkVolume(path: string, expectedSize: number | undefined, sizes: ReadonlyMap<string, number>): Problem[] {
  const size = sizes.get(path);
  const what = (kind: Problem['kind'], words: string): Problem[] => [
    describeProblem(kind, 'volume', basename(path), `the volume ${path} ${words}`),
  ];
  if (size === undefined) return what('missing', 'is missing');
  if (expectedSize === undefined || size === expectedSize) return [];
  const words = `has ${size} bytes instead of ${expectedSize}`;
  return size < expectedSize ? what('truncated', `is cut short: it ${words}`) : what('corrupt', words);
}

/** Returns whether the metadata names the volumes of one tar of its size, as planVolumes does. */
function isPlanned({ volumes, size }: BundleMetadata): boolean {
  const [first] = volumes ?? [];
  const name = first && parseVolumeName(first.name)?.path;
  if (!volumes || !first) return true;
  if (name === undefined || Math.ceil(size / first.size) !== volumes.length || volumes.length > volumeLimit)
    return false;
  const planned = planVolumes(name, size, first.size);
  return planned.every((volume, index) => isDeepStrictEqual(volumes[index], { name: volume.path, size: volume.size }));
}

/** Combines the problems of volumes into one error; undefined without a problem. */
export function volumeError(problems: readonly Problem[]): PluginError | undefined {
  const [first, ...others] = problems.map(({ message }) => message);
  if (first === undefined) return undefined;
  const message =
    others.length === 0 ? first : listBelow(`${problems.length} volumes have problems:`, [first, ...others]);
  return new PluginError('invalid-bundle', message, {
    hint: problems[0]?.hint ?? 'Copy these volumes again from the source of the bundle. The others are good.',
  });
}
