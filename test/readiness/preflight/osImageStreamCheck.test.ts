import { expect } from 'chai';
import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import {
  checkWaitingController,
  checkPreviewStreams,
  checkStreams,
  type StreamSupply,
} from '../../../lib/readiness/preflight/osImageStreamCheck.ts';
import type { OSImageStreams } from '../../../lib/release/payload/osImageStreams.ts';
import { furnish, pod, platformImage } from '../../fakes/cluster/site.ts';
import { osImageStreamKind } from '../../fakes/kubernetes/apiKinds.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

const streams: OSImageStreams = {
  version: '5.0.1',
  featureSets: ['Default'],
  commit: 'a'.repeat(40),
  commitSource: 'image',
  problems: [],
  availableStreams: [
    { name: 'rhel-10', osImage: platformImage('3'), osExtensionsImage: platformImage('4') },
    { name: 'rhel-9', osImage: platformImage('1'), osExtensionsImage: platformImage('2') },
  ],
};
const clusterVersion: StoredObject = {
  apiVersion: 'config.openshift.io/v1',
  kind: 'ClusterVersion',
  metadata: { name: 'version' },
  status: { history: [{ state: 'Completed', version: '4.22.3', completionTime: '2026-01-01T00:00:00Z' }] },
};
const supply: StreamSupply = { mirrored: false, featureSet: undefined, clusterVersion, existing: undefined };
const pool = (name: string, stream?: string): StoredObject => ({
  apiVersion: 'machineconfiguration.openshift.io/v1',
  kind: 'MachineConfigPool',
  metadata: { name },
  spec: stream === undefined ? {} : { osImageStream: { name: stream } },
});

describe('checkStreams', () => {
  const check = (own: OSImageStreams | undefined, changes: Partial<StreamSupply> = {}, pools: StoredObject[] = []) =>
    checkStreams(own, platformImage('5'), { ...supply, ...changes }, pools).map(
      ({ severity, subject, message }) => `${severity} ${subject.name}: ${message}`,
    );

  it('says in one line that a release needs its streams described', () => {
    expect(check(streams)).to.deep.equal([
      'info version: 5.0.1 needs its operating system streams described in the cluster: rhel-10, rhel-9',
    ]);
  });

  it('blocks if they cannot be described, unless the cluster has a mirror', () => {
    const unknown = { ...streams, commit: undefined, problems: ['the commit is unknown'] };
    const message = 'blocker version: the operating system streams of 5.0.1 cannot be described: the commit is unknown';
    expect(check(unknown)).to.deep.equal([message]);
    expect(check(unknown, { mirrored: true })).to.deep.equal([]);
  });

  it('blocks if the release lacks the default stream of the cluster', () => {
    const spec = { defaultStream: 'rhel-8' };
    const existing = { apiVersion: 'x/v1', kind: 'OSImageStream', metadata: { name: 'cluster' }, spec };
    expect(check(streams, { existing })).to.deep.equal([
      'blocker version: 5.0.1 has no operating system stream rhel-8, the default of the cluster; it has ' +
        'rhel-10, rhel-9',
    ]);
  });

  it('finds nothing for a release or a feature set without them', () => {
    expect(check(undefined)).to.deep.equal([]);
    expect(check({ ...streams, featureSets: ['TechPreviewNoUpgrade'] })).to.deep.equal([]);
  });

  it('names the stream of each pool: its own, that of the workers for custom pools, or the default', () => {
    const pools = [pool('master'), pool('worker', 'rhel-10'), pool('infra'), pool('gpu', 'rhel-9')];
    expect(check(streams, { mirrored: true }, pools)).to.deep.equal([
      'info master: its nodes will use the stream rhel-9',
      'info worker: its nodes will use the stream rhel-10',
      'info infra: its nodes will use the stream rhel-10',
      'info gpu: its nodes will use the stream rhel-9',
    ]);
  });
});

describe('checkPreviewStreams', () => {
  const check = (version: string, changes: Partial<StreamSupply>): string[] =>
    checkPreviewStreams(version, { ...supply, ...changes }).map(({ severity, message }) => `${severity} ${message}`);

  it('blocks an update to 4.22 in a preview without a mirror', () => {
    const preview = { featureSet: 'TechPreviewNoUpgrade' };
    expect(check('4.22.4', preview)).to.deep.equal([
      'blocker machine-config-operator of 4.22.4 with TechPreviewNoUpgrade reads operating systems from a ' +
        'registry, and the cluster has no mirror',
    ]);
    expect(check('4.22.4', { ...preview, mirrored: true })).to.deep.equal([]);
    for (const [version, featureSet] of [
      ['4.22.4', undefined],
      ['4.22.3', preview.featureSet],
      ['4.21.9', preview.featureSet],
      ['4.23.0', preview.featureSet],
    ] as const)
      expect(check(version, { featureSet }), version).to.deep.equal([]);
  });
});

const namespace = 'openshift-machine-config-operator';
const name = 'machine-config-controller';

describe('checkWaitingController', () => {
  let connected: StartedCluster;
  beforeEach(async () => {
    connected = await startCluster({ openshift: '5.0.1', kinds: [osImageStreamKind] });
    const { server } = connected;
    furnish(server);
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    const made = pod(`${name}-x`, namespace);
    server.put({ ...made, metadata: { ...made.metadata, labels: { 'k8s-app': name } } });
    server.podLogs.set(`${namespace}/${name}-x`, ['I1128 start', 'E1128 unable to retrieve any OSImageStream']);
  });
  afterEach(() => connected.close());

  const lead = (minutes: number, observedGeneration: number): void => {
    const acquireTime = new Date(Date.now() - minutes * 60_000).toISOString().replace('Z', '000Z');
    const lease = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name, namespace } };
    connected.server.put({ ...lease, spec: { holderIdentity: `${name}-x_7c1d`, acquireTime } });
    const config = { apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'ControllerConfig' };
    connected.server.put({ ...config, metadata: { name, generation: 1 }, spec: {}, status: { observedGeneration } });
  };
  const find = async (): Promise<string[]> =>
    (await checkWaitingController(connected.cluster)).map(({ severity, message }) => `${severity} ${message}`);

  it('blocks if it leads, renders nothing and waits for its operating system streams', async () => {
    lead(11, 0);
    expect(await find()).to.have.length(1);
    expect((await find())[0]).to.match(
      /^blocker has waited since \S+ for its operating system streams; its log ends with “E1128 unable/,
    );
  });

  it('finds nothing while it may still begin, and after it has rendered', async () => {
    lead(9, 0);
    expect(await find()).to.deep.equal([]);
    lead(30, 1);
    expect(await find()).to.deep.equal([]);
  });
});
