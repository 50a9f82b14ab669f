import { spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, statfs, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { replicaPath } from '../../../lib/node/transfer/replica.ts';
import { AgentImages } from '../../../lib/update/agent/agentImages.ts';
import { AgentLoop } from '../../../lib/update/agent/agentLoop.ts';
import { AgentPeers, connectToPeers } from '../../../lib/update/agent/agentPeers.ts';
import { AgentServer } from '../../../lib/update/agent/agentServer.ts';
import { BundleCache, type CachedBundle } from '../../../lib/update/agent/bundleCache.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { node } from '../../fakes/cluster/site.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

const token = '0123456789abcdef0123';
const versions = ['4.19.2', '4.19.3', '4.19.4'];

describe('the bundles that a node retains for its mirror', () => {
  let connected: StartedCluster;
  let bundles: (TestBundle & { readonly digest: Digest })[];
  let folder: string;
  let cache: BundleCache;

  before(async () => {
    bundles = [];
    for (const version of versions) {
      const made = await makeBundle({ version, layerSize: 100_000 });
      bundles.push({ ...made, digest: digestOf(await readFile(made.path)) });
    }
  });
  after(() => Promise.all(bundles.map((each) => each.remove())));
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.19.3' });
    for (const name of ['oc-upgrade-bundle', 'oc-upgrade-bundle-reports'])
      connected.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    connected.server.put(upgradeBundleDefinition());
    connected.server.put(node('master-0', 'master'));
    folder = await mkdtemp(join(tmpdir(), 'mirror-'));
    const [first] = bundles;
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    const trust = { keyrings: [first?.keyFile ?? ''], fingerprints: [first?.key.fingerprint ?? ''] };
    cache = new BundleCache(folder, { ...trust, allowUnsigned: false, fetchFile });
  });
  afterEach(async () => {
    await connected.close();
    await rm(folder, { recursive: true, force: true });
  });

  async function keep({ path, folder: device, digest }: (typeof bundles)[number]): Promise<void> {
    const verified = await cache.verify({ path, device }, digest, makeContext());
    try {
      const copy = await cache.keep(verified, makeContext());
      await copy?.bundle[Symbol.asyncDispose]();
    } finally {
      await verified.bundle[Symbol.asyncDispose]();
    }
  }
  /** Verifies a bundle without a copy. */
  async function verify({ path, folder: device, digest }: (typeof bundles)[number]): Promise<CachedBundle> {
    const verified = await cache.verify({ path, device }, digest, makeContext());
    await verified.bundle[Symbol.asyncDispose]();
    return verified;
  }
  /** Lets the agent of the node check twice. `history`: the releases of the cluster, the latest first. */
  async function check(...history: readonly [version: string, state: string][]): Promise<void> {
    const entries = history.map(([version, state]) => {
      return { version, state, image: bundles[versions.indexOf(version)]?.release.pullspec };
    });
    const reference = { apiVersion: 'config.openshift.io/v1', kind: 'ClusterVersion', metadata: { name: 'version' } };
    connected.server.put({ ...reference, status: { history: entries } });
    const context = makeContext();
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token }, context);
    const connections = connectToPeers(token);
    const host = { root: folder, environment: {} };
    const tools = {
      server,
      cache,
      images: new AgentImages(host, 0),
      peers: new AgentPeers(connected.cluster, 'master-0', connections),
    };
    let rounds = 0;
    const end = (): Promise<void> => {
      if ((rounds += 1) === 2) context.interrupt();
      return Promise.resolve();
    };
    const media = { find: () => Promise.resolve([]), wait: end, unusable: new Map<never, never>() };
    const loop = new AgentLoop(connected.cluster, { node: 'master-0', media, tools, interval: 1 }, context);
    try {
      await loop.run();
    } finally {
      await loop.close();
      await server.close();
      connections.close();
    }
  }
  const kept = async (): Promise<string[]> => {
    const files = await readdir(folder);
    return bundles.flatMap(({ digest, release }) => (files.includes(replicaPath('', digest)) ? [release.version] : []));
  };
  const addMirror = async (): Promise<void> => {
    await mkdir(join(folder, 'mirror'));
    await writeFile(join(folder, 'mirror/tls.crt'), '');
  };

  it('are those of the running and the previous release, and all while an update or a rollback runs', async () => {
    await addMirror();
    for (const bundle of bundles) await keep(bundle);
    await check(['4.19.3', 'Partial'], ['4.19.4', 'Partial'], ['4.19.3', 'Completed'], ['4.19.2', 'Completed']);
    expect(await kept()).to.deep.equal(versions);
    await check(['4.19.4', 'Completed'], ['4.19.3', 'Completed'], ['4.19.2', 'Completed']);
    expect(await kept()).to.deep.equal(['4.19.3', '4.19.4']);
    await rm(join(folder, 'mirror'), { recursive: true });
    await check(['4.19.4', 'Completed'], ['4.19.3', 'Completed']);
    expect(await kept()).to.deep.equal([]);
  });

  it('are facts only of a mirror that keeps metadata, of the same releases', async () => {
    await addMirror();
    await writeFile(join(folder, 'mirror/content'), 'metadata');
    for (const bundle of bundles) await keep(bundle);
    await check(['4.19.4', 'Completed'], ['4.19.3', 'Completed'], ['4.19.2', 'Completed']);
    const facts = bundles.slice(1).map(({ digest }) => replicaPath('', digest).replace(/tar$/, 'json'));
    expect((await readdir(folder)).filter((name) => name.startsWith('bundle-')).sort()).to.deep.equal(facts.sort());
  });

  it('are that of the running release alone if more would fill three quarters of the disk', async function () {
    const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=40m', 'tmpfs', folder]);
    if (mounted.status !== 0) return this.skip();
    const filler = join(folder, 'filler');
    try {
      await addMirror();
      const [, running, next] = bundles;
      if (!running || !next) throw new Error('there are three bundles');
      await keep(running);
      await keep(next);
      const { blocks, bsize } = await statfs(folder);
      await writeFile(filler, Buffer.alloc(Math.ceil(blocks * bsize * 0.75)));
      await check(['4.19.4', 'Completed'], ['4.19.3', 'Completed']);
      expect(await kept()).to.deep.equal(['4.19.4']);
      await failureOf(keep(running), 'disk-full');
      const { size } = (await verify(next)).facts.metadata;
      await failureOf(cache.requireRoom(size, makeContext()), 'disk-full');
      await truncate(filler, 0);
      await cache.requireRoom(size, makeContext());
    } finally {
      spawnSync('umount', ['-l', folder]);
    }
  });

  /** Sets the quota to a number of copies. */
  const allow = async (copies: number): Promise<void> => {
    const [{ path } = expect.fail()] = bundles;
    await writeFile(join(folder, 'mirror/quota'), String(Math.round((await stat(path)).size * copies)));
  };

  it('are as many as fit into the quota, the running release first', async () => {
    await addMirror();
    for (const bundle of bundles) await keep(bundle);
    const history = [...versions].reverse().map((version) => [version, 'Completed'] as [string, string]);
    await allow(2.5);
    await check(...history);
    expect(await kept()).to.deep.equal(['4.19.3', '4.19.4']);
    await allow(1.5);
    await check(...history);
    expect(await kept()).to.deep.equal(['4.19.4']);
    const [, previous = expect.fail()] = bundles;
    const { message, hint } = await failureOf(keep(previous), 'disk-full');
    expect(message).to.match(/^the bundle for the mirror has .+iB, and the quota of .+iB leaves .+iB; 4\.19\.4 takes /);
    expect(hint).to.equal('Install the mirrors again with a larger quota.');
    await allow(0.5);
    await check(...history);
    expect(await kept()).to.deep.equal(['4.19.4']);
  });

  it('give way to the bundle of an update, except that of the running release', async () => {
    await addMirror();
    const [old = expect.fail(), running = expect.fail(), next = expect.fail()] = bundles;
    await keep(old);
    await keep(running);
    await verify(next);
    connected.server.put(upgradeBundle('next', { bundle: { digest: next.digest } }));
    for (const [copies, wanted] of [
      [1.5, ['4.19.2', '4.19.3']],
      [3.5, ['4.19.2', '4.19.3']],
      [2.5, ['4.19.3']],
    ] as const) {
      await allow(copies);
      await check(['4.19.3', 'Completed'], ['4.19.2', 'Completed']);
      expect(await kept(), String(copies)).to.deep.equal(wanted);
    }
  });
});
