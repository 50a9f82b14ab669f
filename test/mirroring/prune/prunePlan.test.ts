import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { openAccess } from '../../../cmd/cli/access.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { Registries } from '../../../lib/content/registry/registries.ts';
import { Directory, releaseRepository } from '../../../lib/content/store/directory.ts';
import { PluginError } from '../../../lib/errors.ts';
import { parseDestination } from '../../../lib/mirroring/mirror/destination.ts';
import { readInventory } from '../../../lib/mirroring/prune/inventory.ts';
import type { StoredRelease } from '../../../lib/mirroring/prune/inventory.ts';
import {
  readClusterNeeds,
  evaluateReleases,
  type RepositoryPlan,
  planRepository,
} from '../../../lib/mirroring/prune/prunePlan.ts';
import { writeRecord } from '../../../lib/mirroring/prune/pruneRecord.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { type Workshop, openWorkshop, addRelease } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { Mirroring } from '../../support/release/mirroring.ts';
import type { TestRelease } from '../../support/release/release.ts';

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

describe('planRepository', () => {
  const context = makeContext();
  let workshop: Workshop;
  let old: TestRelease;
  let registries: Registries;
  before(async () => {
    const small = { components: ['cli', 'etcd'], common: ['etcd'], layers: 1, baseLayers: 1 };
    workshop = await openWorkshop({ release: small });
    old = await addRelease(workshop, { ...small, version: '4.12.3', seed: 'old' });
    registries = new Registries(await openAccess({ insecure: true }, {}), context);
    await new Mirroring(workshop).succeed(['--to-dir=mirror'], `${old.pullspec},${workshop.release.pullspec}`);
  });
  after(async () => {
    await registries[Symbol.asyncDispose]();
    await workshop.close();
  });

  const root = (): string => join(workshop.folder, 'mirror');
  const plan = async (keep: readonly string[], needed: readonly Digest[] = []): Promise<RepositoryPlan> => {
    const inventory = await readInventory(parseDestination({ toDir: root() }), registries, context);
    const [repository] = inventory.repositories;
    if (!repository) throw new Error('there is no repository');
    return planRepository(repository, evaluateReleases(inventory, keep, undefined), new Set(needed));
  };
  const digestOfImage = (release: TestRelease, name: string): Digest => {
    const digest = release.images.get(name)?.digest;
    if (digest === undefined) throw new Error(`there is no ${name}`);
    return digest;
  };

  it('removes the images that only the release needs, and in a directory the tags of shared ones', async () => {
    const { manifests, tags, isEmptied } = await plan(['4.12.4']);
    expect(manifests[0]).to.equal(old.digest);
    expect(manifests).to.include(digestOfImage(old, 'cli')).and.not.include(digestOfImage(old, 'etcd'));
    expect(manifests).not.to.include(workshop.release.digest);
    expect(tags).to.include.members(['4.12.3-x86_64', '4.12.3-x86_64-cli', '4.12.3-x86_64-etcd']);
    expect(tags.filter((tag) => tag.startsWith('4.12.4'))).to.deep.equal([]);
    expect(isEmptied).to.equal(false);
  });

  it('removes nothing if all releases stay, and everything if none does', async () => {
    expect(await plan(['4.12.3', '4.12.4'])).to.deep.include({ manifests: [], tags: [], blobs: [], isEmptied: false });
    expect((await plan([])).isEmptied).to.equal(true);
  });

  it('keeps the images that something else needs', async () => {
    const digest = digestOfImage(old, 'cli');
    const { manifests, needed } = await plan(['4.12.4'], [digest]);
    expect(manifests).not.to.include(digest);
    expect(needed).to.deep.equal([`cli (${digest})`]);
  });

  it('removes a record whose run was killed after it had removed the tag', async () => {
    const store = new Directory(root(), releaseRepository, {}, context);
    const { tag, content } = await writeRecord(store, { releases: [], tags: [], manifests: [], blobs: [] });
    await rm(join(root(), 'v2', releaseRepository, 'manifests', tag));
    expect((await plan(['4.12.3', '4.12.4'])).manifests).to.deep.equal(content.slice(0, 1));
  });
});
