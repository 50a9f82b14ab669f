import { expect } from 'chai';
import { listRepositories } from '../../../lib/content/store/directory.ts';
import { layOutAsOc, makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { makeSample } from './contract.ts';

describe('listRepositories', () => {
  it('finds the repositories of a mirror directory at every depth', async () => {
    const root = await makeFolder();
    expect(await listRepositories(root)).to.deep.equal([]);
    for (const name of ['openshift/release', 'a', 'a/b/c']) await layOutAsOc(root, makeSample(name).content);
    expect(await listRepositories(root)).to.deep.equal(['a', 'a/b/c', 'openshift/release']);
    await removeFolder(root);
  });
});
