import { readFileSync, writeFileSync } from 'node:fs';
import { appendFile, copyFile, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { identifyBundle, type BundleIdentity } from '../../../lib/bundle/open/identity.ts';
import { hexOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { digestOfFile } from '../../support/content/creation.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('identifyBundle', () => {
  let bundle: TestBundle;

  before(async () => {
    bundle = await makeBundle({ version: '4.19.4' });
  });
  after(() => bundle.remove());
  const nobody = {
    keyrings: [],
    fingerprints: [],
    allowUnsigned: false,
    fetchFile: () => Promise.reject(new Error('asked')),
  };
  const identify = (path: string, context: TestContext = makeContext()): Promise<BundleIdentity> =>
    identifyBundle(path, { ...nobody, keyrings: [bundle.keyFile], fingerprints: [bundle.key.fingerprint] }, context);

  it('is the same for a bundle and for the files beside it', async () => {
    const digest = await digestOfFile(bundle.path);
    const expected = { name: '4.19.4-x86-64', digest, version: '4.19.4', releaseDigest: bundle.release.digest };
    const { releaseDigest: _, ...noted } = expected;
    expect(await identify(`${bundle.path}.yaml`)).to.deep.equal(expected);
    expect(await identify(`${bundle.path}.sha256`)).to.deep.equal(noted);
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
      const [, version] = /^upgrade-(\d+\.\d+\.\d+(?:-rc\.1|-0\.okd-scos)?)-/.exec(file) ?? [];
      expect(await identify(path)).to.deep.equal({ name, version, digest: `sha256:${hex}` });
    }
  });

  it('takes the digest of a bundle with nothing beside it', async () => {
    const path = join(bundle.folder, 'alone.tar');
    await copyFile(bundle.path, path);
    expect(await identify(path)).to.deep.include({ name: '4.19.4-x86-64', digest: await digestOfFile(bundle.path) });
  });

  describe('of a genuine bundle beside a file of another genuine bundle', () => {
    let later: TestBundle;
    let path: string;
    let [own, other]: Digest[] = [];
    before(async () => {
      later = await makeBundle({ version: '4.19.5', seed: 'later' });
      path = join(later.folder, basename(bundle.path));
      [own, other] = [await digestOfFile(bundle.path), await digestOfFile(later.path)];
    });
    after(() => later.remove());
    beforeEach(() => copyFile(bundle.path, path));
    afterEach(() => Promise.all([`${path}.sha256`, `${path}.yaml`].map((file) => rm(file, { force: true }))));

    it('refuses the digest of a .sha256 file, and names both', async () => {
      await writeFile(`${path}.sha256`, `${hexOf(other ?? 'sha256:')}  ${basename(path)}\n`);
      const { message } = await failureOf(identify(path), 'digest-mismatch');
      expect(message).to.equal(`${path}.sha256 states the digest ${String(other)}, and ${path} has ${String(own)}`);
    });

    it('reads a .sha256 file that Windows or macOS wrote', async () => {
      const name = basename(path);
      const forms = (hex: string): (string | Buffer)[] => [
        `\ufeff${hex}  ${name}\r\n`,
        Buffer.from(`\ufeff${hex}  ${name}\r\n`, 'utf16le'),
        `${hex.toUpperCase()} *${name}\n`,
        `SHA256 (${name}) = ${hex}\n`,
      ];
      for (const form of forms(hexOf(other ?? 'sha256:'))) {
        await writeFile(`${path}.sha256`, form);
        await failureOf(identify(path), 'digest-mismatch');
      }
      for (const form of forms(hexOf(own ?? 'sha256:'))) {
        await writeFile(`${path}.sha256`, form);
        await identify(path);
      }
    });

    it('refuses a .sha256 file in another form', async () => {
      for (const text of ['MD5 (a) = 00\n', `${hexOf(own ?? 'sha256:').slice(1)}  ${basename(path)}\n`, '<html>\n']) {
        await writeFile(`${path}.sha256`, text);
        expect((await failureOf(identify(path), 'invalid-file')).message).to.include('line 1');
      }
    });

    it('refuses a .yaml file with another digest, version or release', async () => {
      const yaml = await readFile(`${bundle.path}.yaml`, 'utf8');
      const changes = [
        [String(own), String(other)],
        ['version: 4.19.4', 'version: 4.19.5'],
        [bundle.release.digest, later.release.digest],
      ] as const;
      for (const [right, wrong] of changes) {
        const changed = yaml.replace(right, wrong);
        expect(changed).not.to.equal(yaml);
        await writeFile(`${path}.yaml`, changed);
        const { message } = await failureOf(identify(path), 'digest-mismatch');
        expect(message).to.contain(`${path}.yaml states the `);
        expect(message).to.contain(wrong.replace('version: ', ''));
      }
      await writeFile(`${path}.yaml`, yaml);
      expect((await identify(path)).digest).to.equal(own);
    });

    it('counts every byte, also after the size in metadata.json and after the end', async () => {
      await appendFile(path, Buffer.alloc(512));
      expect((await identify(path)).digest).to.equal(await digestOfFile(path));
      await appendFile(path, await readFile(later.path));
      const found = await identify(path).then(
        ({ digest }) => digest,
        () => undefined,
      );
      expect([undefined, await digestOfFile(path)]).to.include(found);
    });
  });

  it('refuses a file that does not identify a bundle', async () => {
    const path = join(bundle.folder, 'strange.yaml');
    await writeFile(path, 'kind: ConfigMap\napiVersion: v1\n');
    await failureOf(identify(path), 'invalid-file');
    const yaml = await readFile(`${bundle.path}.yaml`, 'utf8');
    await writeFile(path, yaml.replace(/digest: sha256:.*/, 'digest: sha256:short'));
    await failureOf(identify(path), 'invalid-file');
    const named = join(bundle.folder, 'strange.tar.sha256');
    await writeFile(named, `${'a'.repeat(64)}  strange.tar\n`);
    await failureOf(identify(named), 'usage');
    await rename(named, join(bundle.folder, 'strange'));
    await failureOf(identify(join(bundle.folder, 'strange')), 'invalid-bundle');
  });

  it('refuses a bundle whose metadata changes while it is read', async () => {
    const path = join(bundle.folder, 'changing.tar');
    await copyFile(bundle.path, path);
    const context = makeContext(({ kind }) => {
      if (kind !== 'plan') return;
      const bytes = readFileSync(path);
      bytes.write('4.19.5', bytes.indexOf('4.19.4'));
      writeFileSync(path, bytes);
    });
    const { message } = await failureOf(identify(path, context), 'digest-mismatch');
    expect(message).to.contain('returned other bytes for metadata.json');
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
