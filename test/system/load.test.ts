import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { serveBundle } from '../../lib/bundle/deliver/serve.ts';
import { openBundle } from '../../lib/bundle/open.ts';
import { copyPrograms } from '../../lib/node/images/copyImage.ts';
import type { Host } from '../../lib/node/machine/host.ts';
import { HostStorage } from '../../lib/node/images/hostStorage.ts';
import { StoreIndex } from '../../lib/node/images/imageStore.ts';
import type { LoadResult } from '../../lib/node/images/load.ts';
import { planImages, storeImagesOf } from '../../lib/node/images/loadPlan.ts';
import type { Digest } from '../../lib/content/oci/digest.ts';
import { AgentImages } from '../../lib/update/agent/agentImages.ts';
import type { BundleFacts } from '../../lib/update/bundleFacts.ts';
import { upgradeBundleKind } from '../../lib/update/upgradeBundle.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { makeContext, type TestContext } from '../support/context.ts';
import { executableOf } from '../support/program/executables.ts';
import { executeProgram } from '../support/program/execution.ts';
import { attachmentKey } from '../support/release/attachments.ts';
import { failureOf } from '../support/program/failure.ts';
import { PolicyJudge } from '../support/release/policyJudge.ts';
import { components, LoadSite, makeLoadedBundle } from '../support/loadSite.ts';
import { requirePeer, run } from '../support/peers.ts';
import { createContainer, listImages, requireRoot, storageIn, type ReadStore } from '../support/archive/storeReader.ts';

const program = executableOf('oc-adm_upgrade_bundle');

describe('loadBundle', function () {
  requirePeer(this, 'skopeo', 'podman');
  let made: TestBundle;
  let site: LoadSite;
  let folder: string;
  let host: Host;
  let store: ReadStore;
  let names: readonly string[];

  before(async function () {
    await requireRoot(this);
    made = await makeLoadedBundle();
  });
  // There is none if the suite is skipped.
  after(() => (made as TestBundle | undefined)?.remove());
  beforeEach(async () => {
    site = await LoadSite.open(made);
    ({ folder, host, store } = site);
    names = made.result.metadata.images;
  });
  afterEach(() => site.close());

  const load = (...args: Parameters<LoadSite['load']>): Promise<LoadResult> => site.load(...args);
  const start = (...args: string[]) => {
    const trust = [`--signature-keyring=${made.keyFile}`, `--trust-fingerprint=${made.key.fingerprint}`];
    const child = spawn(process.execPath, [program, 'load', made.path, ...trust, ...args], {
      env: host.environment,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let [stdout, stderr] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
    const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, stdout, stderr }));
    return { child, ended };
  };

  for (const copyProgram of copyPrograms) {
    it(`makes images usable without any network, by ${copyProgram}`, async () => {
      const context = makeContext();
      const result = await load({ program: copyProgram }, context);
      expect(result).to.deep.include({ loaded: names.length, skipped: 0, countedBy: 'podman' });
      expect(result.images).to.have.members(names);
      expect(context.events.filter((event) => event.kind === 'image')).to.have.length(names.length);
      expect(await listImages(store, join(folder, 'reader'))).to.include.members(names);
      for (const name of names) await createContainer(store, join(folder, 'reader'), name);
      const again = await load({ program: copyProgram });
      expect(again).to.deep.include({ loaded: 0, skipped: names.length, bytes: 0 });
      expect(await readdir(folder)).to.have.members(['main', 'reader', 'storage.conf']);
    });
  }

  it('syncs the main store after the last write, and reports it as loaded only then', async () => {
    const [log, programs] = [join(folder, 'log'), join(folder, 'programs')];
    await mkdir(programs);
    // Notes its arguments and the change of the store that was last, and fails while there is a file “broken”.
    const newest = `find ${folder}/main -type f -printf '%C@ %p\\n' | sort -n | tail -n 1`;
    const script = `#!/bin/sh\necho "$*" >>${log}\n${newest} >>${log}\n[ ! -e ${folder}/broken ] || { echo 'Input/output error' >&2; exit 1; }\n`;
    await writeFile(join(programs, 'sync'), script, { mode: 0o755 });
    const own: Host = {
      ...host,
      environment: { ...host.environment, PATH: `${programs}:${process.env['PATH'] ?? ''}` },
    };
    const storage = await HostStorage.open(own);
    const options = { storage };
    const images = new AgentImages(own, 0);
    const upgrade = {
      ...upgradeBundleKind,
      metadata: { name: 'x' },
      spec: { bundle: {}, hold: false },
    } as const;
    const facts = { metadata: made.result.metadata, digest: made.result.digest } as BundleFacts;
    const total = storeImagesOf({ metadata: made.result.metadata, path: '' }).length;

    await writeFile(join(folder, 'broken'), '');
    const { message } = await failureOf(load(options), 'command-failed');
    expect(message).to.match(/main cannot be synced to disk: Input\/output error$/);
    expect(await images.count(facts, upgrade, makeContext())).to.deep.equal({ loaded: total - 1, total });
    await rm(join(folder, 'broken'));
    expect(await load(options)).to.deep.include({ loaded: 0, skipped: names.length });
    const lines = (await readFile(log, 'utf8')).trim().split('\n');
    expect(lines.filter((line) => line.startsWith('-'))).to.deep.equal(Array(2).fill(`-f ${folder}/main`));
    expect(lines.at(-1)).to.equal(execFileSync('sh', ['-c', newest]).toString().trim());
    expect(await images.count(facts, upgrade, makeContext())).to.deep.equal({ loaded: total, total });
  });

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

  it('resumes after kill -9', async () => {
    const { child, ended } = start('--parallel-images=1');
    const index = join(store.path, 'overlay-images/images.json');
    const count = async (): Promise<number> => {
      return (await readFile(index, 'utf8').catch(() => '')).split('"names"').length - 1;
    };
    while ((await count()) < 2 && child.exitCode === null) await sleep(5);
    child.kill('SIGKILL');
    await ended;
    const { code, stdout, stderr } = await start().ended;
    expect(code, stderr).to.equal(0);
    expect(stdout).to.match(/: \d loaded .*, [1-9] present/);
    expect(stdout).to.contain(`Signed by  Test release key <release@example.com>, key ${made.key.fingerprint}`);
    expect(await listImages(store, join(folder, 'reader'))).to.include.members(names);
    for (const name of names) await createContainer(store, join(folder, 'reader'), name);
  });

  it('ends when it is interrupted, and resumes', async () => {
    const context: TestContext = makeContext((event) => {
      if (event.kind === 'image') context.interrupt();
    });
    await failureOf(load({ limits: { concurrency: 1 } }, context), 'interrupted');
    expect((await load()).skipped).to.be.greaterThan(0);
  });

  it('reports that the file system of the store is full, and resumes if there is space', async () => {
    const place = join(folder, 'small');
    await mkdir(place);
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', place]);
    try {
      const storage = await HostStorage.open({
        ...host,
        environment: { ...host.environment, ...(await storageIn(place)) },
      });
      const ballast = join(place, 'ballast');
      const context = makeContext(({ kind }) => {
        if (kind === 'image' && !existsSync(ballast)) spawnSync('dd', ['if=/dev/zero', `of=${ballast}`, 'bs=64k']);
      });
      const error = await failureOf(load({ storage, limits: { concurrency: 1 } }, context), 'disk-full');
      expect(error.message).to.contain(place);
      await rm(ballast);
      expect((await load({ storage })).images).to.have.members(names);
      const filled = { kind: 'main', path: storage.main.graphRoot } as const;
      expect(await listImages(filled, join(place, 'reader'))).to.include.members(names);
    } finally {
      execFileSync('umount', ['-l', place]);
    }
  });

  it('says before it writes anything how much room there is not', async () => {
    const place = join(folder, 'small');
    await mkdir(place);
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=100k', 'tmpfs', place]);
    try {
      const storage = await HostStorage.open({
        ...host,
        environment: { ...host.environment, ...(await storageIn(place)) },
      });
      const error = await failureOf(load({ storage }), 'disk-full');
      expect(error.message).to.match(
        /^what is missing of \d+ images needs about [\d.]+ [KM]iB in .*, and [\d.]+ KiB are free there$/,
      );
      expect(await readdir(storage.main.graphRoot)).to.deep.equal([]);
    } finally {
      execFileSync('umount', ['-l', place]);
    }
  });

  for (const copyProgram of copyPrograms) {
    it(`names the image and the corrupt blob, loads the others, and resumes with a good bundle, by ${copyProgram}`, async () => {
      const [config = '', ...layers] = await blobsOf(made, 'etcd');
      for (const own of [config, layers.at(-1) ?? '']) {
        await made.damage(own as Digest);
        const error = await failureOf(load({ program: copyProgram }), 'digest-mismatch');
        await made.damage(own as Digest);
        expect(error.message).to.contain('etcd').and.to.contain(own);
        expect(error.hint).to.contain('Copy the bundle again');
        const index = await StoreIndex.read(host, { driver: 'overlay', graphRoot: store.path, runRoot: '' });
        expect(index.listBlobs().has(own)).to.equal(false);
      }
      expect(await load({ program: copyProgram })).to.deep.include({ loaded: 1, skipped: names.length - 1 });
    });
  }

  it('fetches from another machine only what the store lacks', async () => {
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

  it('refuses a store with a truncated index', async () => {
    await load({ images: ['release'] });
    const index = join(store.path, 'overlay-images/images.json');
    await truncate(index, 100);
    const error = await failureOf(load(), 'incomplete');
    expect(error.message).to.contain(index);
  });

  it('brings back an image of which the store lost a part', async () => {
    const { store } = await load();
    const [layer = ''] = (await readdir(join(store.graphRoot, 'overlay'))).filter((name) => name.length === 64);
    await rm(join(store.graphRoot, 'overlay', layer), { recursive: true });
    const images = names.map((name) => ({ name, digest: digestIn(name) }));
    const index = await StoreIndex.read(host, store);
    const lacks = await Promise.all(images.map((image) => index.check(image)));
    expect(lacks.join()).to.contain('the files of its layer');
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
        const images = names.map((name) => ({ name, digest: digestIn(name) }));
        expect(await Promise.all(images.map((image) => index.check(image)))).to.deep.equal(names.map(() => undefined));
      } finally {
        await other.close();
      }
    });
  }

  it('loads nothing without a trusted signature', async () => {
    const child = await executeProgram(program, ['load', made.path], { env: host.environment });
    expect(child.code).to.equal(1);
    expect(child.stderr).to.contain('--trust-fingerprint');
    expect(await readdir(folder)).to.deep.equal(['storage.conf']);
  });

  it('refuses a bundle of another architecture', async () => {
    const other = await makeBundle({ arch: process.arch === 'arm64' ? 'x86_64' : 'aarch64' });
    try {
      const error = await failureOf(load({}, makeContext(), other.path), 'usage');
      expect(error.message).to.contain('this machine is');
    } finally {
      await other.remove();
    }
  });

  it('keeps a second run away from the same store', async () => {
    const begun = Promise.withResolvers<void>();
    const first = load(
      {},
      makeContext(() => begun.resolve()),
    );
    await begun.promise;
    await failureOf(load(), 'busy');
    await first;
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
      await createContainer(store, join(folder, 'reader'), multi.release.pullspec);
    } finally {
      await multi.remove();
    }
  });
});

function digestIn(name: string): Digest {
  return name.slice(name.indexOf('@') + 1) as Digest;
}

/** Returns its configuration and its layers. */
async function blobsOf({ path }: TestBundle, component: string): Promise<Digest[]> {
  const context = makeContext();
  const bundle = await openBundle(path, context);
  const [image] = await planImages(bundle, [component], context);
  await bundle[Symbol.asyncDispose]();
  return [...(image?.blobs.keys() ?? [])];
}
