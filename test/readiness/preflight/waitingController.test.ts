import { expect } from 'chai';
import { checkWaitingController } from '../../../lib/readiness/preflight/osImageStreamCheck.ts';
import { furnish, pod } from '../../fakes/cluster/site.ts';
import { osImageStreamKind } from '../../fakes/kubernetes/apiKinds.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

const namespace = 'openshift-machine-config-operator';
const name = 'machine-config-controller';

describe('preflight of machine-config-controller', () => {
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
