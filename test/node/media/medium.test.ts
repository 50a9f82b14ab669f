import { copyFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { examineFiles, withoutBases, type FoundBundle } from '../../../lib/node/media/medium.ts';
import { makeTarFile } from '../../support/archive/archive.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('withoutBases', () => {
  const made: TestBundle[] = [];
  const found: FoundBundle[] = [];

  before(async () => {
    const base = await makeBundle({ version: '4.19.4' });
    made.push(base);
    made.push(await makeBundle({ version: '4.19.5', base: base.path }));
    made.push(await makeBundle({ version: '4.19.4', seed: 'another' }));
    for (const { folder } of made) {
      const names = (await readdir(folder)).filter((name) => name.endsWith('.tar'));
      found.push(...(await examineFiles(folder, names, { device: '/dev/sdb' }, makeContext())).bundles);
    }
  });
  after(() => Promise.all(made.map((bundle) => bundle.remove())));
  const meant = (...which: number[]): string[] =>
    withoutBases(which.map((index) => found[index] ?? expect.fail())).map(({ version }) => version);

  it('leaves out the base of a delta, and works without one', () => {
    expect(meant(0, 1)).to.deep.equal(['4.19.5']);
    expect(meant(1, 0, 0)).to.deep.equal(['4.19.5']);
    expect(meant(0)).to.deep.equal(['4.19.4']);
    expect(meant(1)).to.deep.equal(['4.19.5']);
    expect(meant(0, 2)).to.deep.equal(['4.19.4', '4.19.4']);
  });

  it('takes no other release for the base because it has the same version', () => {
    expect(meant(2, 1)).to.deep.equal(['4.19.4', '4.19.5']);
  });
});

describe('examineFiles', () => {
  let folder: string;

  beforeEach(async () => {
    folder = await makeFolder();
  });
  afterEach(() => removeFolder(folder));

  it('rejects 64 files of brackets in seconds', async () => {
    const tar = makeTarFile([{ path: 'metadata.json', content: Buffer.from('['.repeat(3_000_000)) }]);
    const names = Array.from({ length: 64 }, (_, index) => `upgrade-${index}.tar`);
    for (const name of names) await writeFile(join(folder, name), tar);
    const start = process.cpuUsage();
    const { bundles, rejected } = await examineFiles(folder, names, { device: '/dev/sdb' }, makeContext());
    expect(process.cpuUsage(start).user / 1e6).to.be.below(20);
    expect(bundles).to.deep.equal([]);
    expect(new Set(rejected.map(({ reason }) => reason.replace(/^.* is not JSON/, '')))).to.deep.equal(
      new Set([': nested more than 256 levels at line 1, column 257']),
    );
  });

  it('reads the files of a medium within a time limit', async () => {
    const made = await makeBundle();
    const names = Array.from({ length: 30 }, (_, index) => `upgrade-${index}.tar`);
    for (const name of names) await copyFile(made.path, join(folder, name));
    await made.remove();
    const all = await examineFiles(folder, names, { device: '/dev/sdb' }, makeContext());
    expect(all.bundles).to.have.length(names.length);
    const { bundles, rejected } = await examineFiles(folder, names, { device: '/dev/sdb' }, makeContext(), 1);
    expect(bundles.length + rejected.length).to.equal(names.length);
    const last = rejected.at(-1);
    expect(last?.path).to.equal(join(folder, 'upgrade-29.tar'));
    expect(last?.reason).to.equal('it was not read, because finding the bundles of one medium may take 0.001 s');
  });
});
