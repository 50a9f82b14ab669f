import { stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { PluginError } from '../errors.ts';
import { releaseRepository } from '../store/directory.ts';
import { RootFolder } from '../files/rootFolder.ts';
import {
  findArchive,
  listVolumeSets,
  parseVolumeName,
  planVolumes,
  volumeName,
  type FoundArchive,
} from '../archive/volumes.ts';
import type { BundleMetadata } from './metadata.ts';
import { describeProblem, type Problem } from './problem.ts';

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
  const found = await stat(path).catch(() => undefined);
  if (found && !found.isDirectory()) return parseVolumeName(path)?.path;
  if (!found) return (await findArchive(path))?.path;
  if (await new RootFolder(path).statOf(`v2/${releaseRepository}`)) return undefined;
  const [name, ...others] = await listVolumeSets(path).catch(() => []);
  return name === undefined || others.length > 0 ? undefined : join(path, name);
}

/**
 * Returns problems for volumes of a bundle that are missing, or differ in size from its metadata; none for a bundle in
 * one file.
 */
export function checkVolumes({ volumes: named }: BundleMetadata, found: FoundArchive): Problem[] {
  if (found.volumes[0]?.path === found.path) return [];
  const sizes = new Map([...found.volumes, ...found.severed].map((volume) => [volume.path, volume.size]));
  // Another program may have split the tar. The number of volumes is then unknown.
  const expected = named ?? (found.severed.length > 0 ? [...found.volumes, undefined] : []);
  return expected.flatMap((volume, index) => {
    const path = volumeName(found.path, index);
    const size = sizes.get(path);
    const what = (kind: Problem['kind'], words: string): Problem[] => [
      describeProblem(kind, 'volume', basename(path), `the volume ${path} ${words}`),
    ];
    if (size === undefined) return what('missing', 'is missing');
    if (volume === undefined || size === volume.size) return [];
    const words = `has ${size} bytes instead of ${volume.size}`;
    return size < volume.size ? what('truncated', `is cut short: it ${words}`) : what('corrupt', words);
  });
}

/** Combines the problems of volumes into one error; undefined without a problem. */
export function volumeError(problems: readonly Problem[]): PluginError | undefined {
  const [first, ...others] = problems.map(({ message }) => message);
  if (first === undefined) return undefined;
  const message =
    others.length === 0 ? first : [`${problems.length} volumes have problems:`, first, ...others].join('\n  ');
  return new PluginError('invalid-bundle', message, {
    hint: 'Copy these volumes again from the source of the bundle. The others are good.',
  });
}
