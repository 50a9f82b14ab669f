import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { VerifyTrust } from '../../../lib/bundle/open/signatureCheck.ts';
import { derivePreSharedKey } from '../../../lib/content/http/certificates.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { serveContent } from '../../../lib/content/server.ts';
import { AgentPeers, connectToPeers } from '../../../lib/update/agent/agentPeers.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { controlRollout } from '../../../lib/update/controller/rollout.ts';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { connectTo } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const token = '0123456789abcdef0123';

describe('a node that lies', () => {
  let made: TestBundle;
  /** Another release, signed by the same key, which is not allowed. */
  let other: TestBundle;
  let digest: Digest;
  let trust: VerifyTrust;
  let rollout: RolloutSite;
  let folder: string;
  let closing: (() => Promise<unknown> | void)[] = [];

  before(async () => {
    made = await makeBundle({ version: '4.19.4', previous: ['4.19.3'] });
    other = await makeBundle({ version: '4.19.9', previous: ['4.19.3'] });
    digest = digestOf(await readFile(made.path));
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    trust = { keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false, fetchFile };
  });
  after(async () => {
    await made.remove();
    await other.remove();
  });
  beforeEach(async () => {
    folder = await makeFolder();
    rollout = await RolloutSite.start();
    rollout.site.silent.add('worker-0');
  });
  afterEach(async () => {
    for (const close of closing.toReversed()) await close();
    closing = [];
    await rollout.close();
    await removeFolder(folder);
  });

  /** Starts a peer with the token that responds to every path with these bytes, and claims to have the bundle. */
  const lie = async (bytes: Buffer): Promise<string[]> => {
    const asked: string[] = [];
    const file = {
      size: bytes.length,
      async *chunks(start: number, length: number) {
        yield await Promise.resolve(bytes.subarray(start, start + length));
      },
    };
    const files = new Map([
      [`/bundles/${digest.slice(7)}.tar`, file],
      [`/bundles/${digest.slice(7)}.json`, file],
    ]);
    const onResponse = ({ path }: { path: string }): void => void asked.push(path);
    const server = await serveContent(
      () => undefined,
      { host: '127.0.0.1', port: 0, preSharedKey: derivePreSharedKey(token), files, onResponse },
      makeContext(),
    );
    closing.push(() => server.close());
    const progress = { name: 'worker-0', phase: 'Loaded', imagesLoaded: 9, imagesTotal: 9, bytes: 1 } as const;
    const uid = rollout.bundle()?.metadata.uid ?? '';
    const lease: Json = { ...formatNodeReport({ bundle: uid, progress, origin: server.url, offers: digest }) };
    // Other claims of a report are ignored.
    const said = {
      version: '6.6.6',
      release: 'evil.example.com/x@sha256:0',
      digest,
      manifests: [{ kind: 'ConfigMap' }],
    };
    const metadata = lease['metadata'] as { annotations: Record<string, string> };
    for (const [name, text] of Object.entries(metadata.annotations))
      metadata.annotations[name] = JSON.stringify({ ...(JSON.parse(text) as object), ...said });
    rollout.server.put(lease);
    return asked;
  };
  const open = async () => {
    const connected = await connectTo(rollout.server);
    const connections = connectToPeers(token);
    const holdings = new BundleCache(join(folder, 'master-0'), trust);
    closing.push(
      () => connected.close(),
      () => {
        connections.close();
      },
    );
    return { connected, holdings, peers: new AgentPeers(connected.cluster, 'master-0', connections) };
  };

  it('fetches only the allowed bundle, not even another signed one', async () => {
    rollout.server.put(upgradeBundle(undefined, { bundle: { digest } }));
    const { peers, holdings } = await open();
    for (const bytes of [
      await readFile(other.path),
      Buffer.from('{}'),
      (await readFile(made.path)).subarray(0, -512),
    ]) {
      const asked = await lie(bytes);
      expect(await peers.fetch(digest, holdings.folder, makeContext())).to.equal('busy');
      expect(await holdings.openCopy(digest, makeContext())).to.equal(undefined);
      expect(await holdings.recall(digest, makeContext())).to.equal(undefined);
      expect(new Set(asked)).to.deep.equal(new Set([`/bundles/${digest.slice(7)}.tar`]));
    }
  });

  it('tells the controller nothing about a bundle: that asks its own node only, which has to get it first', async () => {
    rollout.server.put(upgradeBundle(undefined, { bundle: { digest } }));
    const { connected, holdings } = await open();
    const asked = await lie(await readFile(other.path));
    const context = makeContext();
    const options = { identity: 'master-0', namespace: 'oc-upgrade-bundle', interval: 100 };
    const readBundle = (wanted: Digest) => holdings.recall(wanted, context);
    const running = controlRollout(connected.cluster, { ...options, readBundle }, context);
    closing.push(async () => {
      context.interrupt();
      await running;
    });
    await rollout.until(() => rollout.condition('Verified').includes('NotFound'));
    expect(rollout.bundle()?.status).to.include({ phase: 'Detected', turn: 'master-0' });
    expect(rollout.bundle()?.status).not.to.have.any.keys('version', 'release');
    expect(asked).to.deep.equal([]);
    const { bundle } = await holdings.verify({ path: made.path, device: made.folder }, digest, makeContext());
    await bundle[Symbol.asyncDispose]();
    await rollout.until(() => rollout.bundle()?.status?.version !== undefined);
    expect(rollout.bundle()?.status).to.include({ version: '4.19.4', release: made.release.pullspec });
  });
});
