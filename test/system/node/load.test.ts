import { generateKeyPairSync } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { serveBundle } from '../../../lib/bundle/serve.ts';
import type { LoadResult } from '../../../lib/node/images.ts';
import { copyPrograms } from '../../../lib/node/images/copyImage.ts';
import { HostStorage } from '../../../lib/node/images/hostStorage.ts';
import { StoreIndex } from '../../../lib/node/images/imageStore.ts';
import { removeImages } from '../../../lib/node/images/storeRepair.ts';
import type { Host } from '../../../lib/node/machine/host.ts';
import { createContainers, listImages, storageIn, type ReadStore } from '../../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { components, LoadSite, openLoadSites } from '../../support/loadSite.ts';
import { requirePeer, run } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';
import { failureOf } from '../../support/program/failure.ts';
import { attachmentKey } from '../../support/release/attachments.ts';
import { PolicyJudge } from '../../support/release/policyJudge.ts';

const program = executableOf('oc-adm_upgrade_bundle');

describe('loadBundle', function () {
  requirePeer(this, 'skopeo', 'podman');
  const siteOf = openLoadSites();
  let made: TestBundle;
  let site: LoadSite;
  let folder: string;
  let host: Host;
  let store: ReadStore;
  let names: readonly string[];

  beforeEach(() => {
    site = siteOf();
    ({ made, folder, host, store, names } = site);
  });

  const load = (...args: Parameters<LoadSite['load']>): Promise<LoadResult> => site.load(...args);

  for (const copyProgram of copyPrograms) {
    it(`makes images usable without any network, by ${copyProgram}`, async () => {
      const context = makeContext();
      const result = await load({ program: copyProgram }, context);
      expect(result).to.deep.include({ loaded: names.length, skipped: 0, countedBy: 'podman' });
      expect(result.images).to.have.members(names);
      expect(context.events.filter((event) => event.kind === 'image')).to.have.length(names.length);
      expect(await listImages(store, join(folder, 'reader'))).to.include.members(names);
      await createContainers(store, join(folder, 'reader'), names);
      const again = await load({ program: copyProgram });
      expect(again).to.deep.include({ loaded: 0, skipped: names.length, bytes: 0 });
      expect(await readdir(folder)).to.have.members(['main', 'reader', 'storage.conf']);
    });
  }

  for (const copyProgram of copyPrograms) {
    it(`keeps the sigstore signatures with the images, by ${copyProgram}`, async () => {
      await load({ program: copyProgram });
      const index = JSON.parse(await readFile(join(store.path, 'overlay-images/images.json'), 'utf8')) as {
        names?: string[];
        'big-data-names': string[];
      }[];
      const signed = index
        .filter((image) => image['big-data-names'].some((name) => name.startsWith('signature')))
        .flatMap((image) => image.names ?? []);
      expect(signed).to.include(made.release.pullspec);
      if (!PolicyJudge.isNamed) return;
      const judge = await PolicyJudge.open();
      const isAccepted = (name: string, key: string | Buffer): Promise<boolean> => {
        const rule = { type: 'sigstoreSigned', keyData: Buffer.from(key).toString('base64') };
        const place = `[overlay@${store.path}+${folder}/judge:overlay.skip_mount_home=true]`;
        const identity = { signedIdentity: { type: 'matchRepository' } };
        return judge.accepts(`containers-storage:${place}${name}`, '', { ...rule, ...identity });
      };
      try {
        const other = generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' });
        expect(await isAccepted(made.release.pullspec, attachmentKey), 'signed').to.equal(true);
        expect(await isAccepted(made.release.pullspec, other), 'by another key').to.equal(false);
        const unsigned = names.find((name) => !signed.includes(name)) ?? '';
        expect(await isAccepted(unsigned, attachmentKey), 'not signed').to.equal(false);
      } finally {
        await judge.close();
      }
    });
  }

  it('loads only the images that are asked for, and adds to a store that is in use', async () => {
    const etcd = made.release.images.get('etcd');
    const first = await load({ images: ['etcd'] });
    expect(first.images).to.deep.equal([etcd?.pullspec]);
    const second = await load({ images: ['release', etcd?.digest ?? ''] });
    expect(second).to.deep.include({ loaded: 1, skipped: 1 });
    const seen = await listImages(store, join(folder, 'reader'));
    expect(seen).to.include.members([etcd?.pullspec, made.release.pullspec]);
    const error = await failureOf(load({ images: ['no-such-thing'] }), 'usage');
    expect(error.message).to.contain('no-such-thing');
  });

  it('fetches from another machine only blobs that the store lacks', async () => {
    const signed = await makeBundle({ components });
    const bundle = await openBundle(signed.path, makeContext());
    const server = await serveBundle(bundle, { host: '127.0.0.1', port: 0 }, makeContext());
    try {
      const first = await load({ images: ['etcd'] }, makeContext(), signed.path);
      const trust = [`--signature-keyring=${signed.keyFile}`, `--trust-fingerprint=${signed.key.fingerprint}`];
      const words = ['load', server.url, `--download-dir=${folder}/download`, ...trust, '-o=json'];
      const { code, stdout, stderr } = await run(process.execPath, [program, ...words], { env: host.environment });
      expect(code, stderr).to.equal(0);
      const second = JSON.parse(stdout) as LoadResult;
      const { images, blobs } = signed.result.metadata;
      expect(second).to.deep.include({ loaded: images.length - 1, skipped: 1 });
      expect(second.bytes).to.be.above(0);
      expect(first.bytes + second.bytes).to.be.at.most(blobs.reduce((sum, { size }) => sum + size, 0));
      expect(existsSync(join(folder, 'download'))).to.equal(false);
    } finally {
      await server.close();
      await bundle[Symbol.asyncDispose]();
      await signed.remove();
    }
  });

  for (const copyProgram of copyPrograms) {
    it(`writes every layer into the main store though an additional one has it, by ${copyProgram}`, async () => {
      const other = await LoadSite.open(made);
      try {
        await other.load();
        const config = join(folder, 'storage.conf');
        const text = await readFile(config, 'utf8');
        await writeFile(config, `${text}[storage.options]\nadditionalimagestores = ["${other.store.path}"]\n`);
        const loaded = await load({ program: copyProgram });
        const index = await StoreIndex.read(host, loaded.store);
        expect(await Promise.all(site.images.map((image) => index.check(image)))).to.deep.equal(
          names.map(() => undefined),
        );
      } finally {
        await other.close();
      }
    });
  }

  it('counts and repairs the store that it filled, though podman itself reads another storage.conf', async () => {
    const programs = join(folder, 'programs');
    const other = join(folder, 'other');
    const { CONTAINERS_STORAGE_CONF: config = '' } = await storageIn(other);
    const { PATH = '' } = process.env;
    await mkdir(programs);
    // As podman 6 does with a drop-in that skopeo 1.22 does not read.
    const script = `#!/bin/sh\nCONTAINERS_STORAGE_CONF='${config}' PATH='${PATH}' exec podman "$@"\n`;
    await writeFile(join(programs, 'podman'), script, { mode: 0o755 });
    const storage = await HostStorage.open({
      ...host,
      environment: { ...host.environment, PATH: `${programs}:${PATH}` },
    });
    expect(await load({ storage })).to.include({ loaded: names.length, countedBy: 'podman' });
    expect(await removeImages(storage, names, makeContext())).to.equal(undefined);
    expect((await StoreIndex.read(host, storage.main)).isEmpty).to.equal(true);
    const untouched = { ...storage.main, graphRoot: join(other, 'main') };
    expect((await StoreIndex.read(host, untouched)).isEmpty).to.equal(true);
  });

  it('loads into the main stores of two users at a time', async () => {
    const other = await LoadSite.open(made);
    try {
      const options = { images: ['etcd'] };
      const results = await Promise.all([load(options), other.load(options)]);
      expect(results.map(({ loaded }) => loaded)).to.deep.equal([1, 1]);
    } finally {
      await other.close();
    }
  });

  it('takes the one image of a multi-arch release that is for this machine', async () => {
    const multi = await makeBundle({ arch: 'multi' });
    try {
      const context = makeContext();
      const { bytes } = await load({}, context, multi.path);
      expect(context.events.find(({ kind }) => kind === 'plan')).to.deep.include({ bytes, present: 0 });
      expect(await listImages(store, join(folder, 'reader'))).to.include.members([...multi.result.metadata.images]);
      await createContainers(store, join(folder, 'reader'), [multi.release.pullspec]);
    } finally {
      await multi.remove();
    }
  });
});
