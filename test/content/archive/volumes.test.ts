import { mkdir, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import { Archive } from '../../../lib/content/archive/archive.ts';
import { ArchiveWriter } from '../../../lib/content/archive/archiveWriter.ts';
import { layOutTar, type TarEntry } from '../../../lib/content/archive/tarLayout.ts';
import { journalOf, partialOf } from '../../../lib/content/archive/unfinished.ts';
import {
  VolumeHash,
  findArchive,
  listVolumeSets,
  openVolume,
  planVolumes,
  tarOf,
  volumeName,
  Volumes,
} from '../../../lib/content/archive/volumes.ts';
import { readPieces, writePieces } from '../../../lib/content/files/fileRange.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { openLocation, parseLocation } from '../../../lib/content/store/location.ts';
import { entriesOf, makeTarFile, withoutContent } from '../../support/archive/archive.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { contentOf, makeSample, type Sample } from '../store/contract.ts';

const repository = 'openshift/release';
const context = makeContext();
let folder: string;
let path: string;
beforeEach(async () => {
  folder = await makeFolder();
  path = join(folder, 'upgrade.tar');
});
afterEach(() => removeFolder(folder));

const write = async (parts: readonly string[]): Promise<void> => {
  for (const [index, part] of parts.entries()) await writeFile(volumeName(path, index), part);
};

describe('planVolumes', () => {
  it('splits only an archive that is too large for one volume', () => {
    const sizes = (size: number, volumeSize?: number): unknown =>
      planVolumes('u.tar', size, volumeSize).map((volume) => [volume.path, volume.size]);
    expect(sizes(10)).to.deep.equal([['u.tar', 10]]);
    expect(sizes(10, 10)).to.deep.equal([['u.tar', 10]]);
    expect(sizes(11, 5)).to.deep.equal([
      ['u.tar.000', 5],
      ['u.tar.001', 5],
      ['u.tar.002', 1],
    ]);
  });

  it('reports the minimum size if a thousand volumes are not enough', async () => {
    expect(planVolumes('u.tar', 1000, 1)).to.have.length(1000);
    const { hint } = await failureOf(
      Promise.resolve().then(() => planVolumes('u.tar', 1001, 1)),
      'usage',
    );
    expect(hint).to.include('at least 2 bytes');
  });
});

describe('findArchive', () => {
  it('finds all volumes by the name of any, or of none', async () => {
    await write(['aa', 'bb', 'c']);
    await writeFile(`${path}.sha256`, '');
    await writeFile(partialOf(volumeName(path, 3)), '');
    await mkdir(volumeName(path, 4));
    for (const name of [path, volumeName(path, 0), volumeName(path, 2), volumeName(path, 7)]) {
      const found = await findArchive(name);
      expect(found?.path).to.equal(path);
      expect(found?.volumes.map(({ size }) => size)).to.deep.equal([2, 2, 1]);
      expect(found?.severed).to.deep.equal([]);
    }
  });

  it('finds the volumes after a missing one', async () => {
    await write(['aa', 'bb', 'c']);
    await rm(volumeName(path, 1));
    const found = await findArchive(path);
    expect(found?.volumes.map((volume) => volume.path)).to.deep.equal([volumeName(path, 0)]);
    expect(found?.severed.map((volume) => volume.path)).to.deep.equal([volumeName(path, 2)]);
  });

  it('finds volumes with capitals in their names, as some systems write them on FAT', async () => {
    const capitals = join(folder, 'UPGRADE.TAR');
    await writeFile(`${capitals}.000`, 'aa');
    await writeFile(`${capitals}.001`, 'b');
    for (const name of [capitals, `${capitals}.001`])
      expect((await findArchive(name))?.volumes).to.deep.equal([
        { path: `${capitals}.000`, size: 2 },
        { path: `${capitals}.001`, size: 1 },
      ]);
    expect(await listVolumeSets(folder)).to.deep.equal(['UPGRADE.TAR']);
    expect(tarOf(capitals)).to.equal(capitals);
  });

  it('recognizes files, volumes and missing archives', async () => {
    await writeFile(path, 'whole');
    await write(['aa']);
    expect(await findArchive(path)).to.deep.equal({ path, volumes: [{ path, size: 5 }], severed: [] });
    expect(await findArchive(folder)).to.equal(undefined);
    expect(await findArchive(join(folder, 'other.tar'))).to.equal(undefined);
    expect(await findArchive(join(folder, 'nowhere', 'other.tar'))).to.equal(undefined);
  });

  it('is not opened with another size than it was found with', async () => {
    await write(['aa', 'bb']);
    await writeFile(path, 'whole');
    for (const [file, size] of [
      [volumeName(path, 1), 2],
      [path, 5],
    ] as const) {
      await (await openVolume({ path: file, size }, false)).close();
      await writeFile(file, 'longer');
      const { message } = await failureOf(openVolume({ path: file, size }, false), 'not-readable');
      expect(message).to.equal(`${file} was replaced while it was opened`);
    }
  });

  it('knows the sets in a folder', async () => {
    await write(['a', 'b']);
    await writeFile(join(folder, 'a.tar.001'), '');
    await writeFile(join(folder, 'b.tar'), '');
    expect(await listVolumeSets(folder)).to.deep.equal(['a.tar', 'upgrade.tar']);
  });
});

describe('Volumes', () => {
  const openAll = async (flags = 'r'): Promise<Volumes> => {
    const { volumes } = (await findArchive(path)) ?? { volumes: [] };
    return Volumes.open(volumes, (volume) => open(volume.path, flags));
  };

  it('reads and writes across files, each time to the end of one', async () => {
    await write(['abc', 'de', 'f']);
    const volumes = await openAll('r+');
    const buffer = Buffer.alloc(6, '.');
    expect((await volumes.read(buffer, 1, 5, 1)).bytesRead).to.equal(2);
    expect(buffer.toString()).to.equal('.bc...');
    expect((await volumes.read(buffer, 0, 5, 6)).bytesRead).to.equal(0);
    expect((await volumes.write(Buffer.from('XYZ'), 1, 2, 4)).bytesWritten).to.equal(1);
    expect(await readFile(volumeName(path, 1), 'utf8')).to.equal('dY');
    await volumes.close();
  });

  it('returns the ranges of the files, for access by file descriptors', async () => {
    await write(['abc', 'de', 'fgh']);
    const volumes = await openAll('r+');
    const pieces = volumes.pieces(2, 4);
    expect(pieces.map(({ position, size }) => [position, size])).to.deep.equal([
      [2, 1],
      [0, 2],
      [0, 1],
    ]);
    const buffer = Buffer.alloc(3);
    readPieces(pieces, buffer, 1);
    expect(buffer.toString()).to.equal('def');
    writePieces(pieces, Buffer.from('CDEFtoo much'), 0);
    const all = await Promise.all([0, 1, 2].map((index) => readFile(volumeName(path, index), 'utf8')));
    expect(all).to.deep.equal(['abC', 'DE', 'Fgh']);
    await volumes.close();
  });
});

describe('VolumeHash', () => {
  it('takes the digest of the whole and of each volume, however the bytes come', () => {
    for (const step of [1, 2, 3, 7]) {
      const hash = new VolumeHash([{ size: 3 }, { size: 3 }, { size: 1 }]);
      const bytes = Buffer.from('abcdefg');
      for (let at = 0; at < bytes.length; at += step) hash.update(bytes.subarray(at, at + step));
      expect(hash.finish()).to.deep.equal({
        digest: digestOf(bytes),
        volumes: ['abc', 'def', 'g'].map((part) => digestOf(Buffer.from(part))),
      });
    }
  });

  it('can return to a copied state', () => {
    const hash = new VolumeHash([{ size: 2 }, { size: 2 }]);
    hash.update(Buffer.from('abc'));
    const copy = hash.copy();
    hash.update(Buffer.from('x'));
    copy.update(Buffer.from('d'));
    expect(copy.finish().volumes).to.deep.equal([digestOf(Buffer.from('ab')), digestOf(Buffer.from('cd'))]);
    expect(hash.finish().digest).to.equal(digestOf(Buffer.from('abcx')));
  });

  it('leaves a single file at its one digest', () => {
    const hash = new VolumeHash([{ size: 2 }]);
    hash.update(Buffer.from('ab'));
    expect(hash.finish()).to.deep.equal({ digest: digestOf(Buffer.from('ab')), volumes: [] });
  });
});

describe('an archive in volumes', () => {
  const volumeSize = 1500;
  let sample: Sample;
  let entries: TarEntry[];
  let whole: Buffer;
  beforeEach(async () => {
    sample = makeSample(repository);
    const metadata = { path: 'metadata.json', content: Buffer.from('{"version":"1.0"}\n') };
    const full = [metadata, ...(await entriesOf(sample.content, repository))];
    entries = withoutContent(full);
    whole = makeTarFile(full);
  });

  const openWriter = (size: number | undefined = volumeSize): Promise<ArchiveWriter> =>
    ArchiveWriter.open(path, layOutTar(entries, size), context);
  const pushAll = async (writer: ArchiveWriter, reversed = false): Promise<void> => {
    const content = await contentOf(sample);
    for (const { descriptor, bytes } of reversed ? content.reverse() : content)
      await writer.push(descriptor, () => Promise.resolve(Readable.from([bytes])));
  };
  const make = async (size?: number): Promise<void> => {
    const writer = await openWriter(size);
    await pushAll(writer);
    await writer.finish();
  };
  const names = (count: number): string[] =>
    Array.from({ length: count }, (_, index) => volumeName('upgrade.tar', index));
  const readAll = async (): Promise<Buffer> => {
    const own = (await readdir(folder)).filter((name) => /\.\d{3}$/.test(name)).sort();
    return Buffer.concat(await Promise.all(own.map((name) => readFile(join(folder, name)))));
  };

  it('has the same bytes as in one file, in whichever order content comes', async () => {
    const count = Math.ceil(whole.length / volumeSize);
    expect(count).to.be.greaterThan(3);
    for (const reversed of [false, true]) {
      const writer = await openWriter();
      expect((await readdir(folder)).filter((name) => /\d$/.test(name))).to.deep.equal(reversed ? names(count) : []);
      await pushAll(writer, reversed);
      await writer.finish();
      expect((await readdir(folder)).sort()).to.deep.equal(names(count));
      expect((await readAll()).equals(whole)).to.equal(true);
    }
  });

  it('names the volume of a damaged header, and only the file if there are no volumes', async () => {
    const damaged = Buffer.from(whole);
    const { start } = layOutTar(entries).entries.at(-1) ?? expect.fail();
    damaged.fill('x', start - 512, start);
    const messageFor = async (size: number): Promise<string> => {
      const parts = Array.from({ length: Math.ceil(damaged.length / size) }, (_, index) =>
        damaged.subarray(index * size, (index + 1) * size),
      );
      for (const [index, part] of parts.entries())
        await writeFile(parts.length === 1 ? path : volumeName(path, index), part);
      return (await failureOf(Archive.open(path, context), 'invalid-bundle')).message;
    };
    expect(await messageFor(volumeSize)).to.contain(
      `, which is in ${volumeName(path, Math.floor((start - 512) / volumeSize))}`,
    );
    expect(await messageFor(damaged.length)).not.to.contain('which is in');
  });

  it('is read in place by any of its names', async () => {
    await make();
    for (const name of [path, volumeName(path, 0), volumeName(path, 2)]) {
      const archive = await Archive.open(name, context);
      expect(archive.path).to.equal(path);
      for (const { descriptor, bytes } of await contentOf(sample)) {
        const stream = await archive.repository(repository).fetch(descriptor);
        expect(Buffer.concat(await stream.toArray()).equals(bytes)).to.equal(true);
      }
      await archive.close();
    }
    await using opened = await openLocation(await parseLocation(path), context);
    expect(opened.repositories).to.deep.equal([repository]);
  });

  it('says which volume content that is corrupt lies in', async () => {
    await make();
    const archive = await Archive.open(path, context);
    const { descriptor } = (await contentOf(sample))[0] ?? expect.fail();
    const place = archive.entries.get(`v2/${repository}/blobs/${descriptor.digest}`) ?? expect.fail();
    const index = Math.floor(place.start / volumeSize);
    const bytes = await readFile(volumeName(path, index));
    bytes[place.start % volumeSize] = (bytes[place.start % volumeSize] ?? 0) ^ 0xff;
    await writeFile(volumeName(path, index), bytes);
    const stream = await archive.repository(repository).fetch(descriptor);
    const { message } = await failureOf(stream.toArray(), 'digest-mismatch');
    expect(message).to.include(volumeName(path, index));
    await archive.close();
  });

  it('is not readable without its first volume, which is named', async () => {
    await make();
    await rm(volumeName(path, 0));
    const { message } = await failureOf(Archive.open(volumeName(path, 1), context, true), 'not-readable');
    expect(message).to.include(volumeName(path, 0));
  });

  it('replaces an earlier archive in any form completely', async () => {
    await make(700);
    await writeFile(join(folder, 'other.tar.000'), 'not ours');
    await make(volumeSize);
    expect((await readAll()).includes(whole)).to.equal(true);
    expect(await readdir(folder)).to.have.length(Math.ceil(whole.length / volumeSize) + 1);
    await make(1_000_000);
    expect((await readdir(folder)).sort()).to.deep.equal(['other.tar.000', 'upgrade.tar']);
    await make(volumeSize);
    expect(await readdir(folder)).not.to.include('upgrade.tar');
    await make(1_000_000);
    expect((await readFile(path)).equals(whole)).to.equal(true);
  });

  it('resumes from its journal, and starts from the beginning with volumes of another size', async () => {
    const [first] = await contentOf(sample);
    const begin = async (size: number): Promise<ArchiveWriter> => {
      const writer = await openWriter(size);
      await writer.push(first?.descriptor ?? expect.fail(), () => Promise.resolve(Readable.from([first?.bytes])));
      await writer.close();
      return openWriter(size);
    };
    const writer = await begin(volumeSize);
    expect([...writer.resumed]).to.deep.equal([first?.descriptor.digest]);
    await writer.close();
    const other = await openWriter(900);
    expect(other.resumed.size).to.equal(0);
    expect((await readdir(folder)).filter((name) => name.endsWith('.partial'))).to.have.length(
      Math.ceil(whole.length / 900),
    );
    await pushAll(other);
    await other.finish();
    expect((await readAll()).equals(whole)).to.equal(true);
  });

  it('is whole after a run that was ended while it gave names to volumes', async () => {
    for (let named = 1; named < 4; named++) {
      const writer = await openWriter();
      await pushAll(writer);
      await writer.close();
      const count = Math.ceil(whole.length / volumeSize);
      for (const name of names(count).slice(-named)) await rename(partialOf(join(folder, name)), join(folder, name));
      const again = await openWriter();
      expect(again.resumed.size).to.equal((await contentOf(sample)).length);
      await again.finish();
      expect((await readAll()).equals(whole)).to.equal(true);
    }
  });

  it('starts from the beginning if a volume is missing', async () => {
    const writer = await openWriter();
    await pushAll(writer);
    await writer.close();
    await rm(partialOf(volumeName(path, 1)));
    const again = await openWriter();
    expect(again.resumed.size).to.equal(0);
    await again.close();
    expect(await readFile(journalOf(path), 'utf8')).to.match(/^[0-9a-f]{64}\n$/);
  });
});
