import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, statfs, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf, type Digest, digestIn } from '../../../lib/content/oci/reference.ts';
import { replicaPath } from '../../../lib/node/transfer/replica.ts';
import { AgentImages } from '../../../lib/update/agent/agentImages.ts';
import { AgentLoop } from '../../../lib/update/agent/agentLoop.ts';
import { AgentPeers, connectToPeers } from '../../../lib/update/agent/agentPeers.ts';
import { AgentServer } from '../../../lib/update/agent/agentServer.ts';
import { BundleCache, type CachedBundle } from '../../../lib/update/agent/bundleCache.ts';
import { keepMirror, copyToFile } from '../../../lib/update/mirror/mirrorKeeper.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { node } from '../../fakes/cluster/site.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { until } from '../../support/until.ts';

const unit = 'etc/systemd/system/oc-upgrade-bundle-mirror.service';
const state = 'var/lib/oc-upgrade-bundle';

describe('the mirror of a control plane node', () => {
  let made: TestBundle;
  let digest: Digest;
  let folder: string;
  let end: AbortController;

  before(async () => {
    made = await makeBundle();
    digest = digestOf(await readFile(made.path));
  });
  after(async () => {
    await made.remove();
  });
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'mirror-'));
    end = new AbortController();
  });
  afterEach(async () => {
    end.abort();
    await rm(folder, { recursive: true, force: true });
  });
  const trust = () => ({
    keyrings: [made.keyFile],
    fingerprints: [made.key.fingerprint],
    allowUnsigned: false,
    fetchFile: () => Promise.resolve(undefined),
  });

  it('keeps a verified copy of the bundle on a medium, and finds it by its release', async () => {
    const context = makeContext();
    const cache = new BundleCache(folder, trust());
    const verified = await cache.verify({ path: made.path, device: made.folder }, digest, context);
    const copy = await cache.keep(verified, context);
    expect(digestOf(await readFile(copy?.bundle.path ?? ''))).to.equal(digest);
    expect((await stat(copy?.bundle.path ?? '')).mode & 0o777).to.equal(0o600);
    const release = digestIn(verified.facts.metadata.release);
    expect((await cache.chooseCopies([release], 0, context)).digests).to.deep.equal([digest]);
    expect((await cache.chooseCopies([digestOf('another')], 0, context)).digests).to.deep.equal([]);
    for (const each of [verified, copy]) await each?.bundle[Symbol.asyncDispose]();
  });

  it('keeps no copy of a medium that changed after its verification', async () => {
    const context = makeContext();
    const cache = new BundleCache(folder, trust());
    await using changed = await makeBundle({ seed: 'another' });
    const own = digestOf(await readFile(changed.path));
    const verified = await cache.verify({ path: changed.path, device: changed.folder }, own, context);
    await changed.damage(changed.release.digest);
    await failureOf(cache.keep(verified, context), 'digest-mismatch');
    expect(await cache.openCopy(own, context)).to.equal(undefined);
    await verified.bundle[Symbol.asyncDispose]();
  });

  it('keeps nothing of a copy that is interrupted', async () => {
    const context = makeContext();
    await using chunks = (async function* (): AsyncGenerator<Buffer> {
      yield Buffer.from('one');
      context.interrupt();
      yield Buffer.from('two');
    })();
    await failureOf(copyToFile(chunks, join(folder, 'copy.tar'), undefined, context), 'interrupted');
    expect(await readdir(folder)).to.deep.equal([]);
  });

  describe('follows the Secret:', () => {
    const name = 'oc-upgrade-bundle-mirror.service';
    const started = ['daemon-reload', `enable ${name}`, `restart ${name}`];
    const { PATH } = process.env;
    let root: string;
    let secrets: string;
    let context: TestContext;
    let done: Promise<void>;

    beforeEach(async () => {
      [root, secrets] = [join(folder, 'host'), join(folder, 'secrets')];
      const bin = join(folder, 'bin');
      for (const each of [secrets, bin, ...['usr/bin', 'etc/systemd/system', state].map((path) => join(root, path))])
        await mkdir(each, { recursive: true });
      const script =
        `#!/bin/sh\necho "$@" >> ${folder}/calls\ntest "$SYSTEMCTL_FORCE_BUS" || exit 1\ntest ! ` +
        `-e ${folder}/broken\n`;
      await writeFile(join(bin, 'systemctl'), script, { mode: 0o755 });
      // The host’s file system is this machine’s, below a folder: chroot runs the stand-in of the same path.
      await writeFile(join(bin, 'chroot'), `#!/bin/sh\nshift\nshift\nexec ${join(bin, 'systemctl')} "$@"\n`, {
        mode: 0o755,
      });
      await writeFile(join(root, 'usr/bin/systemctl'), '', { mode: 0o755 });
      process.env['PATH'] = `${bin}:${PATH ?? ''}`;
      context = { ...makeContext(), signal: end.signal };
      done = keepMirror({ host: { root, environment: process.env }, secrets, executable: 'ab', interval: 10 }, context);
    });
    afterEach(async () => {
      end.abort();
      await done;
      process.env['PATH'] = PATH;
    });
    const put = async (files: Readonly<Record<string, string>>): Promise<void> => {
      for (const [file, text] of Object.entries(files)) await writeFile(join(secrets, file), text);
    };
    const secret = { 'tls.crt': 'C', 'tls.key': 'K', 'ca.crt': 'A', quota: '5', port: '9690' };
    const calls = async (): Promise<string[]> =>
      (await readFile(join(folder, 'calls'), 'utf8').catch(() => '')).split('\n').filter((line) => line !== '');
    const untilCalled = async (times: number): Promise<string[]> => {
      await until(async () => (await calls()).length >= times);
      return await calls();
    };

    it('starts with one, and restarts for another port, but not for another certificate', async () => {
      await put(secret);
      expect(await untilCalled(3)).to.deep.equal(started);
      expect(await readFile(join(root, unit), 'utf8')).to.include('mirror-serve --listen=[::]:9690');
      const key = join(root, state, 'mirror/tls.key');
      expect([await readFile(key, 'utf8'), (await stat(key)).mode & 0o777]).to.deep.equal(['K', 0o600]);
      expect(await readFile(join(root, state, 'mirror/quota'), 'utf8')).to.equal('5');
      await put({ 'tls.key': 'L' });
      await until(async () => (await readFile(key, 'utf8')) === 'L');
      await put({ port: '9700' });
      expect(await untilCalled(6)).to.deep.equal([...started, ...started]);
      expect(await readFile(join(root, unit), 'utf8')).to.include(':9700');
    });

    it('starts a unit that a killed agent has only written', async () => {
      await put(secret);
      await untilCalled(3);
      await until(() => existsSync(join(root, state, 'mirror/started.service')));
      await rm(join(root, state, 'mirror/started.service'));
      expect((await untilCalled(6)).slice(3)).to.deep.equal(started);
    });

    it('is removed with a part of it', async () => {
      await put(secret);
      await untilCalled(3);
      await rm(join(secrets, 'tls.crt'));
      await until(() => !existsSync(join(root, state, 'mirror')));
      expect(await calls()).to.deep.equal([...started, `disable --now ${name}`, 'daemon-reload']);
      expect(existsSync(join(root, unit))).to.equal(false);
    });

    it('tries again until systemd starts it, and logs the failure once', async () => {
      await writeFile(join(folder, 'broken'), '');
      await put(secret);
      await untilCalled(3);
      await rm(join(folder, 'broken'));
      await until(async () => (await calls()).at(-1) === started.at(-1));
      expect((await calls()).slice(0, 3)).to.deep.equal(Array(3).fill('daemon-reload'));
      expect(context.lines.filter((line) => line.startsWith('warn'))).to.have.length(1);
    });
  });
});

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
