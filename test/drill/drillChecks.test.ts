import { expect } from 'chai';
import type { StoredObject } from '../../lib/cluster/objects/storedObject.ts';
import { checkDrain, checkNodes, DrillReport } from '../../lib/drill/drillChecks.ts';
import { readDrillPods } from '../../lib/drill/drillPods.ts';
import { runningDrillAnnotation } from '../../lib/readiness/preflight/drillRecord.ts';
import { node, pod } from '../fakes/cluster/site.ts';
import type { Json } from '../fakes/kubernetes/apiPatch.ts';

const masters = (count: number, ...down: number[]): StoredObject[] =>
  Array.from({ length: count }, (_, index) => {
    const conditions = [{ type: 'Ready', status: down.includes(index) ? 'False' : 'True' }];
    return node(`master-${index}`, 'master', { conditions });
  });
const workers = ['worker-0', 'worker-1'].map((name) => node(name, 'worker'));
const mode = { reboot: true, single: false };

const messageOf = (work: () => void): string => {
  try {
    work();
    return '';
  } catch (error) {
    return (error as Error).message;
  }
};

describe('checkNodes', () => {
  const check = (name: string, nodes: StoredObject[], pods: StoredObject[] = [], own = mode): string =>
    messageOf(() => checkNodes(name, nodes, pods, own));

  it('passes workers, and control plane nodes while enough members of etcd are left', () => {
    expect(check('worker-0', [...masters(1), ...workers])).to.equal('');
    expect(check('master-0', [...masters(3), ...workers])).to.equal('');
    expect(check('master-0', masters(5))).to.equal('');
  });

  it('refuses a control plane node while another one is not healthy', () => {
    expect(check('master-0', masters(3, 1))).to.equal('the control plane is not healthy: master-1');
    const sick = {
      ...pod('etcd-master-2', 'openshift-etcd', { nodeName: 'master-2' }, 'Node/master-2'),
      status: { conditions: [{ type: 'Ready', status: 'False' }] },
    };
    expect(check('master-0', masters(3), [sick])).to.equal('the control plane is not healthy: master-2');
    expect(check('master-0', masters(2))).to.equal('etcd needs 2 of 2 members, and 1 are left without master-0');
  });

  it('refuses a control plane node beside an unhealthy one, even if a quorum would be left', () => {
    expect(check('master-0', masters(5, 1))).to.equal('the control plane is not healthy: master-1');
  });

  it('passes one of two control plane nodes with fencing, or with an arbiter', () => {
    const fenced = (nodes: StoredObject[]): string =>
      messageOf(() => checkNodes('master-0', nodes, [], mode, 'DualReplica'));
    expect(fenced(masters(2))).to.equal('');
    expect(fenced(masters(2, 1))).to.equal('the control plane is not healthy: master-1');
    const arbiter = node('arbiter-0', 'worker');
    const labels = { 'node-role.kubernetes.io/arbiter': '' };
    const cluster = [...masters(2), { ...arbiter, metadata: { ...arbiter.metadata, labels } }];
    expect(check('master-0', cluster)).to.equal('');
    expect(check('arbiter-0', cluster)).to.equal('');
    expect(check('arbiter-0', [...masters(2, 1), ...cluster.slice(2)])).to.equal(
      'the control plane is not healthy: master-1',
    );
  });

  it('refuses the only node, and the only one of the control plane, unless they are confirmed', () => {
    expect(check('master-0', masters(1))).to.match(
      /^master-0 is the only node of the cluster: the API and all pods are down/,
    );
    expect(check('master-0', [...masters(1), ...workers])).to.match(/^master-0 is the only control plane node/);
    expect(check('master-0', masters(1), [], { ...mode, single: true })).to.equal('');
  });

  it('refuses nodes that are unknown, not ready or cordoned, and a second drill', () => {
    expect(check('other', workers)).to.equal('there is no node other');
    expect(check('master-1', [...masters(3, 1)])).to.equal('the node master-1 is not ready');
    const cordoned = node('worker-2', 'worker', {}, { unschedulable: true });
    expect(check('worker-2', [cordoned, ...workers])).to.equal('the node worker-2 is cordoned already');
    expect(check('worker-2', [cordoned, ...workers], [], { ...mode, reboot: false })).to.equal('');
    const metadata = {
      name: 'worker-3',
      annotations: { [runningDrillAnnotation]: '{"started":"2026-11-22T10:00:00Z"}' },
    };
    const busy = { ...node('worker-3', 'worker'), metadata };
    expect(check('worker-0', [busy, ...workers])).to.equal(
      'a drill of worker-3 has been running since 2026-11-22T10:00:00Z',
    );
  });
});

const ready = (object: StoredObject, containerID = 'cri-o://1', more: Json = {}): StoredObject => ({
  ...object,
  metadata: { uid: object.metadata.name, labels: { app: 'x' }, ...object.metadata },
  status: {
    phase: 'Running',
    conditions: [{ type: 'Ready', status: 'True' }],
    containerStatuses: [{ name: 'main', containerID }],
    ...more,
  },
});

describe('checkDrain', () => {
  const pods = readDrillPods(
    [ready(pod('web-1', 'shop', {}, 'ReplicaSet/web')), ready(pod('dns', 'x', {}, 'DaemonSet/dns'))],
    'worker-0',
  );
  const budget = (disruptionsAllowed: number, selector: Json): StoredObject => ({
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata: { name: 'web', namespace: 'shop' },
    spec: { selector },
    status: { disruptionsAllowed },
  });

  it('refuses pods that no PodDisruptionBudget lets go, and pods without an owner', () => {
    const check = (budgets: StoredObject[], own = pods): string => messageOf(() => checkDrain(own, budgets));
    expect(check([budget(1, { matchLabels: { app: 'x' } }), budget(0, { matchLabels: { app: 'y' } })])).to.equal('');
    expect(check([budget(0, { matchLabels: { app: 'x' } })])).to.equal(
      'a PodDisruptionBudget allows no eviction of shop/web-1 (web)',
    );
    const listed = { matchExpressions: [{ key: 'app', operator: 'In', values: ['x', 'z'] }] };
    expect(check([budget(0, listed)])).to.contain('shop/web-1');
    expect(check([budget(0, { matchExpressions: [{ key: 'app', operator: 'NotIn', values: ['x'] }] })])).to.equal('');
    const machine = readDrillPods([ready(pod('vm', 'shop', {}, 'VirtualMachineInstance/vm'))], 'worker-0');
    expect(check([budget(0, { matchLabels: { app: 'x' } })], machine)).to.equal('');
    const bare = readDrillPods([ready(pod('tool', 'shop'))], 'worker-0');
    expect(check([], bare)).to.equal('nothing would create these pods again: shop/tool');
  });
});

describe('DrillReport', () => {
  const spec = { containers: ['a', 'b'].map((name) => ({ name, image: `quay.io/x/${name}:1` })) };
  const web = ready(pod('web-1', 'shop', spec, 'ReplicaSet/web'));
  const dns = ready(pod('dns-1', 'x', { containers: [{ name: 'd', image: 'r.test/d:1' }] }, 'DaemonSet/dns'));
  const down = (object: StoredObject): StoredObject => ready(object, '', { conditions: [], phase: 'Pending' });
  const expectation = { reboot: false, drained: false };
  const make = (): DrillReport => new DrillReport(readDrillPods([web, dns], 'worker-0'));

  it('misses pods until they run, and again if they crash', () => {
    const report = make();
    report.begin();
    expect(report.missing.map(({ name }) => name)).to.deep.equal(['web-1', 'dns-1']);
    report.note([web, dns], 'worker-0', expectation);
    expect(report.missing).to.deep.equal([]);
    report.note([down(web), dns], 'worker-0', expectation);
    expect(report.missing.map(({ name }) => name)).to.deep.equal(['web-1']);
    const [first, second] = report.results();
    expect(first).to.deep.equal({
      namespace: 'shop',
      name: 'web-1',
      owner: 'ReplicaSet/web',
      seconds: undefined,
      message: 'it is Pending',
    });
    expect(second).not.to.have.property('message');
  });

  it('counts the requests for an image, with their clients and the pods that use it', () => {
    const report = make();
    const request = (image: string, client: string, time = '1') => ({ image, client, time });
    report.requests = [
      request('quay.io/x/b:1', 'cri-o'),
      request('*.test/d:1', 'skopeo'),
      request('quay.io/x/b:1', 'podman', '2'),
      request('*.io/x/none:1', 'cri-o'),
    ];
    expect(
      report.asked.map(({ image, count, first, clients, pods: users }) => [
        ...[image, count, first, clients.join(), users.map(({ name }) => name).join()],
      ]),
    ).to.deep.equal([
      ['quay.io/x/b:1', 2, '1', 'cri-o,podman', 'web-1'],
      ['*.test/d:1', 1, '1', 'skopeo', 'dns-1'],
      ['*.io/x/none:1', 1, '1', 'cri-o', ''],
    ]);
  });
});
