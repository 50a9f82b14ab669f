import { expect } from 'chai';
import type { StoredObject } from '../../lib/cluster/objects/storedObject.ts';
import { readDrillPods, checkPod, readPodImages } from '../../lib/drill/drillPods.ts';
import { pod } from '../fakes/cluster/site.ts';
import type { Json } from '../fakes/kubernetes/apiPatch.ts';

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

describe('checkPod', () => {
  const dns = ready(pod('dns-1', 'x', {}, 'DaemonSet/dns'));
  const web = ready(pod('web-1', 'shop', {}, 'ReplicaSet/web'));
  const other = ready(pod('web-2', 'shop', {}, 'ReplicaSet/web'));
  const all = readDrillPods([dns, web, other], 'worker-0');
  const judge = (index: number, present: StoredObject[], reboot: boolean, drained = reboot): string | undefined => {
    const before = all[index];
    if (!before) throw new Error('there is no such pod');
    return checkPod(before, present, all, 'worker-0', { reboot, drained });
  };

  it('waits for new containers of pods that belong to the node, after a reboot', () => {
    expect(judge(0, [dns], false)).to.equal(undefined);
    // Its last status, from before the reboot.
    expect(judge(0, [dns], true)).to.equal('it is not ready');
    expect(judge(0, [ready(pod('dns-1', 'x', {}, 'DaemonSet/dns'), 'cri-o://2')], true)).to.equal(undefined);
    expect(judge(0, [ready(pod('dns-7', 'x', { nodeName: 'worker-1' }, 'DaemonSet/dns'), 'cri-o://2')], true)).to.equal(
      'there is no such pod',
    );
  });

  it('waits for as many pods of an owner as were evicted, on any node', () => {
    const again = (name: string): StoredObject =>
      ready(pod(name, 'shop', { nodeName: 'worker-1' }, 'ReplicaSet/web'), `cri-o://${name}`);
    expect(judge(1, [again('web-8')], true)).to.equal('it is not ready');
    expect(judge(1, [again('web-8'), again('web-9')], true)).to.equal(undefined);
    const stuck = { name: 'main', state: { waiting: { reason: 'ErrImagePull', message: 'manifest unknown' } } };
    const failing = ready(pod('web-9', 'shop', {}, 'ReplicaSet/web'), '', {
      conditions: [],
      containerStatuses: [stuck],
    });
    expect(judge(1, [again('web-8'), failing], true)).to.equal('container main: ErrImagePull: manifest unknown');
  });

  it('counts only pods of the same owner in the same namespace', () => {
    const again = (name: string, namespace: string, owner: string): StoredObject =>
      ready(pod(name, namespace, { nodeName: 'worker-1' }, owner), `cri-o://${name}`);
    const own = ['web-8', 'web-9'].map((name) => again(name, 'shop', 'ReplicaSet/web'));
    for (const foreign of [again('web-9', 'other', 'ReplicaSet/web'), again('api-1', 'shop', 'ReplicaSet/api')]) {
      expect(judge(1, [...own.slice(0, 1), foreign], true)).to.equal('it is not ready');
      const before = readDrillPods([web, other, ready({ ...foreign, spec: { nodeName: 'worker-0' } })], 'worker-0');
      const [first] = before;
      expect(first && checkPod(first, own, before, 'worker-0', { reboot: true, drained: true })).to.equal(undefined);
    }
  });

  it('accepts a pod that replaced another one on the node without a drain', () => {
    expect(judge(1, [ready(pod('web-7', 'shop', {}, 'ReplicaSet/web'), 'cri-o://7')], false)).to.equal(undefined);
  });

  it('waits for a static pod by its name, and for all its containers', () => {
    const [etcd, proxy] = ['etcd', 'proxy'].map((name) => ready(pod(name, 'x', {}, 'Node/worker-0')));
    if (!etcd || !proxy) throw new Error('there are no pods');
    const before = readDrillPods([etcd, proxy], 'worker-0');
    const judgeStatic = (present: StoredObject): string | undefined =>
      before[0] && checkPod(before[0], [present], before, 'worker-0', { reboot: true, drained: true });
    expect(judgeStatic({ ...proxy, status: { ...(ready(proxy, 'cri-o://2')['status'] as object) } })).to.equal(
      'there is no such pod',
    );
    const containerStatuses = ['cri-o://1', 'cri-o://2'].map((containerID) => ({ name: 'main', containerID }));
    expect(judgeStatic(ready(etcd, '', { containerStatuses }))).to.equal('it is not ready');
    expect(judgeStatic(ready(etcd, 'cri-o://2'))).to.equal(undefined);
  });
});

describe('readPodImages', () => {
  it('reads the images of the pods of a node, as nodes list them', () => {
    const spec = { containers: [{ name: 'a', image: 'quay.io/x/y' }, { name: 'b' }] };
    const pods = [pod('a', 'x', spec, 'ReplicaSet/a'), pod('b', 'x', { ...spec, nodeName: 'worker-1' })];
    expect(readPodImages(pods, 'worker-0')).to.deep.equal([
      { namespace: 'x', name: 'a', owner: 'ReplicaSet/a', images: ['quay.io/x/y:latest'] },
    ]);
  });
});

describe('readDrillPods', () => {
  it('ignores jobs, and pods that were not ready before', () => {
    const job = ready(pod('job-1', 'shop', {}, 'Job/job'));
    const late = ready(pod('late', 'shop', {}, 'ReplicaSet/late'), '', { conditions: [] });
    expect(readDrillPods([job, late], 'worker-0')).to.deep.equal([]);
  });
});
