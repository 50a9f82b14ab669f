import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { verifyBundle, type VerifyReport } from '../../../lib/bundle/verify.ts';
import { Archive } from '../../../lib/content/archive/archive.ts';
import { rewrite } from '../../support/archive/repack.ts';
import { tarAttacks } from '../../support/archive/tarAttacks.ts';
import { makeFile, makePax, paxRecord } from '../../support/archive/tarBytes.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeBlob } from '../../support/content/layers.ts';
import { makeContext } from '../../support/context.ts';
import { requirePeer, run, runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

const binding = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: everybody
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:authenticated}]
`;

describe('a tar that tar programs read in different ways', () => {
  let bundle: TestBundle;
  let layer: string;
  let original: Buffer;
  const at = (name: string): string => join(bundle.folder, name);

  before(async () => {
    const contents = new TestContent();
    const blob = makeBlob(Buffer.from(binding));
    layer = `v2/openshift/release/blobs/${blob.digest}`;
    const repository = 'example/harmless';
    const image = { architecture: 'amd64', layers: [{ ...blob, diffId: blob.digest }] };
    const { digest } = contents.addImage(repository, image, 'v1');
    const tagged = `quay.io/${repository}:v1`;
    const names = { pullspec: `quay.io/${repository}@${digest}`, tagged, repository, tag: 'v1' };
    bundle = await makeBundle({
      extraImages: [
        {
          digest,
          ...names,
          content: contents.content,
          blobs: contents.blobs,
          addTo: (all) => void contents.addTo(all),
        },
      ],
    });
    original = await readFile(bundle.path);
  });
  after(() => bundle.remove());

  /** Inserts bytes into the bundle. Its metadata then has the right size. */
  async function insert(name: string, position: number, bytes: Buffer): Promise<string> {
    const { size } = bundle.result.metadata;
    const [before, after] = [`"size": ${size}`, `"size": ${size + bytes.length}`];
    if (before.length !== after.length) throw new Error('the size has another number of digits');
    const path = at(name);
    await writeFile(path, Buffer.concat([original.subarray(0, position), bytes, original.subarray(position)]));
    return rewrite(path, path, (tar) => {
      tar.write(after, tar.indexOf(before));
      return tar;
    });
  }

  async function verify(path: string): Promise<VerifyReport> {
    await using opened = await openBundle(path, makeContext(), { tolerant: true });
    const trust = {
      keyrings: [bundle.keyFile],
      fingerprints: [bundle.key.fingerprint],
      allowUnsigned: false,
      fetchFile: () => Promise.reject(new Error('nothing should be fetched')),
    };
    return await verifyBundle(opened, { trust }, makeContext());
  }

  it('does not get a ClusterRoleBinding onto the disk by way of a good bundle', async function () {
    requirePeer(this, 'tar');
    const archive = await Archive.open(bundle.path, makeContext());
    const position = (archive.entries.get(layer)?.start ?? 0) - 512;
    await archive.close();
    const records = [
      paxRecord('GNU.sparse.name', 'config/zz.yaml'),
      paxRecord('GNU.sparse.numblocks', '1'),
      paxRecord('GNU.sparse.map', `0,${binding.length}`),
    ];
    const path = await insert('binding.tar', position, makePax(records.join('')));

    await mkdir(at('out'));
    await runSuccessfully('tar', ['-xf', path, '-C', at('out')]);
    expect(await readFile(at('out/config/zz.yaml'), 'utf8')).to.equal(binding);

    expect((await verify(bundle.path)).problems).to.deep.equal([]);
    const { problems } = await verify(path);
    expect(problems[0]?.message).to.include('is refused').and.to.include('GNU.sparse.name');
    const error = await failureOf(openBundle(path, makeContext()), 'invalid-bundle');
    expect(error.message).to.include('GNU.sparse.name');
  });

  it('quotes no name and no keyword that a bundle cannot have', async () => {
    const end = original.length - 1024;
    const hostile = [makeFile('/root:$6$secret', 'x'), makePax(paxRecord('secret', 'x')), makeFile('../secret', 'x')];
    for (const bytes of hostile) {
      const error = await failureOf(openBundle(await insert('names.tar', end, bytes), makeContext()), 'invalid-bundle');
      expect(error.message)
        .to.match(/at byte \d+|a pax header/)
        .and.not.to.include('secret');
    }
  });

  for (const [what, bytes] of Object.entries(tarAttacks)) {
    it(`is refused with ${what}`, async () => {
      const path = await insert('attack.tar', original.length - 1024, bytes);
      await failureOf(openBundle(path, makeContext()), 'invalid-bundle');
      const { problems } = await verify(path);
      expect(problems.map(({ subject, kind }) => `${kind} ${subject}`)).to.include('corrupt bundle');
    });
  }

  describe('packed again', () => {
    const members = ['metadata.json', 'config', 'v2'];
    const pack: Readonly<Record<string, readonly [command: 'tar' | 'bsdtar', ...options: string[]]>> = {
      'GNU tar': ['tar', '--format=gnu'],
      'GNU tar in the ustar format': ['tar', '--format=ustar', '--mtime=2001-01-01', '--owner=someone:1000'],
      'GNU tar in the POSIX format': ['tar', '--format=pax', '--mode=u=rw,go='],
      'GNU tar with extended attributes': ['tar', '--format=pax', '--xattrs', '--acls'],
      bsdtar: ['bsdtar'],
      'bsdtar in the POSIX format': ['bsdtar', '--format=pax'],
      'bsdtar in the ustar format': ['bsdtar', '--format=ustar'],
      'bsdtar in the format of GNU tar': ['bsdtar', '--format=gnutar', '--uid=1000', '--uname=someone'],
    };
    for (const [what, [command, ...args]] of Object.entries(pack)) {
      it(`by ${what} is good, with a warning`, async function () {
        requirePeer(this, command);
        const path = at(`${what.replaceAll(' ', '-')}.tar`);
        const folder = await bundle.unpack();
        await runSuccessfully(command, [...args, '-C', folder, '-cf', path, './metadata.json', ...members.slice(1)]);
        const { problems, warnings, images } = await verify(path);
        expect(problems).to.deep.equal([]);
        expect(warnings.map(({ kind }) => kind)).to.deep.equal(['repacked']);
        expect(images.whole).to.equal(images.expected);
        await using opened = await openBundle(path, makeContext());
        expect((await opened.content.resolve(bundle.release.tag)).digest).to.equal(bundle.release.digest);
      });
    }

    it('is not good with anything but zeros in its padding or after its end', async function () {
      requirePeer(this, 'tar');
      const path = at('again.tar');
      await runSuccessfully('tar', ['-C', await bundle.unpack(), '-cf', path, ...members]);
      const archive = await Archive.open(path, makeContext());
      const { start, size } = archive.entries.get('metadata.json') ?? { start: 0, size: 0 };
      await archive.close();
      for (const position of [start + size, archive.size]) {
        const copy = await rewrite(path, at('stray.tar'), (bytes) => {
          const longer = Buffer.concat([bytes, Buffer.alloc(512)]);
          longer[position] = 1;
          return longer;
        });
        expect((await verify(copy)).problems).to.have.length(1);
      }
    });
  });

  it('is good with nothing but zeros after its end, with a warning', async () => {
    const path = await rewrite(bundle.path, at('padded.tar'), (bytes) => Buffer.concat([bytes, Buffer.alloc(9000)]));
    const { problems, warnings } = await verify(path);
    expect(problems).to.deep.equal([]);
    expect(warnings.map(({ message }) => message).join()).to.include('9000 zeros');
    expect((await run('tar', ['-tf', path])).code).to.equal(0);
  });
});
