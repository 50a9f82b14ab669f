import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { runSuccessfully } from '../../support/peers.ts';

/**
 * Creates a `mirror-registry.tar.gz` in the form of the installer: the files of each image in a tar, and a program with
 * the names of the images. The names are in the form of Go’s build flags. Returns its path.
 */
export async function makeInstallerArchive(
  folder: string,
  images: Readonly<Record<'quay' | 'redis' | 'pause', string>>,
): Promise<string> {
  const at = (name: string): string => join(folder, 'archive', name);
  await mkdir(at('etc'), { recursive: true });
  const tar = (...args: string[]): Promise<string> => runSuccessfully('tar', ['-C', at(''), ...args]);
  const names = Object.keys(images).map((name) => `${name}.tar`);
  for (const [name, image] of Object.entries(images)) {
    await writeFile(at('etc/os-release'), `NAME=${image}\n`);
    await tar('-cf', at(`${name}.tar`), './etc');
  }
  await tar('-cf', at('image-archive.tar'), ...names);
  const head = Buffer.alloc(64);
  head.write('\x7fELF\x02\x01\x01', 'latin1');
  head.writeUInt16LE(0x3e, 18);
  const flags = Object.entries(images).map(
    ([name, image]) => `-X github.com/quay/mirror-registry/cmd.${name}Image=${image}`,
  );
  // Long enough that the names cross the border between two reads.
  const filler = Buffer.alloc(256 * 1024 - 150);
  await writeFile(
    at('mirror-registry'),
    Buffer.concat([head, filler, Buffer.from(`build\t-ldflags="${flags.join(' ')}"\n`)]),
  );
  const path = join(folder, 'mirror-registry.tar.gz');
  await tar('-czf', path, 'image-archive.tar', 'mirror-registry');
  return path;
}
