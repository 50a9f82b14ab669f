import { readdir, rm, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import { openAccess } from '../../../cmd/cli/access.ts';
import { takeLock } from '../../../lib/content/files/lock.ts';
import { mediaTypes } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { Registries } from '../../../lib/content/registry/registries.ts';
import { Directory, releaseRepository } from '../../../lib/content/store/directory.ts';
import { isPluginError, type PluginError } from '../../../lib/errors.ts';
import { checkEnded, describeRun, readRecords, writeRecord } from '../../../lib/mirroring/prune/pruneRecord.ts';
import { startChangeProxy } from '../../support/changeProxy.ts';
import { addRelease, openWorkshop, runExecutable, runProgram, type Workshop } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { useDockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer } from '../../support/peers.ts';
import type { Execution } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';
import { listTags, Mirroring, pullWhole } from '../../support/release/mirroring.ts';
import type { TestRelease } from '../../support/release/release.ts';

describe('the record of a prune run', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  let workshop: Workshop;
  let mirroring: Mirroring;
  let old: TestRelease;
  const site = useDockerRegistry({ inMemory: false });
  let number = 0;
  let repository = '';

  before(async () => {
    const small = { layers: 1, baseLayers: 1, attachments: () => false };
    const release = { ...small, components: ['cli', 'etcd'], common: ['etcd'] };
    workshop = await openWorkshop({ release });
    mirroring = new Mirroring(workshop);
    old = await addRelease(workshop, { ...release, version: '4.12.3', seed: 'old' });
    await mirroring.succeed([`--to=${site.host}/both`], both());
  });
  beforeEach(() => (repository = `site${(number += 1)}/release`));
  after(() => workshop.close());

  const both = (): string => `${old.pullspec},${workshop.release.pullspec}`;
  const to = (host = site.host): string => `--to=${host}/${repository}`;
  const prune = (...args: string[]): Promise<Execution> => {
    const all = ['prune', '--insecure', '--keep=4.12.4', '--yes', ...args];
    return runExecutable('oc-adm_release_mirror_config', workshop.folder, all);
  };
  const expectRefused = async (running: Promise<Execution>, words: string): Promise<void> => {
    const { code, stdout, stderr } = await running;
    expect(code, stdout).to.equal(1);
    expect(stderr).to.contain(words);
  };
  const tag = async (name: string): Promise<void> => {
    const url = `${site.url}/v2/${repository}/manifests`;
    const type = 'application/vnd.docker.distribution.manifest.v2+json';
    const reply = await fetch(`${url}/${workshop.release.digest}`, { headers: { accept: type } });
    const headers = { 'content-type': type };
    const { status } = await fetch(`${url}/${name}`, { method: 'PUT', headers, body: await reply.text() });
    expect(status).to.equal(201);
  };

  it('lets no other run remove from or mirror to a directory', async () => {
    await mirroring.succeed(['--to-dir=mirror'], both());
    const before = await readdir(mirroring.path('mirror'), { recursive: true });
    const lock = await takeLock(mirroring.path('mirror/.mirror.lock'), 'x');
    await expectRefused(prune('--to-dir=mirror'), 'another run is writing the mirror directory');
    await expectRefused(mirroring.run(['--to-dir=mirror']), 'another run is writing the mirror directory');
    await mirroring.succeed(['--to-dir=mirror', '--dry-run']);
    await lock[Symbol.asyncDispose]();
    expect(await readdir(mirroring.path('mirror'), { recursive: true })).to.have.members(before);
    await mirroring.succeed(['--to-dir=mirror']);
    expect((await prune('--to-dir=mirror')).code).to.equal(0);
    expect(await readdir(mirroring.path('mirror'))).not.to.include('.mirror.lock');
  });

  it('lets no other run remove from or mirror to a registry', async () => {
    await site.addTo(repository, 'both');
    const bundle = await workshop.make();
    const reached = Promise.withResolvers<undefined>();
    const proceed = Promise.withResolvers<undefined>();
    await using proxy = await startChangeProxy(site.host, async (method, path) => {
      if (method !== 'DELETE' || path.endsWith(digestOf('no image'))) return;
      reached.resolve(undefined);
      await proceed.promise;
    });
    const running = prune(to(proxy.host));
    await reached.promise;
    await expectRefused(prune(to()), 'is being pruned by a run on');
    await expectRefused(prune(to(), '--resume'), 'is being pruned by a run on');
    await expectRefused(mirroring.run([to()]), 'is being pruned by a run on');
    const pushing = [bundle, to(), '--insecure', `--trust-fingerprint=${workshop.key.fingerprint}`];
    await expectRefused(runProgram(workshop.folder, 'push', pushing), 'is being pruned by a run on');
    await mirroring.succeed([to(), '--dry-run']);
    proceed.resolve(undefined);
    const { code, stderr } = await running;
    expect(code, stderr).to.equal(0);
    await mirroring.succeed([to()], both());
    await pullWhole(`${site.host}/${repository}:${old.tag}-etcd`, mirroring.path(`copy${number}`));
  });

  it('resumes the run of another machine only with --resume', async () => {
    await site.addTo(repository, 'both');
    const registries = new Registries(await openAccess({ insecure: true }, {}), makeContext());
    const store = registries.repository({ registry: site.host, repository });
    const process = { host: 'another', kernel: '', pid: 1, started: '1' };
    const run = { host: 'build-7', began: '2026-01-02T03:04:05Z', process };
    await writeRecord(store, { releases: [old.tag], tags: [], manifests: [], blobs: [], run });
    await registries[Symbol.asyncDispose]();
    const words = 'is being pruned by a run on build-7 that began at 2026-01-02T03:04:05Z';
    await expectRefused(prune(to()), words);
    expect((await prune(to())).stderr).to.contain('--resume');
    await expectRefused(mirroring.run([to()]), words);
    expect((await prune(to(), '--resume')).code).to.equal(0);
    const left = await listTags(`${site.host}/${repository}`);
    expect(left.filter((name) => name.startsWith('prune-') || name === old.tag)).to.deep.equal([]);
  });

  it('removes nothing, and leaves no record, if a tag appears after the plan', async () => {
    await site.addTo(repository, 'both');
    const before = await listTags(`${site.host}/${repository}`);
    const proxy = await startChangeProxy(site.host, async (method, path) => {
      if (method === 'PUT' && path.includes('prune-unfinished')) await tag('late');
    });
    await expectRefused(prune(to(proxy.host)), 'changed since it was read: it has the new tag late');
    await proxy.stop();
    expect(await listTags(`${site.host}/${repository}`)).to.have.members([...before, 'late']);
  });

  it('leaves tags alone that look like its own', async () => {
    await site.addTo(repository, 'both');
    const own = ['prune-unfinished', 'prune-unfinished-0123456789ab'];
    for (const name of own) await tag(name);
    await mirroring.succeed([to()]);
    const { code, stdout, stderr } = await prune(to());
    expect(code, stderr).to.equal(0);
    expect(/2 tags \((.*)\)/.exec(stdout)?.[1]?.split(', ')).to.have.members(own);
    const left = await listTags(`${site.host}/${repository}`);
    expect(left).to.include.members(own).and.not.include(old.tag);
  });

  it('is removed if its run was killed and left no tag', async () => {
    await mirroring.succeed(['--to-dir=killed'], both());
    const list = async (): Promise<string[]> =>
      (await readdir(mirroring.path('killed', 'v2'), { recursive: true })).sort();
    const before = await list();
    const store = new Directory(mirroring.path('killed'), releaseRepository, {}, makeContext());
    const { tag: own } = await writeRecord(store, { releases: [old.tag], tags: [], manifests: [], blobs: [] });
    await rm(mirroring.path('killed', store.name.slice(store.root.length + 1), 'manifests', own));
    expect((await prune('--to-dir=killed', '--keep=4.12.3,4.12.4')).code).to.equal(0);
    expect(await list()).to.deep.equal(before);
  });
});

describe('readRecords', () => {
  let folder: string;
  let store: Directory;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'record-'));
    store = new Directory(folder, releaseRepository, {}, makeContext());
  });
  afterEach(() => rm(folder, { recursive: true }));

  const [manifest, blob] = ['manifest', 'blob'].map(digestOf) as [Digest, Digest];
  const record = { releases: ['4.12.3-x86_64'], tags: ['a'], manifests: [manifest], blobs: [blob], run: describeRun() };
  const digestOfTag = async (tag: string): Promise<Digest> => (await store.resolve(tag)).digest;

  it('reads a record as it was written, with all of its content', async () => {
    const { tag, content } = await writeRecord(store, record);
    const digest = await digestOfTag(tag);
    expect(await readRecords(store, new Map([[tag, digest]]))).to.deep.equal([{ ...record, tag, content }]);
    expect(content).to.have.length(3);
  });

  it('leaves out tags that no run writes, and images with a tag of runs', async () => {
    const { tag } = await writeRecord(store, record);
    const digest = await digestOfTag(tag);
    expect(await readRecords(store, new Map([['prune-unfinished-0123456789ab', digest]]))).to.deep.equal([]);
    const layer = { mediaType: 'application/octet-stream', digest: manifest, size: 8 };
    const bytes = Buffer.from(
      JSON.stringify({ schemaVersion: 2, mediaType: mediaTypes.ociManifest, config: layer, layers: [layer] }),
    );
    const image = { mediaType: mediaTypes.ociManifest, digest: digestOf(bytes), size: bytes.length };
    await store.push(image, () => Promise.resolve(Readable.from([bytes])));
    const own = `prune-unfinished-${image.digest.slice(7, 19)}`;
    expect(await readRecords(store, new Map([[own, image.digest]]))).to.deep.equal([]);
  });

  it('refuses a record with a value of another form', async () => {
    const damaged = [
      { ...record, manifests: ['manifest'] },
      { ...record, blobs: undefined },
      { ...record, run: { ...record.run, process: undefined } },
      { ...record, run: { ...record.run, process: { ...record.run.process, pid: 0 } } },
    ];
    for (const each of damaged) {
      const { tag } = await writeRecord(store, each as never);
      const { hint } = await failureOf(readRecords(store, new Map([[tag, await digestOfTag(tag)]])), 'invalid-file');
      expect(hint).to.contain('Remove that tag');
    }
  });

  it('leaves out a record whose run ended at this moment', async () => {
    expect(await readRecords(store, new Map([[`prune-unfinished-${manifest.slice(7, 19)}`, manifest]]))).to.deep.equal(
      [],
    );
  });
});

describe('checkEnded', () => {
  const own = { releases: [], tags: [], manifests: [], blobs: [] };
  const run = describeRun();
  const refuse = (process: typeof run.process, resume: boolean): readonly string[] | undefined => {
    try {
      checkEnded({ ...own, run: { ...run, process } }, 'the target', { resume });
      return undefined;
    } catch (error) {
      expect(isPluginError(error, 'busy')).to.equal(true);
      return (error as PluginError).settings;
    }
  };

  it('refuses a run of this machine while its process runs', () => {
    for (const resume of [false, true]) expect(refuse(run.process, resume)).to.deep.equal([]);
    expect(refuse({ ...run.process, pid: 2 ** 22 + 1 }, false)).to.equal(undefined);
  });

  it('refuses a run of another machine until it is said to be interrupted', () => {
    const other = { ...run.process, host: 'another', kernel: 'another' };
    expect(refuse(other, false)).to.deep.equal(['resume']);
    expect(refuse(other, true)).to.equal(undefined);
  });

  it('accepts a record without a run, as in a directory', () => {
    checkEnded(own, 'the target', { resume: false });
  });
});
