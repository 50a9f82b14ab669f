import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import type { LoadResult } from '../../../lib/node/images.ts';
import { copyPrograms } from '../../../lib/node/images/copyImage.ts';
import { HostStorage } from '../../../lib/node/images/hostStorage.ts';
import { StoreIndex } from '../../../lib/node/images/imageStore.ts';
import { planImages, storeImagesOf } from '../../../lib/node/images/loadPlan.ts';
import type { Host } from '../../../lib/node/machine/host.ts';
import { AgentImages } from '../../../lib/update/agent/agentImages.ts';
import type { BundleFacts } from '../../../lib/update/record/bundleFacts.ts';
import { upgradeBundleKind } from '../../../lib/update/record/upgradeBundle.ts';
import { createContainers, listImages, storageIn, type ReadStore } from '../../support/archive/storeReader.ts';
import { type TestBundle } from '../../support/content/bundle.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { openLoadSites, type LoadSite } from '../../support/loadSite.ts';
import { requirePeer } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';
import { until } from '../../support/until.ts';

const program = executableOf('oc-adm_upgrade_bundle');

describe('loadBundle, when something fails', function () {
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
  /** Runs work with an image store on a file system of some size, and unmounts it. */
  const onSmallDisk = async (size: string, work: (storage: HostStorage, place: string) => Promise<void>) => {
    const place = join(folder, 'small');
    await mkdir(place);
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', place]);
    try {
      const environment = { ...host.environment, ...(await storageIn(place)) };
      await work(await HostStorage.open({ ...host, environment }), place);
    } finally {
      execFileSync('umount', ['-l', place]);
    }
  };
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

  it('syncs the main store after the last write, and reports it as loaded only then', async () => {
    const [log, programs] = [join(folder, 'log'), join(folder, 'programs')];
    await mkdir(programs);
    // Notes its arguments and the change of the store that was last, and fails while there is a file “broken”.
    const newest = `find ${folder}/main -type f -printf '%C@ %p\\n' | sort -n | tail -n 1`;
    const script =
      `#!/bin/sh\necho "$*" >>${log}\n${newest} >>${log}\n[ ! -e ${folder}/broken ] || { echo 'Input/output ` +
      `error' >&2; exit 1; }\n`;
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

  it('resumes after kill -9', async () => {
    const { child, ended } = start('--parallel-images=1');
    const index = join(store.path, 'overlay-images/images.json');
    const count = async (): Promise<number> => {
      return (await readFile(index, 'utf8').catch(() => '')).split('"names"').length - 1;
    };
    await until(async () => (await count()) >= 2 || child.exitCode !== null);
    child.kill('SIGKILL');
    await ended;
    const { code, stdout, stderr } = await start().ended;
    expect(code, stderr).to.equal(0);
    expect(stdout).to.match(/: \d loaded .*, [1-9] present/);
    expect(stdout).to.contain(`Signed by  Test release key <release@example.com>, key ${made.key.fingerprint}`);
    expect(await listImages(store, join(folder, 'reader'))).to.include.members(names);
    await createContainers(store, join(folder, 'reader'), names);
  });

  it('ends when it is interrupted, and resumes', async () => {
    const context: TestContext = makeContext((event) => {
      if (event.kind === 'image') context.interrupt();
    });
    await failureOf(load({ limits: { concurrency: 1 } }, context), 'interrupted');
    expect((await load()).skipped).to.be.greaterThan(0);
  });

  it('reports that the file system of the store is full, and resumes if there is space', async () => {
    await onSmallDisk('64m', async (storage, place) => {
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
    });
  });

  it('says before it writes anything how much room there is not', async () => {
    await onSmallDisk('100k', async (storage) => {
      const error = await failureOf(load({ storage }), 'disk-full');
      expect(error.message).to.match(
        /^what is missing of \d+ images needs about [\d.]+ [KM]iB in .*, and [\d.]+ KiB are free there$/,
      );
      expect(await readdir(storage.main.graphRoot)).to.deep.equal([]);
    });
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
    const index = await StoreIndex.read(host, store);
    const lacks = await Promise.all(site.images.map((image) => index.check(image)));
    expect(lacks.join()).to.contain('cannot be mounted');
  });

  it('loads nothing without a trusted signature', async () => {
    const child = await executeProgram(program, ['load', made.path], { env: host.environment });
    expect(child.code).to.equal(1);
    expect(child.stderr).to.contain('--trust-fingerprint');
    expect(await readdir(folder)).to.deep.equal(['storage.conf']);
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
});

/** Returns its configuration and its layers. */
async function blobsOf({ path }: TestBundle, component: string): Promise<Digest[]> {
  const context = makeContext();
  const bundle = await openBundle(path, context);
  const [image] = await planImages(bundle, [component], context);
  await bundle[Symbol.asyncDispose]();
  return [...(image?.blobs.keys() ?? [])];
}
