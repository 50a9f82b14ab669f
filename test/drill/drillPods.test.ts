import { expect } from 'chai';
import type { StoredObject } from '../../lib/cluster/objects/storedObject.ts';
import { readDrillPods, checkPod } from '../../lib/drill/drillPods.ts';
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
});

describe('readDrillPods', () => {
  it('ignores jobs, and pods that were not ready before', () => {
    const job = ready(pod('job-1', 'shop', {}, 'Job/job'));
    const late = ready(pod('late', 'shop', {}, 'ReplicaSet/late'), '', { conditions: [] });
    expect(readDrillPods([job, late], 'worker-0')).to.deep.equal([]);
  });
});
