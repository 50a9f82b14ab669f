import { existsSync } from 'node:fs';
import { open, readFile, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import type { VerifyTrust } from '../../../lib/bundle/open/signatureCheck.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { examineFiles, type FoundBundle } from '../../../lib/node/media/medium.ts';
import { replicaPath } from '../../../lib/node/transfer/replica.ts';
import type { AgentImages } from '../../../lib/update/agent/agentImages.ts';
import { AgentNode } from '../../../lib/update/agent/agentNode.ts';
import { AgentPeers, connectToPeers } from '../../../lib/update/agent/agentPeers.ts';
import { AgentServer } from '../../../lib/update/agent/agentServer.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import type { NodeFacts } from '../../../lib/update/agent/nodeState.ts';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import type { NodeProgress, UpgradeBundle } from '../../../lib/update/record/upgradeBundle.ts';
import { CompleteImages, LossyImages } from '../../fakes/cluster/nodeImages.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { until } from '../../support/until.ts';

const token = '0123456789abcdef0123';

describe('the work of a node for a bundle', () => {
  let made: TestBundle;
  let digest: Digest;
  let trust: VerifyTrust;
  let medium: FoundBundle;
  let site: StartedCluster;
  let folder: string;
  let context: TestContext;
  let cache: BundleCache;
  let ends: AsyncDisposableStack;

  before(async () => {
    made = await makeBundle({ version: '4.19.4', layerSize: 100_000 });
    digest = digestOf(await readFile(made.path));
    medium = await insert(made);
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    trust = { keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false, fetchFile };
  });
  after(() => made.remove());
  beforeEach(async () => {
    site = await startCluster({ openshift: '4.19.4' });
    for (const name of ['oc-upgrade-bundle', 'oc-upgrade-bundle-reports'])
      site.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    folder = await makeFolder();
    context = makeContext();
    cache = new BundleCache(folder, trust);
    ends = new AsyncDisposableStack();
    ends.defer(() => removeFolder(folder));
    ends.use(site);
  });
  afterEach(() => ends.disposeAsync());

  /** Finds the bundle on a medium, as the agent does. */
  async function insert({ folder: device, path }: TestBundle): Promise<FoundBundle> {
    const { bundles } = await examineFiles(device, [basename(path)], { device }, makeContext());
    return bundles[0] ?? expect.fail('there is no bundle');
  }
  /** Starts the work of a node, whose store has everything. */
  async function start(images: AgentImages = new CompleteImages({ root: folder, environment: {} }, 0)) {
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token }, context);
    const connections = connectToPeers(token);
    const peers = new AgentPeers(site.cluster, 'master-0', connections);
    const agent = new AgentNode(digest, { cache, images, peers, server }, context);
    ends.defer(async () => {
      await agent.close();
      await server.close();
      connections.close();
    });
    return agent;
  }
  /** Returns the record of the update at a phase. */
  const record = (phase = 'Completed'): UpgradeBundle =>
    ({ ...upgradeBundle('a', { bundle: { digest } }), status: { phase, version: '4.19.4' } }) as UpgradeBundle;
  const facts = { name: 'master-0', controlPlane: true, pinsByCluster: true, retains: 'all' } as const;
  /** A node without a mirror. */
  const plain = { ...facts, retains: undefined };

  /** Lets the node do its tasks until a condition is true. */
  async function advance(
    agent: AgentNode,
    holds: (progress: NodeProgress) => unknown,
    { media = [], unread = [], bundle = record(), node = facts }: Partial<Work> = {},
  ): Promise<NodeProgress> {
    for (let round = 0; round < 3000; round += 1) {
      await agent.advance(bundle, node, media, unread);
      const progress = await agent.describe(bundle, node);
      if (await holds(progress)) return progress;
      await sleep(5);
    }
    return expect.fail(JSON.stringify(await agent.describe(bundle, node)));
  }
  interface Work {
    readonly media: readonly FoundBundle[];
    readonly unread: readonly string[];
    readonly bundle: UpgradeBundle;
    readonly node: NodeFacts;
  }
  const copy = (): string => replicaPath(folder, digest);
  const isIntact = async (): Promise<boolean> =>
    digestOf(await readFile(copy()).catch(() => Buffer.alloc(0))) === digest;
  /** Lets the node have a copy of the bundle, as after an update, and damages it. */
  async function keep(isDamaged = true): Promise<void> {
    const verified = await cache.verify(medium, digest, makeContext());
    await (await cache.keep(verified, makeContext()))?.bundle[Symbol.asyncDispose]();
    await verified.bundle[Symbol.asyncDispose]();
    if (!isDamaged) return;
    await using file = await open(copy(), 'r+');
    await file.write(Buffer.from('damaged'), 0, 7, 200_000);
  }
  const unread = [`sha256:${'a'.repeat(64)}`];

  it('verifies a bundle on a medium, and offers it until the medium is removed', async () => {
    const agent = await start();
    const work = { bundle: record('Loading'), node: plain };
    const isOffered = (): boolean => agent.report.offers === digest;
    const progress = await advance(agent, isOffered, { ...work, media: [medium] });
    expect(agent.facts?.digest).to.equal(digest);
    expect(progress.bytes).to.be.above(0);
    expect(agent.screen(work.bundle, plain, [medium])).to.include({ drive: 'needed', version: '4.19.4' });
    await advance(agent, () => !isOffered(), work);
    expect(context.lines.join('\n')).to.match(/^warn: .* was removed$/m);
    expect(agent.screen(work.bundle, plain, []).drive).to.equal('none');
  });

  it('ignores another bundle than the allowed one, which it reads once if no file states its digest', async () => {
    await using other = await makeBundle({ version: '4.19.4', layerSize: 1000 });
    const agent = await start();
    const bundle = record('Detected');
    const isIgnored = ({ message = '' }: NodeProgress): boolean => message.includes('it is ignored');
    const stated = await advance(agent, isIgnored, { media: [await insert(other)], bundle });
    expect(stated.message).to.include(
      ` has the digest ${digestOf(await readFile(other.path))}, and ${digest} is allowed`,
    );
    expect(context.lines).to.deep.equal([]);
    await rm(`${other.path}.sha256`);
    const media = [await insert(other)];
    await advance(agent, isIgnored, { media, bundle });
    expect(context.lines.map((line) => line.split(' ')[0])).to.deep.equal(['info:', 'warn:']);
    expect(agent.report.offers).to.equal(undefined);
    expect(agent.facts).to.equal(undefined);
    expect(agent.screen(bundle, facts, media).drive).to.equal('none');
  });

  it('copies a bundle of a medium to the disk for the mirror, and needs the medium until then', async () => {
    const agent = await start();
    const bundle = record();
    const driveNow = async (): Promise<string> => {
      await agent.advance(bundle, facts, [medium]);
      const { drive } = agent.screen(bundle, facts, [medium]);
      if (drive === 'removable') expect(existsSync(copy())).to.equal(true);
      return drive;
    };
    await until(async () => (await driveNow()) === 'removable');
    expect(await isIntact()).to.equal(true);
    const { phase, imagesLoaded } = await advance(agent, () => true);
    expect([phase, imagesLoaded]).to.deep.equal(['Pinned', made.result.metadata.images.length]);
    expect(agent.report.offers).to.equal(digest);
  });

  it('replaces a damaged copy that the mirror cannot read from a medium', async () => {
    await keep();
    expect(await isIntact()).to.equal(false);
    await advance(await start(), isIntact, { media: [medium], unread });
  });

  it('replaces a damaged copy that the mirror cannot read from another node', async () => {
    await keep();
    const another = await AgentServer.open({ host: '127.0.0.1', port: 0, token }, makeContext());
    ends.defer(() => another.close());
    const source = await new BundleCache(join(folder, 'another'), trust).verify(medium, digest, makeContext());
    ends.use(source.bundle);
    another.offer(source.bundle, digest);
    const progress = { name: 'master-1', phase: 'Pinned', imagesLoaded: 5, imagesTotal: 5, bytes: 0 } as const;
    const { origin } = another;
    site.server.put({ ...formatNodeReport({ bundle: 'x', progress, origin, offers: digest }) });
    await advance(await start(), isIntact, { unread });
  });

  it('keeps the intact part of a copy while nothing can replace it, and names the drive to insert', async () => {
    await keep();
    const isNamed = ({ message = '' }: NodeProgress): boolean => message.includes('its copy of the bundle is damaged');
    const { message } = await advance(await start(), isNamed, { unread });
    expect(message).to.contain('insert the USB drive with the bundle');
    expect((await readFile(copy())).length).to.be.greaterThan(0);
  });

  it('restores a copy from a medium after it was deleted, also if it was open', async () => {
    await keep(false);
    const agent = await start();
    await advance(agent, () => agent.report.offers === digest);
    await rm(copy());
    await advance(agent, isIntact, { media: [medium] });
    expect(context.lines.join('\n')).to.include(`${copy()} was removed`);
  });

  it('loads one lost image again, and counts the other images all the time', async () => {
    await keep(false);
    const images = new LossyImages({ root: folder, environment: {} }, 0);
    const agent = await start(images);
    const counts = new Set<string>();
    let loadingRounds = 0;
    const all = made.result.metadata.images.length;
    await advance(agent, ({ phase, imagesLoaded }) => {
      counts.add(`${phase} ${imagesLoaded}`);
      if (phase === 'Loading') loadingRounds += 1;
      if (loadingRounds > 5) images.loading.resolve(undefined);
      return phase === 'Pinned' && imagesLoaded === all;
    });
    expect([...counts].filter((each) => each.startsWith('Loading'))).to.deep.equal([`Loading ${all - 1}`]);
    expect([...counts].filter((each) => each.endsWith(' 0') && !each.startsWith('Waiting'))).to.deep.equal([]);
  });
});
