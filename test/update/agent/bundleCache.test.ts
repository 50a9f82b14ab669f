import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type { VerifyTrust } from '../../../lib/bundle/open/signatureCheck.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { examineFiles } from '../../../lib/node/media/medium.ts';
import { replicaPath } from '../../../lib/node/transfer/replica.ts';
import { AgentLoop } from '../../../lib/update/agent/agentLoop.ts';
import { AgentPeers, connectToPeers } from '../../../lib/update/agent/agentPeers.ts';
import { AgentServer } from '../../../lib/update/agent/agentServer.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { ImageServing } from '../../../lib/update/agent/imageServing.ts';
import { imageUnitFile, imageUnitName } from '../../../lib/update/mirror/mirrorUnit.ts';
import { readReport, reportKind } from '../../../lib/update/record/nodeReport.ts';
import { upgradeBundleKind } from '../../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { CompleteImages } from '../../fakes/cluster/nodeImages.ts';
import { node } from '../../fakes/cluster/site.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { makeRecordedHost, type RecordedHost } from '../../support/program/recordedHost.ts';

const token = '0123456789abcdef0123';

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
    { isInserted, unread = [], serving }: { isInserted: boolean; unread?: readonly string[]; serving?: ImageServing },
  ): Promise<void> {
    const context = makeContext();
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token }, context);
    const connections = connectToPeers(token);
    const tools = {
      server,
      cache,
      images: new CompleteImages({ root: folder, environment: {} }, 0),
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

  it('is replaced from a medium if the mirror cannot read it', async () => {
    {
      await using file = await open(copy(), 'r+');
      await file.write(Buffer.from('damaged'), 0, 7, 200_000);
    }
    expect(await isIntact()).to.equal(false);
    await runUntil(isIntact, { isInserted: true, unread: [`sha256:${'a'.repeat(64)}`] });
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
});
