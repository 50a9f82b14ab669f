import { readdir } from 'node:fs/promises';
import { expect } from 'chai';
import { examineFiles, withoutBases, type FoundBundle } from '../../../lib/node/media/medium.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';

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
