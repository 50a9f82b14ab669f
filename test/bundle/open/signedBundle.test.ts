import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import type { VerifyTrust } from '../../../lib/bundle/open/signatureCheck.ts';
import { checkSigned } from '../../../lib/bundle/open/signedBundle.ts';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import type { Context } from '../../../lib/context.ts';
import type { SignedRelease } from '../../../lib/release/load.ts';
import { repack, type UnpackedBundle } from '../../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeSigningKey } from '../../support/release/signing.ts';

describe('checkSigned', () => {
  // The payload names stores, but they must not be asked.
  const store = 'https://signatures.invalid/';
  let bundle: TestBundle;
  let unsigned: TestBundle;
  let asked: string[];
  before(async () => {
    const verification = { publicKey: (await makeSigningKey()).publicKey, stores: [store] };
    [bundle, unsigned] = await Promise.all([
      makeBundle({ arch: 'multi', verification }),
      makeBundle({ signed: false, verification }),
    ]);
  });
  after(() => Promise.all([bundle.remove(), unsigned.remove()]));
  beforeEach(() => (asked = []));

  const check = async (
    path: string,
    trust: Partial<VerifyTrust> = {},
    context: Context = makeContext(),
  ): Promise<SignedRelease> => {
    await using opened = await openBundle(path, context);
    const believed = { keyrings: [bundle.keyFile], fingerprints: [bundle.key.fingerprint], allowUnsigned: false };
    const fetchFile = (url: URL): Promise<undefined> => {
      asked.push(url.host);
      return Promise.resolve(undefined);
    };
    return await checkSigned(opened, { ...believed, fetchFile, ...trust }, context);
  };
  let copies = 0;
  const change = (how: (unpacked: UnpackedBundle) => void): Promise<string> =>
    repack(bundle.path, join(bundle.folder, `changed-${(copies += 1)}.tar`), how);

  it('finds who signed a release and the images in it, without a network', async () => {
    const { release, signatures } = await check(bundle.path);
    expect([...signatures.keys()]).to.have.members([release.digest, ...bundle.release.children]);
    expect(signatures.get(release.digest)?.[0]?.fingerprint).to.equal(bundle.key.fingerprint);
    expect(asked).to.deep.equal([]);
  });

  it('trusts a mirror directory of another tool by its signature, too', async () => {
    const folder = await bundle.unpack();
    await rm(join(folder, 'metadata.json'));
    await writeFile(join(folder, 'config', 'README'), ': not a manifest');
    expect((await check(folder)).release.digest).to.equal(bundle.release.digest);
  });

  it('refuses an unsigned bundle without asking the stores that it names, unless that is allowed', async () => {
    await failureOf(check(unsigned.path), 'unsigned');
    const context = makeContext();
    const { signatures } = await check(unsigned.path, { allowUnsigned: true }, context);
    expect(signatures.size).to.equal(0);
    expect(context.lines.join('\n')).to.match(/^warn: no signature/m);
    expect(asked).to.deep.equal([]);
  });

  it('asks the store that is given', async () => {
    await failureOf(check(unsigned.path, { store: 'https://mirror.test/signatures' }), 'unsigned');
    expect(new Set(asked)).to.deep.equal(new Set(['mirror.test']));
  });

  it('refuses the signature of a key that is not trusted', async () => {
    const error = await failureOf(check(bundle.path, { fingerprints: [] }), 'untrusted');
    expect(error.message).to.contain(bundle.key.fingerprint);
  });

  it('refuses metadata that names other images than the signed release', async () => {
    const path = await change((unpacked) => {
      const [first = '', second = ''] = Object.keys(unpacked.metadata.components);
      const components = {
        ...unpacked.metadata.components,
        [first]: unpacked.metadata.components[second] ?? '',
      };
      unpacked.metadata = { ...unpacked.metadata, components };
    });
    const error = await failureOf(check(path), 'invalid-bundle');
    expect(error.message).to.contain(path).and.contain('another image than the release does');
    expect(error.hint).to.contain('verify');
  });

  it('refuses a signature that was made for another release', async () => {
    const config = join(await bundle.unpack(), 'config');
    const names = await readdir(config, { recursive: true });
    const signature = names.find((name) => name.includes(hexOf(bundle.release.digest).slice(0, 16))) ?? '';
    const text = await readFile(join(config, signature), 'utf8');
    const forged = text.replaceAll(hexOf(bundle.release.digest), hexOf(unsigned.release.digest));
    const path = await repack(unsigned.path, join(unsigned.folder, 'forged.tar'), ({ files }) => {
      files.set('config/signature.yaml', Buffer.from(forged));
    });
    await failureOf(check(path), 'untrusted');
  });

  it('says which configuration cannot be read, also if it had the signature', async () => {
    let broken = '';
    const path = await change(({ files }) => {
      broken = [...files.keys()].find((name) => name.includes(hexOf(bundle.release.digest).slice(0, 16))) ?? '';
      files.set(broken, Buffer.from('a: ['));
    });
    const error = await failureOf(check(path), 'invalid-bundle');
    expect(error.message).to.contain(broken).and.contain('config/');
    expect(error.hint).to.contain('verify');
  });
});
