import { mkdir, readFile, stat } from 'node:fs/promises';
import { expect } from 'chai';
import { stringify } from 'yaml';
import { formatSiteReport, parseSiteReport, type SiteReport } from '../../lib/config/siteReport.ts';
import { digestOf, type Digest, digestIn } from '../../lib/content/oci/reference.ts';
import { runPreflight } from '../../lib/readiness/preflight/preflight.ts';
import { readSite } from '../../lib/readiness/preflight/site.ts';
import { surveyCluster } from '../../lib/readiness/preflight/survey.ts';
import { administrator, SimulatedCluster, gatherTrustIn } from '../fakes/cluster/simulatedCluster.ts';
import type { SimulatedNode } from '../fakes/cluster/simulatedNode.ts';
import { node as makeNode } from '../fakes/cluster/site.ts';
import type { Json } from '../fakes/kubernetes/apiPatch.ts';
import { listImages, requireRoot, storageIn } from '../support/archive/storeReader.ts';
import { connectTo } from '../support/cluster.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { runProgram } from '../support/content/creation.ts';
import { TestContent } from '../support/content/image.ts';
import { makeNoiseLayer } from '../support/content/layers.ts';
import { requireLoopDevices, type Drive } from '../support/loopDevice.ts';
import { requirePeer, runSuccessfully } from '../support/peers.ts';
import { addCatalog, catalogFiles, catalogLayers } from '../support/release/catalogImage.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';
import { pullspecsOf } from '../support/release/release.ts';

const name = '4.20.3-x86-64';
const siteNodes = ['master-0', 'worker-0', 'worker-1'];
const gates = { 'ack-4.19-x': 'Check this.' };

/**
 * Returns the report of a site with the operator `web` in version 1.0.0, as `preflight` writes and `create` reads it.
 */
async function reportSite({ api }: SimulatedCluster): Promise<SiteReport> {
  const group = { group: 'operators.coreos.com', version: 'v1alpha1', namespaced: true, status: true, custom: true };
  const apiVersion = 'operators.coreos.com/v1alpha1';
  const namespace = 'openshift-operators';
  api.kinds.push({ ...group, kind: 'Subscription', resource: 'subscriptions' });
  api.kinds.push({ ...group, kind: 'ClusterServiceVersion', resource: 'clusterserviceversions' });
  api.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
  const version = '1.0.0';
  const metadata = { name: 'web.v1.0.0', namespace };
  api.put({ apiVersion, kind: 'ClusterServiceVersion', metadata, spec: { version } });
  api.put({
    apiVersion,
    kind: 'Subscription',
    metadata: { name: 'web', namespace },
    spec: { name: 'web', channel: 'stable', source: 'redhat-operators' },
    status: { installedCSV: metadata.name },
  });
  const user = { token: administrator };
  await using connected = await connectTo(api, { user, cluster: { 'insecure-skip-tls-verify': true } });
  const survey = await surveyCluster(connected.cluster);
  const report = await runPreflight(connected.cluster, undefined, connected.context, { survey });
  const site = await readSite(connected.cluster, survey, report, { tool: 'test/1', reportKey: undefined });
  return parseSiteReport(formatSiteReport(site), 'site.json');
}

/** A catalog of quay.io with an update of that operator, and its images. */
function makeOperator(): { catalog: string; content: TestContent } {
  const content = new TestContent();
  const images = ['bundle', 'operator'].map((repository) => {
    const layers = [makeNoiseLayer(repository, 5000)];
    return `quay.io/web/${repository}@${content.addImage(`web/${repository}`, { architecture: 'amd64', layers }).digest}`;
  });
  const web = { name: 'web', channels: { stable: [{ version: '1.1.0', skipRange: '<1.1.0' }] }, images: () => images };
  addCatalog(content, 'redhat/redhat-operator-index', catalogLayers(catalogFiles([web])), { tag: 'v4.20' });
  return { catalog: 'quay.io/redhat/redhat-operator-index:v4.20', content };
}

describe('a cluster with a bundle of two releases for its site', function () {
  requirePeer(this, 'skopeo', 'podman');
  let made: TestBundle;
  let digest: Digest;
  let first: TestBundle;
  let cluster: SimulatedCluster;
  let nodes: readonly SimulatedNode[] = [];
  /** The conditions when an acknowledgement was missing, and the requested updates between the two. */
  let conditions: string;
  let requestsBetween: readonly unknown[];

  before(async function () {
    await requireRoot(this);
    await requireLoopDevices(this);
    // All bundles of this process have the same key.
    first = await makeBundle({ version: '4.19.3', layerSize: 50_000 });
    cluster = await SimulatedCluster.start({ trust: await gatherTrustIn(first) });
    // Its nodes have the images of the running release.
    const images = pullspecsOf(first.release).map((pullspec) => ({ names: [pullspec], sizeBytes: 1 }));
    for (const node of siteNodes)
      cluster.api.put(makeNode(node, node.startsWith('master') ? 'master' : 'worker', { images }));
    const operator = makeOperator();
    const files = { 'gates.yaml': stringify({ kind: 'ConfigMap', metadata: { name: 'admin-gates' }, data: gates }) };
    made = await makeBundle({
      version: '4.20.3',
      previous: ['4.19.12'],
      layerSize: 50_000,
      earlier: [{ version: '4.19.12', previous: ['4.19.3'], components: 3, files }],
      site: {
        report: await reportSite(cluster),
        catalog: operator.catalog,
        contents: [operator.content, first.release],
      },
    });
    digest = digestOf(await readFile(made.path));
    await cluster.play(async () => {
      cluster.site.gates.set('4.19.12', gates);
      nodes = await Promise.all(siteNodes.map((node) => cluster.addNode(node, ['--disk-floor=1Mi'])));
      await fillStores(nodes.map(({ store }) => store));
      const allowExtraImages = made.result.metadata.extraImages.map(digestIn);
      cluster.allow(digest, { holdBetween: true, allowExtraImages }, name);
      await updateToFirst();
      await restartAgents();
      await updateToSecond();
    }, name);
  });
  after(async () => {
    // There is none if the suite is skipped.
    const remains = cluster as SimulatedCluster | undefined;
    await remains?.close();
    for (const bundle of [first, made] as (TestBundle | undefined)[]) await bundle?.remove();
    expect([...new Set(remains?.denied)]).to.deep.equal([]);
  });
  /** Loads the running release into the image stores of nodes. */
  const fillStores = async (stores: readonly string[]): Promise<void> => {
    const storage = await storageIn(first.folder);
    const { code, stderr } = await runProgram(first.folder, 'load', [first.path, '--allow-unsigned'], storage);
    expect(code, stderr).to.equal(0);
    for (const each of stores) {
      // Its agent may have created it.
      await mkdir(each, { recursive: true });
      // Without the database of podman, which names the folder of the store.
      await runSuccessfully('sh', ['-c', `cp -a ${first.folder}/main/overlay* ${each}`]);
    }
  };

  const hops = (): string[] =>
    (cluster.bundle(name)?.status?.hops ?? []).map(({ version, phase }) => `${version} ${phase}`);
  const edit = (fields: Json): void => {
    cluster.edit('upgrade-bundle.openshift.io/v1alpha1', 'UpgradeBundle', name, fields);
  };

  /** Inserts a USB drive with the bundle into a node. */
  async function plug({ drives }: SimulatedNode): Promise<Drive> {
    const image = await drives.makeImage(16);
    expect((await stat(made.path)).size).to.be.lessThan(16 * 2 ** 20);
    await runSuccessfully('dd', [`if=${made.path}`, `of=${image}`, 'conv=notrunc', 'status=none']);
    return drives.plug(image);
  }

  /** Updates to the first release, and removes the USB drive before nodes take it. */
  async function updateToFirst(): Promise<void> {
    const [, worker] = nodes;
    const drive = await plug(worker ?? expect.fail('there are no nodes'));
    cluster.site.updating = false;
    await cluster.until(() => hops()[0] === '4.19.12 Upgrading');
    await cluster.until(() => {
      conditions = JSON.stringify(cluster.bundle(name)?.status?.conditions);
      return conditions.includes('ack-4.19-x');
    });
    edit({ spec: { acknowledge: ['ack-4.19-x'] } });
    await drive.pull();
    cluster.site.updating = true;
    cluster.site.wake();
    await cluster.until(() => hops()[0] === '4.19.12 Completed');
  }

  async function restartAgents(): Promise<void> {
    for (const node of nodes) {
      await node.kill('everything');
      node.start();
    }
  }

  async function updateToSecond(): Promise<void> {
    await cluster.until(() => hops()[1] === '4.20.3 Held');
    requestsBetween = [...cluster.site.requests];
    edit({ metadata: { annotations: { 'upgrade-bundle.openshift.io/resume': '4.20.3' } } });
    await cluster.until(() => cluster.phase(name) === 'Completed');
  }

  it('gets the catalog, the bundle and the image of an operator', () => {
    expect(made.result.metadata.extraImages).to.have.length(3);
  });

  it('gets the update of the operator', () => {
    expect(made.result.catalogs?.[0]?.packages[0]?.bundles.map(({ version }) => version)).to.deep.equal(['1.1.0']);
  });

  it('gets nothing that its nodes have', () => {
    const { base } = made.result.metadata;
    expect(base?.version).to.equal('4.19.3');
    // Blobs of 50,000 bytes, which the releases share with the running one.
    const left = base?.blobs.filter(({ size }) => size > 40_000) ?? [];
    expect(left.length).to.be.greaterThan(4);
  });

  it('waits for an acknowledgement, and says how to give it', () => {
    expect(conditions).to.contain('“Check this.”. Follow the text, then allow it: oc patch upgradebundle');
  });

  it('gets the acknowledgement', () => {
    const given = cluster.api.find('v1', 'ConfigMap', 'admin-acks', 'openshift-config');
    expect(given).to.deep.include({ data: { 'ack-4.19-x': 'true' } });
  });

  it('does not begin the second update while it is held', () => {
    expect(requestsBetween).to.have.length(1);
  });

  it('completes both updates without the USB drive, though its agents were killed', () => {
    expect(hops()).to.deep.equal(['4.19.12 Completed', '4.20.3 Completed']);
  });

  it('is requested to update once for each release', () => {
    const requests = made.releases.map(({ pullspec, version }) => ({ image: pullspec, version, force: false }));
    expect(cluster.site.requests).to.deep.equal(requests);
  });

  it('has all images on each node', async () => {
    for (const node of nodes) {
      const reader = await makeFolder();
      const seen = await listImages({ kind: 'additional', path: node.store }, reader);
      await removeFolder(reader);
      const wanted = [...made.releases.flatMap(pullspecsOf), ...made.result.metadata.extraImages];
      expect(seen, node.name).to.include.members(wanted);
    }
  });

  it('keeps the sets of pinned images of the previous release for a rollback', () => {
    expect(cluster.names('PinnedImageSet')).to.have.length(4);
  });
});
