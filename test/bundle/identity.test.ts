import { copyFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { identifyBundle, type BundleIdentity } from '../../lib/bundle/identity.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { makeContext, type TestContext } from '../support/context.ts';
import { digestOfFile } from '../support/content/creation.ts';
import { failureOf } from '../support/program/failure.ts';

describe('identifyBundle', () => {
  let bundle: TestBundle;

  before(async () => {
    bundle = await makeBundle({ version: '4.19.4' });
  });
  after(() => bundle.remove());
  const nobody = {
    ...{ keyrings: [], fingerprints: [], allowUnsigned: false },
    fetchFile: () => Promise.reject(new Error('asked')),
  };
  const identify = (path: string, context: TestContext = makeContext()): Promise<BundleIdentity> =>
    identifyBundle(path, { ...nobody, keyrings: [bundle.keyFile], fingerprints: [bundle.key.fingerprint] }, context);

  it('is the same for a bundle and for what stands beside it', async () => {
    const expected = { name: '4.19.4-x86-64', digest: await digestOfFile(bundle.path) };
    for (const path of [`${bundle.path}.yaml`, `${bundle.path}.sha256`]) {
      expect(await identify(path), path).to.deep.equal(expected);
    }
    const { evidence, ...own } = await identify(bundle.path);
    expect(own).to.deep.equal(expected);
    const [signature] = evidence?.signed.signatures.get(bundle.release.digest) ?? [];
    expect(signature?.fingerprint).to.equal(bundle.key.fingerprint);
    expect(evidence?.signatures).to.deep.equal([signature?.bytes]);
  });

  it('reads the .sha256 file of a delta bundle, and of a release with a suffix', async () => {
    const names = {
      'upgrade-4.19.4-x86_64-from-4.19.3.tar': '4.19.4-x86-64',
      'upgrade-4.20.0-rc.1-multi-from-4.19.9.tar': '4.20.0-rc.1-multi',
      'upgrade-4.20.0-0.okd-scos-x86_64.tar': '4.20.0-0.okd-scos-x86-64',
    };
    const hex = 'a'.repeat(64);
    for (const [file, name] of Object.entries(names)) {
      const path = join(bundle.folder, `${file}.sha256`);
      await writeFile(path, `${hex}  ${file}\n`);
      expect(await identify(path)).to.deep.equal({ name, digest: `sha256:${hex}` });
    }
  });

  it('takes the digest of a bundle with nothing beside it', async () => {
    const path = join(bundle.folder, 'alone.tar');
    await copyFile(bundle.path, path);
    const context = makeContext();
    expect(await identify(path, context)).to.deep.include({
      ...{ name: '4.19.4-x86-64', digest: await digestOfFile(bundle.path) },
    });
    expect(context.lines.join('\n')).to.contain('because alone.tar.sha256 is missing');
  });

  it('refuses what says nothing about a bundle', async () => {
    const path = join(bundle.folder, 'strange.yaml');
    await writeFile(path, 'kind: ConfigMap\napiVersion: v1\n');
    await failureOf(identify(path), 'invalid-file');
    const named = join(bundle.folder, 'strange.tar.sha256');
    await writeFile(named, `${'a'.repeat(64)}  strange.tar\n`);
    await failureOf(identify(named), 'usage');
    await rename(named, join(bundle.folder, 'strange'));
    await failureOf(identify(join(bundle.folder, 'strange')), 'invalid-bundle');
  });

  it('refuses a bundle without a trusted signature, and uses no network', async () => {
    const error = await failureOf(identifyBundle(bundle.path, nobody, makeContext()), 'untrusted');
    expect(error.message).to.contain(bundle.release.digest);
    const { name } = await identifyBundle(bundle.path, { ...nobody, allowUnsigned: true }, makeContext());
    expect(name).to.equal('4.19.4-x86-64');
  });

  it('refuses a mirror directory before anything else is asked of it', async () => {
    await failureOf(identifyBundle(await bundle.unpack(), nobody, makeContext()), 'usage');
  });
});
