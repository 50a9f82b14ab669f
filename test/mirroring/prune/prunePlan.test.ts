import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { PluginError } from '../../../lib/errors.ts';
import type { StoredRelease } from '../../../lib/mirroring/prune/inventory.ts';
import { readClusterNeeds, evaluateReleases } from '../../../lib/mirroring/prune/prunePlan.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';

const imageOf = (name: string): string => `mirror.test/openshift/release@${digestOf(name)}`;

describe('readClusterNeeds', () => {
  let connected: StartedCluster;
  before(async () => {
    connected = await startCluster({ openshift: '4.20.3' });
  });
  after(() => connected.close());

  /** Returns whether the image is needed if only a pod with these fields names it. */
  async function isNeeded(name: string, fields: { spec?: object; status?: object }): Promise<boolean> {
    const metadata = { name: 'pod', namespace: 'default' };
    const spec = { containers: [{ name: 'c', image: 'mirror.test/other:1' }] };
    connected.server.put({ apiVersion: 'v1', kind: 'Pod', metadata, ...fields, spec: { ...spec, ...fields.spec } });
    const needs = await readClusterNeeds({ openCluster: () => Promise.resolve(connected.cluster) }, true);
    return needs?.digests.has(digestOf(name)) === true;
  }

  for (const [what, fieldsFor] of Object.entries({
    'a container': (image: string) => ({ spec: { containers: [{ name: 'c', image }] } }),
    'an init container': (image: string) => ({ spec: { initContainers: [{ name: 'c', image }] } }),
    'an ephemeral container': (image: string) => ({ spec: { ephemeralContainers: [{ name: 'c', image }] } }),
    'an image volume': (image: string) => ({ spec: { volumes: [{ name: 'v', image: { reference: image } }] } }),
    'the status of a container': (image: string) => ({
      status: { containerStatuses: [{ name: 'c', imageID: image }] },
    }),
    'the status of an init container': (image: string) => ({
      status: { initContainerStatuses: [{ name: 'c', imageID: image }] },
    }),
    'the status of an ephemeral container': (image: string) => ({
      status: { ephemeralContainerStatuses: [{ name: 'c', image }] },
    }),
  })) {
    it(`keeps the image of ${what}`, async () => {
      expect(await isNeeded(what, fieldsFor(imageOf(what)))).to.equal(true);
      expect(await isNeeded(what, {})).to.equal(false);
    });
  }

  it('keeps the image of a container by its status if the pod names a tag', async () => {
    const status = { containerStatuses: [{ name: 'c', image: 'mirror.test/other:1', imageID: imageOf('running') }] };
    expect(await isNeeded('running', { status })).to.equal(true);
  });
});

describe('readClusterNeeds without a cluster', () => {
  const read = (settings: readonly string[], isNamed: boolean): Promise<unknown> => {
    const absent = new PluginError('no-cluster', 'there is none', { settings });
    return readClusterNeeds({ openCluster: () => Promise.reject(absent) }, isNamed);
  };

  it('needs nothing if no cluster is configured', async () => {
    for (const setting of ['kubeconfig', 'server'] as const) expect(await read([setting], false)).to.equal(undefined);
  });

  it('fails if a cluster was named, or a context that does not exist', async () => {
    await failureOf(read(['kubeconfig'], true), 'no-cluster');
    await failureOf(read(['context'], false), 'no-cluster');
  });
});

describe('evaluateReleases', () => {
  const release: StoredRelease = {
    version: '4.20.3',
    arch: 'multi',
    tag: '4.20.3-multi',
    digest: digestOf('list'),
    children: [digestOf('amd64'), digestOf('arm64')],
    images: [],
  };
  const reasonFor = (digests: string[], versions: string[] = []): string | undefined => {
    const needs = { name: 'c', versions: new Set(versions), digests: new Set(digests.map(digestOf)) };
    return evaluateReleases({ releases: [release] }, [], needs)[0]?.reason;
  };

  it('keeps a release that is named by its version or its tag', () => {
    for (const name of ['4.20.3', '4.20.3-multi', '4.20.3-x86_64'])
      expect(evaluateReleases({ releases: [release] }, [name], undefined)[0]?.reason, name).to.equal(
        name === '4.20.3-x86_64' ? undefined : 'named',
      );
    const tagged = { ...release, otherTag: 'stable' };
    expect(evaluateReleases({ releases: [tagged] }, [], undefined)[0]?.reason).to.equal('tagged');
  });

  it('keeps a list of which the cluster runs an image for one architecture', () => {
    expect(reasonFor(['arm64'])).to.equal('cluster');
    expect(reasonFor(['list'])).to.equal('cluster');
    expect(reasonFor(['another'])).to.equal(undefined);
  });

  it('keeps a release in the history of the cluster', () => {
    expect(reasonFor([], ['4.20.3'])).to.equal('cluster');
    expect(reasonFor([], ['4.20.4'])).to.equal(undefined);
  });
});
