import { copyFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { identifyBundle } from '../../lib/bundle/identity.ts';
import { makeBundle, type TestBundle } from '../support/bundle.ts';
import { makeContext } from '../support/context.ts';
import { digestOfFile } from '../support/creation.ts';
import { failureOf } from '../support/failure.ts';

describe('identifyBundle', () => {
  let bundle: TestBundle;

  before(async () => {
    bundle = await makeBundle({ version: '4.19.4' });
  });
  after(() => bundle.remove());

  it('is the same for a bundle and for what stands beside it', async () => {
    const expected = { name: '4.19.4-x86-64', digest: await digestOfFile(bundle.path) };
    for (const path of [bundle.path, `${bundle.path}.yaml`, `${bundle.path}.sha256`]) {
      expect(await identifyBundle(path, makeContext()), path).to.deep.equal(expected);
    }
  });

  it('takes the digest of a bundle with nothing beside it', async () => {
    const path = join(bundle.folder, 'alone.tar');
    await copyFile(bundle.path, path);
    const context = makeContext();
    expect(await identifyBundle(path, context)).to.deep.equal({
      ...{ name: '4.19.4-x86-64', digest: await digestOfFile(bundle.path) },
    });
    expect(context.lines[0]).to.contain('there is no alone.tar.sha256 beside it');
  });

  it('refuses what says nothing about a bundle', async () => {
    const path = join(bundle.folder, 'strange.yaml');
    await writeFile(path, 'kind: ConfigMap\napiVersion: v1\n');
    await failureOf(identifyBundle(path, makeContext()), 'invalid-file');
    const named = join(bundle.folder, 'strange.tar.sha256');
    await writeFile(named, `${'a'.repeat(64)}  strange.tar\n`);
    await failureOf(identifyBundle(named, makeContext()), 'usage');
    await rename(named, join(bundle.folder, 'strange'));
    await failureOf(identifyBundle(join(bundle.folder, 'strange'), makeContext()), 'invalid-bundle');
  });
});
