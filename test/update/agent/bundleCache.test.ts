import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type { VerifyTrust } from '../../../lib/bundle/open/signatureCheck.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { examineFiles } from '../../../lib/node/media/medium.ts';
import { replicaPath } from '../../../lib/node/transfer/replica.ts';
import { AgentImages } from '../../../lib/update/agent/agentImages.ts';
import { AgentLoop } from '../../../lib/update/agent/agentLoop.ts';
import { AgentPeers, connectToPeers } from '../../../lib/update/agent/agentPeers.ts';
import { AgentServer } from '../../../lib/update/agent/agentServer.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { ImageServing } from '../../../lib/update/agent/imageServing.ts';
import { imageUnitFile, imageUnitName } from '../../../lib/update/mirror/mirrorUnit.ts';
import { formatNodeReport, readReport, reportKind } from '../../../lib/update/record/nodeReport.ts';
import { upgradeBundleKind } from '../../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { node } from '../../fakes/cluster/site.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { makeRecordedHost, type RecordedHost } from '../../support/program/recordedHost.ts';

const token = '0123456789abcdef0123';

/** The images of a node whose store has everything. */
class CompleteImages extends AgentImages {
  override count({ metadata }: Parameters<AgentImages['count']>[0]) {
    return Promise.resolve({ loaded: metadata.images.length, total: metadata.images.length });
  }
}

/** The images of a node that lost one of them, which takes as long to load as a test wants. */
class LossyImages extends CompleteImages {
  readonly loading = Promise.withResolvers<undefined>();
  #isLost = true;

  override async count(facts: Parameters<AgentImages['count']>[0]) {
    const { loaded, total } = await super.count(facts);
    return { loaded: this.#isLost ? loaded - 1 : loaded, total };
  }

  override async load(...[, , , context]: Parameters<AgentImages['load']>): Promise<void> {
    context.onEvent({ kind: 'image', name: 'the first of those that are present' });
    await this.loading.promise;
    this.#isLost = false;
  }
}

describe('the copy that a node keeps of a completed update', () => {
  let connected: StartedCluster;
  let made: TestBundle;
  let digest: Digest;
  let folder: string;
  let cache: BundleCache;
  let trust: VerifyTrust;

  before(async () => {
    made = await makeBundle({ version: '4.19.4', layerSize: 100_000 });
    digest = digestOf(await readFile(made.path));
  });
  after(() => made.remove());
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.19.4' });
    for (const name of ['oc-upgrade-bundle', 'oc-upgrade-bundle-reports'])
      connected.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    connected.server.put(upgradeBundleDefinition());
    connected.server.put(node('master-0', 'master'));
    const status = { phase: 'Completed', version: '4.19.4', release: made.release.pullspec };
    connected.server.put({ ...upgradeBundle('done', { bundle: { digest } }), status });
    const history = [{ version: '4.19.4', state: 'Completed', image: made.release.pullspec }];
    const reference = { apiVersion: 'config.openshift.io/v1', kind: 'ClusterVersion', metadata: { name: 'version' } };
    connected.server.put({ ...reference, status: { history } });
    folder = await mkdtemp(join(tmpdir(), 'kept-'));
    await mkdir(join(folder, 'mirror'));
    await writeFile(join(folder, 'mirror/tls.crt'), '');
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    trust = { keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false, fetchFile };
    cache = new BundleCache(folder, trust);
    const verified = await cache.verify({ path: made.path, device: made.folder }, digest, makeContext());
    await (await cache.keep(verified, makeContext()))?.bundle[Symbol.asyncDispose]();
    await verified.bundle[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await connected.close();
    await rm(folder, { recursive: true, force: true });
  });

  /** Runs the agent until a condition holds, with the bundle on a medium if there is one. */
  async function runUntil(
    holds: () => Promise<boolean>,
    {
      isInserted,
      unread = [],
      images = new CompleteImages({ root: folder, environment: {} }, 0),
      serving,
    }: { isInserted: boolean; unread?: readonly string[]; images?: AgentImages; serving?: ImageServing },
  ): Promise<void> {
    const context = makeContext();
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token }, context);
    const connections = connectToPeers(token);
    const tools = {
      server,
      cache,
      images,
      ...(serving && { serving }),
      peers: new AgentPeers(connected.cluster, 'master-0', connections),
    };
    const found = await examineFiles(made.folder, ['upgrade-4.19.4-x86_64.tar'], { device: made.folder }, context);
    const wait = async (): Promise<void> => {
      if (await holds()) context.interrupt();
      else await new Promise((resolve) => setTimeout(resolve, 10));
    };
    const media = {
      find: () => Promise.resolve(isInserted ? [...found.bundles] : []),
      wait,
      unusable: new Map<never, never>(),
    };
    const mirror = () => Promise.resolve({ versions: ['4.19.4'], requests: 0, lacking: unread });
    const loop = new AgentLoop(connected.cluster, { node: 'master-0', media, tools, mirror, interval: 1 }, context);
    try {
      await loop.run();
    } finally {
      await loop.close();
      await server.close();
      connections.close();
    }
  }
  const copy = (): string => replicaPath(folder, digest);
  const isIntact = async (): Promise<boolean> =>
    digestOf(await readFile(copy()).catch(() => Buffer.alloc(0))) === digest;
  const progress = async () => {
    const { apiVersion, kind, namespace } = reportKind;
    const [lease] = await connected.cluster.list(apiVersion, kind, { namespace });
    return lease && readReport(lease)?.report?.progress;
  };
  const message = async (): Promise<string> => (await progress())?.message ?? '';
  const damage = async (): Promise<void> => {
    await using file = await open(copy(), 'r+');
    await file.write(Buffer.from('damaged'), 0, 7, 200_000);
  };
  const unread = [`sha256:${'a'.repeat(64)}`];

  it('is replaced from a medium if the mirror cannot read it', async () => {
    await damage();
    expect(await isIntact()).to.equal(false);
    await runUntil(isIntact, { isInserted: true, unread });
  });

  it('is replaced from another node if the mirror cannot read it', async () => {
    await damage();
    const another = await AgentServer.open({ host: '127.0.0.1', port: 0, token }, makeContext());
    const source = await new BundleCache(join(folder, 'another'), trust).verify(
      { path: made.path, device: made.folder },
      digest,
      makeContext(),
    );
    try {
      another.offer(source.bundle, digest);
      const progress = { name: 'master-1', phase: 'Pinned', imagesLoaded: 5, imagesTotal: 5, bytes: 0 } as const;
      const { origin } = another;
      connected.server.put({ ...formatNodeReport({ bundle: 'x', progress, origin, offers: digest }) });
      await runUntil(isIntact, { isInserted: false, unread });
    } finally {
      await another.close();
      await source.bundle[Symbol.asyncDispose]();
    }
  });

  it('serves the intact part while nothing can replace it, and the node names the drive to insert', async () => {
    await damage();
    await runUntil(async () => (await message()).includes('its copy of the bundle is damaged'), {
      isInserted: false,
      unread,
    });
    expect(await message()).to.contain('insert the USB drive with the bundle');
    expect((await readFile(copy())).length).to.be.greaterThan(0);
  });

  it('comes back from a medium after it was deleted, also if it was open', async () => {
    let rounds = 0;
    const deleteLate = async (): Promise<boolean> => {
      rounds += 1;
      if (rounds === 3) await rm(copy());
      return rounds > 3 && (await isIntact());
    };
    await runUntil(deleteLate, { isInserted: true });
  });

  describe('without a mirror', () => {
    const kubelet = 'etc/kubernetes/kubelet.conf';
    let recorded: RecordedHost;
    beforeEach(async () => {
      await rm(join(folder, 'mirror'), { recursive: true });
      recorded = await makeRecordedHost(folder);
      await mkdir(join(recorded.host.root, 'etc/kubernetes'), { recursive: true });
      await writeFile(join(recorded.host.root, kubelet), 'imagePullCredentialsVerificationPolicy: AlwaysVerify\n');
    });
    afterEach(() => {
      recorded.close();
    });
    const run = (holds: () => Promise<boolean>, isInserted = false): Promise<void> =>
      runUntil(holds, { isInserted, serving: new ImageServing(recorded.host, 'ab') });
    const isServed = () => existsSync(join(recorded.host.root, imageUnitFile));

    it('stays, and the node serves it to a kubelet that refuses loaded images, until the UpgradeBundle is deleted', async () => {
      await run(async () => isServed() && (await message()).includes('until the UpgradeBundle is deleted'));
      expect(await message()).to.contain('imagePullCredentialsVerificationPolicy AlwaysVerify');
      let rounds = 0;
      await run(() => Promise.resolve((rounds += 1) > 5));
      expect([isServed(), await isIntact()]).to.deep.equal([true, true]);
      const { apiVersion, kind } = upgradeBundleKind;
      await connected.cluster.delete({ apiVersion, kind, metadata: { name: 'done' } });
      await run(async () => !isServed() && !existsSync(copy()));
      expect((await recorded.calls()).slice(-2)).to.deep.equal([`disable --now ${imageUnitName}`, 'daemon-reload']);
    });

    it('goes once the kubelet accepts loaded images, and comes back from a medium if it refuses them again', async () => {
      const text = 'imagePullCredentialsVerificationPolicy: NeverVerify\n';
      await run(async () => isServed() && (await isIntact()));
      await writeFile(join(recorded.host.root, kubelet), text);
      await run(() => Promise.resolve(!isServed() && !existsSync(copy())));
      await writeFile(join(recorded.host.root, kubelet), text.replace('NeverVerify', 'AlwaysVerify'));
      await run(async () => (await message()).includes('insert the USB drive'));
      await run(async () => isServed() && (await isIntact()), true);
    });
  });

  it('gives back one lost image, and the other images count all the time', async () => {
    const images = new LossyImages({ root: folder, environment: {} }, 0);
    const counts = new Set<string>();
    let loadingRounds = 0;
    const [all, rest] = [made.result.metadata.images.length, made.result.metadata.images.length - 1];
    await runUntil(
      async () => {
        const { phase, imagesLoaded = 0 } = (await progress()) ?? {};
        if (phase !== undefined) counts.add(`${phase} ${imagesLoaded}`);
        if (phase === 'Loading') loadingRounds += 1;
        if (loadingRounds > 5) images.loading.resolve(undefined);
        return phase === 'Pinned' && imagesLoaded === all;
      },
      { isInserted: false, images },
    );
    expect([...counts].filter((each) => each.startsWith('Loading'))).to.deep.equal([`Loading ${rest}`]);
    expect([...counts].filter((each) => each.endsWith(' 0') && !each.startsWith('Waiting'))).to.deep.equal([]);
  });
});
