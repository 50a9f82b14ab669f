import { expect } from 'chai';
import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import { streamAnnotations, type OSImageStreams } from '../../../lib/release/payload/osImageStreams.ts';
import {
  osImageStreamReference,
  planOSImageStream,
  readStreamSite,
  runsRelease,
  writeOSImageStream,
  type NeededStream,
  type StreamSite,
} from '../../../lib/update/record/osImageStreamWrite.ts';
import { platformImage } from '../../fakes/cluster/site.ts';
import { osImageStreamKind } from '../../fakes/kubernetes/apiKinds.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';

const release = platformImage('1');
const mirrored = release.replace('quay.io', 'mirror.example.com');
const operator = platformImage('c');
const images = { version: '5.0.1', release, operator };
const streams: OSImageStreams = {
  version: '5.0.1',
  featureSets: ['Default'],
  commit: 'd'.repeat(40),
  commitSource: 'image',
  problems: [],
  availableStreams: [{ name: 'rhel-9', osImage: platformImage('3'), osExtensionsImage: platformImage('4') }],
};
const pod = (image: string, version?: string, more: object = {}, phase = 'Running'): StoredObject => {
  const args = version === undefined ? ['start'] : ['start', `--payload-version=${version}`];
  const metadata = { name: 'machine-config-controller-1', ...more };
  return { apiVersion: 'v1', kind: 'Pod', metadata, spec: { containers: [{ image, args }] }, status: { phase } };
};

describe('planOSImageStream', () => {
  const plan = (site: Partial<StreamSite> = {}): NeededStream => {
    const clusterVersion = { status: { desired: { image: release } } };
    return planOSImageStream(
      { clusterVersion, isServed: true, existing: undefined, pods: [], ...site },
      streams,
      images,
    );
  };
  const desire = (image: string): Partial<StreamSite> => ({ clusterVersion: { status: { desired: { image } } } });
  const payloadOf = ({ object }: NeededStream): unknown => object.metadata.annotations[streamAnnotations.payload];
  const existing = plan().object as unknown;
  const existingOf = (changes: object = {}): StoredObject => ({ ...(existing as StoredObject), ...changes });

  it('names the release image as the cluster does, also by a mirror, once the cluster updates to it', () => {
    const desired = plan(desire(mirrored));
    expect([desired.isDesired, payloadOf(desired)]).to.deep.equal([true, mirrored]);
    const early = plan(desire(platformImage('2')));
    expect([early.isDesired, payloadOf(early)]).to.deep.equal([false, release]);
    expect(plan({ isServed: false }).isServed).to.equal(false);
  });

  it('tells whether the existing object is for the release, with its streams and a default', () => {
    const isThere = (changes?: object): boolean => plan({ existing: existingOf(changes) }).isThere;
    expect(isThere()).to.equal(true);
    const { availableStreams } = streams;
    for (const status of [
      { availableStreams, defaultStream: '' },
      { availableStreams: [], defaultStream: 'rhel-9' },
      undefined,
    ])
      expect(isThere({ status }), JSON.stringify(status)).to.equal(false);
    const extended = availableStreams.map((each) => ({ ...each, ownField: 1 }));
    expect(isThere({ status: { availableStreams: extended, defaultStream: 'other' } })).to.equal(true);
    expect(plan({ ...desire(mirrored), existing: existingOf() }).isThere, 'by another name').to.equal(false);
  });

  it('is in use until every running controller is that of the release', () => {
    const isInUse = (...pods: StoredObject[]): boolean => plan({ existing: existingOf(), pods }).isInUse;
    const fresh = pod(operator, '5.0.1');
    const old = pod(platformImage('9'), '5.0.0');
    expect(isInUse(fresh)).to.equal(false);
    expect(isInUse(fresh, old)).to.equal(true);
    expect(isInUse(), 'without a pod').to.equal(true);
    const ended = [
      pod(platformImage('9'), '5.0.0', { deletionTimestamp: '2026-11-20T10:00:00Z' }),
      pod(platformImage('9'), '5.0.0', {}, 'Succeeded'),
      pod(platformImage('9'), '5.0.0', {}, 'Failed'),
    ];
    expect(isInUse(fresh, ...ended)).to.equal(false);
    expect(plan({ pods: [old] }).isInUse, 'without an object').to.equal(false);
  });
});

describe('runsRelease', () => {
  it('tells releases with the same controller apart by their argument', () => {
    expect(runsRelease(pod(operator, '5.0.1'), images)).to.equal(true);
    expect(runsRelease(pod(operator, '5.0.0'), images)).to.equal(false);
    expect(runsRelease(pod(operator), images)).to.equal(true);
    expect(runsRelease(pod(operator.replace('quay.io', 'mirror.example.com'), '5.0.1'), images)).to.equal(true);
    expect(runsRelease(pod(platformImage('9'), '5.0.1'), images)).to.equal(false);
  });
});

describe('writeOSImageStream', () => {
  const { object } = planOSImageStream(
    { clusterVersion: { status: { desired: { image: release } } }, isServed: true, existing: undefined, pods: [] },
    streams,
    images,
  );
  let site: StartedCluster;
  beforeEach(async () => {
    site = await startCluster({ openshift: '4.22.3', kinds: [osImageStreamKind] });
  });
  afterEach(() => site.close());
  const find = () => site.server.find(osImageStreamReference.apiVersion, osImageStreamReference.kind, 'cluster');
  const write = () => writeOSImageStream(site.cluster, object);
  const patches = (): string[] =>
    site.server.requests.flatMap(({ method, path }) => (method === 'PATCH' ? [path.split('/').at(-1) ?? ''] : []));
  /** Stores an object for another release, which has notes and a default of its own. */
  const putEarlier = (): void => {
    const metadata = { name: 'cluster', annotations: { 'example.com/kept': 'yes' } };
    const status = { availableStreams: [], defaultStream: 'rhel-10' };
    const { apiVersion, kind } = osImageStreamReference;
    site.server.put({ apiVersion, kind, metadata, spec: { defaultStream: 'rhel-10' }, status });
  };

  it('creates the object with its status, and is idempotent', async () => {
    expect(await write()).to.equal('created');
    expect(find()?.['status']).to.deep.equal(object.status);
    expect(find()?.metadata['annotations']).to.deep.equal(object.metadata.annotations);
    const written = site.server.objects.revision;
    expect(await write()).to.equal('unchanged');
    expect(site.server.objects.revision).to.equal(written);
  });

  it('completes an object without a status, as a writer leaves it that is killed between', async () => {
    site.server.fault(/osimagestreams\/cluster\/status/, { answer: { status: 403 } });
    await failureOf(write());
    expect(find()?.['status']).to.equal(undefined);
    site.server.clearFaults();
    expect(await write()).to.equal('configured');
    expect(find()?.['status']).to.deep.equal(object.status);
  });

  it('changes the status before the annotations of an object for another release, and keeps its others', async () => {
    putEarlier();
    expect(await write()).to.equal('configured');
    expect(patches()).to.deep.equal(['status', 'cluster']);
    expect(find()?.['status']).to.deep.equal(object.status);
    expect(find()?.['spec']).to.deep.equal({ defaultStream: 'rhel-10' });
    expect(find()?.metadata['annotations']).to.deep.equal({
      'example.com/kept': 'yes',
      ...object.metadata.annotations,
    });
  });

  it('begins with the objects that decide about it, also before the kind is served', async () => {
    const namespace = 'openshift-machine-config-operator';
    site.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    const labels = { 'k8s-app': 'machine-config-controller' };
    site.server.put({ ...pod(operator), metadata: { name: 'machine-config-controller-1', namespace, labels } });
    site.server.put({ ...pod(operator), metadata: { name: 'machine-config-daemon-1', namespace } });
    putEarlier();
    const { isServed, existing, pods, clusterVersion } = await readStreamSite(site.cluster);
    expect([isServed, existing?.metadata.name]).to.deep.equal([true, 'cluster']);
    expect(pods.map(({ metadata }) => metadata.name)).to.deep.equal(['machine-config-controller-1']);
    expect(clusterVersion).to.have.property('kind', 'ClusterVersion');
    await using plain = await startCluster({ openshift: '4.22.3' });
    plain.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    expect(await readStreamSite(plain.cluster)).to.deep.include({ isServed: false, existing: undefined, pods: [] });
  });
});
