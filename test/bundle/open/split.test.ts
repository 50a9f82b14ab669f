import { execFileSync } from 'node:child_process';
import { appendFile, copyFile, mkdir, readdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { verdictOf } from '../../../cmd/upgrade-bundle/report/verdict.ts';
import type { BundleMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { findSplit } from '../../../lib/bundle/open/split.ts';
import { verifyBundle, type VerifyReport } from '../../../lib/bundle/verify.ts';
import { volumeName } from '../../../lib/content/archive/volumes.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { readContent } from '../../../lib/content/store/store.ts';
import { repack } from '../../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

const volumeSize = 40_000;

describe('a bundle in volumes', () => {
  let made: TestBundle;
  let folder: string;
  let path: string;
  let names: string[];
  let joined: Buffer;

  before(async () => {
    made = await makeBundle({ volumeSize, layerSize: 20_000 });
    names = (await readdir(made.folder)).filter((name) => /\.\d{3}$/.test(name)).sort();
    joined = Buffer.concat(await Promise.all(names.map((name) => readFile(join(made.folder, name)))));
  });
  after(() => made.remove());
  beforeEach(async () => {
    folder = join(made.folder, 'drive');
    await mkdir(folder);
    for (const name of await readdir(made.folder))
      if (name.startsWith('upgrade-')) await copyFile(join(made.folder, name), join(folder, name));
    path = join(folder, basename(made.path));
  });
  afterEach(() => rm(folder, { recursive: true }));

  const at = (index: number): string => volumeName(path, index);
  const verify = async (name = path): Promise<VerifyReport> => {
    const context = makeContext();
    await using bundle = await openBundle(name, context, { tolerant: true });
    return await verifyBundle(bundle, {}, context);
  };
  const problemsOf = async (name?: string): Promise<(readonly [string, string, string])[]> => {
    return (await verify(name)).problems.map(({ kind, subject, what }) => [kind, subject, what] as const);
  };

  it('lists its volumes in the metadata and in the file beside them', async () => {
    const { metadata, digest } = made.result;
    expect(names.length).to.be.greaterThan(4);
    expect(metadata.size).to.equal(joined.length);
    expect(metadata.volumes?.map(({ name }) => name)).to.deep.equal(names);
    const sizes = metadata.volumes?.map(({ size }) => size) ?? [];
    expect(sizes.slice(0, -1).every((size) => size === volumeSize)).to.equal(true);
    expect(sizes.reduce((sum, size) => sum + size)).to.equal(joined.length);
    expect(digest).to.equal(digestOf(joined));
    const lines = (await readFile(`${path}.sha256`, 'utf8')).trimEnd().split('\n');
    expect(lines).to.have.length(names.length + 1);
    expect(lines.at(-1)).to.equal(`# ${digestOf(joined).slice(7)}  ${basename(path)}`);
  });

  it('is checked by sha256sum, and unpacked by cat and tar', () => {
    const sum = execFileSync('sha256sum', ['--check', '--strict', '--quiet', `${basename(path)}.sha256`], {
      cwd: folder,
      encoding: 'utf8',
    });
    expect(sum).to.equal('');
    const text = execFileSync('sh', ['-c', `cat ${basename(path)}.??? | tar -xO metadata.json`], { cwd: folder });
    expect((JSON.parse(text.toString()) as BundleMetadata).version).to.equal('4.12.4');
  });

  it('is good under each of its names', async () => {
    for (const name of [path, at(0), at(3), folder]) {
      const report = await verify(name);
      expect(report.problems).to.deep.equal([]);
      expect(report.digest).to.equal(made.result.digest);
      expect(report.confirmedBy).to.deep.equal([`${path}.sha256`]);
      expect(report.volumes).to.have.length(names.length);
    }
  });

  it('is good beside the files that macOS writes', async () => {
    for (const name of await readdir(folder)) await writeFile(join(folder, `._${name}`), 'Mac OS X');
    for (const name of [path, folder]) expect((await verify(name)).problems).to.deep.equal([]);
  });

  it('is read in place, blobs that lie across volumes too', async () => {
    await using bundle = await openBundle(at(1), makeContext());
    for (const { digest, size } of bundle.metadata.blobs) {
      const mediaType = 'application/octet-stream';
      expect(await readContent(bundle.content, { mediaType, digest, size })).to.have.length(size);
    }
  });

  it('has each volume named that is missing', async () => {
    await rm(at(2));
    await rm(at(4));
    const { message, hint } = await failureOf(openBundle(at(0), makeContext()), 'invalid-bundle');
    expect(message).to.include(at(2)).and.include(at(4)).and.not.include(at(3));
    expect(hint).to.match(/copy these volumes again/i);
    const volumes = (await problemsOf()).filter(([, subject]) => subject === 'volume');
    expect(volumes).to.deep.equal([
      ['missing', 'volume', names[2]],
      ['missing', 'volume', names[4]],
    ]);
  });

  it('has the last one named that is missing, and the first', async () => {
    await rm(at(names.length - 1));
    const last = await failureOf(openBundle(path, makeContext()), 'invalid-bundle');
    expect(last.message).to.equal(`the volume ${at(names.length - 1)} is missing`);
    await rm(at(0));
    for (const name of [path, at(1), folder]) {
      const first = await failureOf(openBundle(name, makeContext(), { tolerant: true }), 'not-readable');
      expect(first.message).to.include(at(0));
    }
  });

  it('is whole as soon as the last one has arrived, in whichever order', async () => {
    const aside = join(made.folder, 'aside');
    await rename(folder, aside);
    await mkdir(folder);
    for (const name of [...names].reverse()) {
      const { code } = await failureOf(openBundle(path, makeContext()));
      expect(code).to.equal(name === names.at(-1) ? 'not-found' : 'not-readable');
      await copyFile(join(aside, name), join(folder, name));
    }
    await rm(aside, { recursive: true });
    expect(await problemsOf()).to.deep.equal([]);
  });

  it('has a volume named that is cut short, or that has grown', async () => {
    await truncate(at(1), volumeSize - 7);
    expect((await failureOf(openBundle(path, makeContext()), 'invalid-bundle')).message).to.equal(
      `the volume ${at(1)} is cut short: it has ${volumeSize - 7} bytes instead of ${volumeSize}`,
    );
    expect(await problemsOf()).to.deep.include(['truncated', 'volume', names[1]]);
    await appendFile(at(1), Buffer.alloc(8));
    expect((await failureOf(openBundle(path, makeContext()), 'invalid-bundle')).message).to.include(at(1));
  });

  it('has a volume named in which a byte has flipped', async () => {
    const bytes = await readFile(at(3));
    bytes[volumeSize / 2] = (bytes[volumeSize / 2] ?? 0) ^ 1;
    await writeFile(at(3), bytes);
    const volumes = (await problemsOf()).filter(([, subject]) => subject === 'volume');
    expect(volumes).to.deep.equal([['corrupt', 'volume', names[3]]]);
  });

  it('has the volume named in which the tar is garbled', async () => {
    const bytes = await readFile(at(1));
    await writeFile(at(1), bytes.fill(0x55));
    expect((await failureOf(openBundle(path, makeContext()), 'invalid-bundle')).message).to.include(at(1));
    const report = await verify();
    const volumes = report.problems.filter(({ subject }) => subject === 'volume').map(({ what }) => what);
    expect(volumes).to.deep.equal([names[1]]);
    expect(verdictOf(report).hint).to.equal(`Copy this volume again: ${names[1]}. The other volumes are good.`);
    // Nothing after the damage can be read, but the digests of all volumes are there.
    await writeFile(at(3), bytes);
    const both = (await verify()).problems.filter(({ subject }) => subject === 'volume');
    expect(both.map(({ what }) => what)).to.deep.equal([names[1], names[3]]);
  });

  it('has a volume named that is not its own, next to the others and further on', async () => {
    for (const index of [names.length, names.length + 3]) {
      const stray = at(index);
      await writeFile(stray, Buffer.alloc(volumeSize, 1));
      const words = `the volume ${stray} does not belong to the bundle, which has ${names.length} volumes`;
      const { message, hint } = await failureOf(openBundle(path, makeContext()), 'invalid-bundle');
      expect(message).to.equal(words);
      expect(hint).to.equal('Move this file to another folder.');
      expect(await problemsOf()).to.deep.include(['unexpected', 'volume', basename(stray)]);
      await rm(stray);
    }
    expect(await problemsOf()).to.deep.equal([]);
  });

  it('has metadata refused that names other volumes than create writes', async () => {
    const { size } = made.result.metadata;
    const name = basename(path);
    const other = (...sizes: number[]) => sizes.map((each, index) => ({ name: volumeName(name, index), size: each }));
    const lists = {
      'no volume': [],
      'the only volume': other(size),
      'too few': other(volumeSize, volumeSize),
      'other sizes': other(10, size - 10),
      'a folder': [
        { name: `../../etc/${volumeName(name, 0)}`, size: volumeSize },
        { name: '../../etc/passwd', size: size - volumeSize },
      ],
      'two names': other(size - 10, 10).map((each, index) => ({ ...each, name: `${index}.tar.00${index}` })),
      'a wrong number': other(size - 10, 10).map((each) => ({ ...each, name: volumeName(name, 0) })),
      'another name': other(size - 10, 10).map((each, index) => ({ ...each, name: `passwd${index}` })),
    };
    for (const [what, volumes] of Object.entries(lists)) {
      // A whole second bundle after the first must never be left out of the digest.
      const lying = await repack(made.path.concat('.000'), join(folder, 'lying.tar'), (bundle) => {
        bundle.metadata = { ...bundle.metadata, volumes };
      });
      await appendFile(lying, joined);
      const verdict = await problemsOf(lying).catch((error: unknown) => error);
      const found = Array.isArray(verdict) ? verdict.flat() : verdict;
      if (Array.isArray(found)) expect(found, what).to.include('inconsistent').and.include('metadata');
      else expect(found, what).to.have.property('message').that.includes('malformed volumes');
    }
  });

  it('names the volumes of a joined file, whose every byte is hashed', async () => {
    const whole = join(folder, 'joined.tar');
    await writeFile(whole, Buffer.concat([joined, joined]));
    const { problems, digest } = await verify(whole);
    expect(problems.map(({ message }) => message)).to.deep.equal([`${joined.length} bytes follow the end of the tar`]);
    expect(digest).to.equal(digestOf(Buffer.concat([joined, joined])));
  });

  it('is the same after it was joined, or split by another tool', async () => {
    for (const name of names) await rm(join(folder, name));
    await writeFile(path, joined);
    expect(await problemsOf()).to.deep.equal([]);
    await rm(path);
    execFileSync('split', ['-b', '60000', '-d', '-a', '3', '-', `${path}.`], { input: joined });
    expect((await problemsOf()).map(([, subject]) => subject)).to.include('volume');
  });
});

describe('findSplit', () => {
  let made: TestBundle;
  before(async () => (made = await makeBundle()));
  after(() => made.remove());

  it('finds nothing for a bundle in one file, a mirror directory, or a folder with several', async () => {
    expect(await findSplit(made.path)).to.equal(undefined);
    expect(await findSplit(made.folder)).to.equal(undefined);
    expect(await findSplit(await made.unpack())).to.equal(undefined);
    await writeFile(join(made.folder, 'a.tar.000'), '');
    expect(await findSplit(made.folder)).to.equal(join(made.folder, 'a.tar'));
    await writeFile(join(made.folder, 'b.tar.001'), '');
    expect(await findSplit(made.folder)).to.equal(undefined);
    const { hint } = await failureOf(openBundle(made.folder, makeContext()), 'not-found');
    expect(hint).to.match(/a\.tar, b\.tar, upgrade-/);
  });
});

describe('a tar that another tool split', () => {
  it('is read without being named in any metadata', async () => {
    await using made = await makeBundle();
    const path = join(made.folder, 'other', 'upgrade.tar');
    await mkdir(join(made.folder, 'other'));
    execFileSync('split', ['-b', '50000', '-d', '-a', '3', made.path, `${path}.`]);
    const bundle = await openBundle(path, makeContext());
    const report = await verifyBundle(bundle, {}, makeContext());
    expect(report.problems).to.deep.equal([]);
    expect(report.digest).to.equal(made.result.digest);
    await bundle[Symbol.asyncDispose]();
    await rm(volumeName(path, 1));
    expect((await failureOf(openBundle(path, makeContext()), 'invalid-bundle')).message).to.include(
      volumeName(path, 1),
    );
  });
});
