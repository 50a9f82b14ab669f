import { expect } from 'chai';
import { formatManifest } from '../../../lib/config/manifest.ts';
import { pullPolicyAdmission, type AdmissionMode } from '../../../lib/update/install/pullPolicyAdmission.ts';
import { pod, podSpec, workload } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { listMessages } from '../../fakes/kubernetes/apiPolicy.ts';
import { expectGolden } from '../../support/program/golden.ts';

const always = podSpec({ imagePullPolicy: 'Always' });
const template = { template: { spec: always } };

describe('pullPolicyAdmission', () => {
  const judge = (object: Json, oldObject?: Json, mode: AdmissionMode = 'warn'): string => {
    const [policy] = pullPolicyAdmission(mode);
    if (!policy) throw new Error('there is no policy');
    const kind = String(object['kind']);
    const group = kind === 'Pod' || kind === 'ReplicationController' ? '' : kind.endsWith('Job') ? 'batch' : 'apps';
    const request = { group, resource: `${kind.toLowerCase()}s`, object, ...(oldObject && { oldObject }) };
    return listMessages(policy, request).join('\n');
  };
  const cronJob = (spec: Json): Json => ({
    ...workload('Job', 'nightly', 'shop', { jobTemplate: { spec: { template: { spec } } } }),
    kind: 'CronJob',
  });

  it('is equal to the golden file', async () => {
    for (const mode of ['warn', 'deny'] as const) {
      const text = pullPolicyAdmission(mode).map((object) => formatManifest(object));
      await expectGolden(`cluster/admission-policy-${mode}.yaml`, text.join('---\n'));
    }
  });

  it('only warns, or refuses', () => {
    const actions = (mode: AdmissionMode) => (pullPolicyAdmission(mode)[1]?.['spec'] as Json)['validationActions'];
    expect(actions('warn')).to.deep.equal(['Warn', 'Audit']);
    expect(actions('deny')).to.deep.equal(['Deny']);
  });

  it('names containers that pull at every start, of every kind of workload', () => {
    for (const mode of ['warn', 'deny'] as const) {
      for (const kind of ['Deployment', 'DaemonSet', 'StatefulSet', 'ReplicaSet', 'Job', 'ReplicationController']) {
        expect(judge(workload(kind, 'x', 'shop', template), undefined, mode), kind).to.match(/: container main; set/);
        expect(judge(workload(kind, 'x', 'shop'), undefined, mode), kind).to.equal('');
      }
      expect(judge(cronJob(always), undefined, mode)).to.match(/: container main; set/);
      expect(judge(cronJob(podSpec()), undefined, mode)).to.equal('');
      expect(judge(pod('x', 'shop', always), undefined, mode)).to.match(/: container main; set/);
      expect(judge(pod('x', 'shop'), undefined, mode)).to.equal('');
    }
  });

  it('passes over the pod that preflight creates in a dry run', () => {
    const [policy] = pullPolicyAdmission('deny');
    const object = pod('oc-disconnected-preflight', 'default', always);
    const request = { group: '', resource: 'pods', object };
    expect(policy && listMessages(policy, { ...request, dryRun: true })).to.deep.equal([]);
    expect(policy && listMessages(policy, request)).to.have.length(1);
  });

  it('sees init containers, and ephemeral ones when they are added', () => {
    const tool = { name: 'tool', image: 'quay.io/site/tool:1', imagePullPolicy: 'Always' };
    expect(judge(pod('x', 'shop', { initContainers: [tool] }))).to.contain('container tool;');
    const debugged = pod('x', 'shop', { ephemeralContainers: [tool] });
    const [policy] = pullPolicyAdmission('warn');
    const request = { group: '', resource: 'pods/ephemeralcontainers', object: debugged, oldObject: pod('x', 'shop') };
    expect(policy && listMessages(policy, request)).to.have.length(1);
  });

  it('sees volumes that an image is mounted as', () => {
    const model = { name: 'model', image: { reference: 'quay.io/site/model:1', pullPolicy: 'Always' } };
    const plain = [
      { name: 'tmp', emptyDir: {} },
      { ...model, image: { ...model.image, pullPolicy: 'IfNotPresent' } },
    ];
    expect(judge(pod('x', 'shop', { volumes: [...plain, model] }))).to.contain(': image volume model; set');
    expect(judge(pod('x', 'shop', { volumes: plain }))).to.equal('');
    const running = pod('x', 'shop', { volumes: [model] });
    expect(judge(running, running)).to.equal('');
  });

  it('has nothing against an update that is about something else', () => {
    const before = workload('Deployment', 'x', 'shop', template);
    expect(judge({ ...before, spec: { ...template, replicas: 3 } }, before)).to.equal('');
    const other = podSpec({ imagePullPolicy: 'Always', image: 'quay.io/site/new:2' });
    expect(judge(workload('Deployment', 'x', 'shop', { template: { spec: other } }), before)).not.to.equal('');
    const sound = workload('Deployment', 'x', 'shop');
    expect(judge(before, sound)).not.to.equal('');
    expect(judge(sound, before)).to.equal('');
  });

  it('makes no noise about an unrelated change of any kind of workload, and sees a container that is new in it', () => {
    const tool = { name: 'tool', image: 'quay.io/site/tool:1', imagePullPolicy: 'Always' };
    const withTool = podSpec({ imagePullPolicy: 'Always' }, { initContainers: [tool] });
    const labelled = (object: Json): Json => ({
      ...object,
      metadata: { ...(object['metadata'] as Json), labels: { changed: 'yes' } },
    });
    const kinds = ['Deployment', 'DaemonSet', 'StatefulSet', 'ReplicaSet', 'Job'];
    const pairs: [Json, Json][] = [
      ...kinds.map((kind): [Json, Json] => [
        workload(kind, 'x', 'shop', template),
        workload(kind, 'x', 'shop', { template: { spec: withTool } }),
      ]),
      [cronJob(always), cronJob(withTool)],
      [pod('x', 'shop', always), pod('x', 'shop', withTool)],
    ];
    for (const mode of ['warn', 'deny'] as const) {
      for (const [before, more] of pairs) {
        const kind = String(before['kind']);
        expect(judge(labelled(before), before, mode), kind).to.equal('');
        expect(judge(more, before, mode), kind).to.match(/: container tool; set/);
        expect(judge(before, more, mode), kind).to.equal('');
      }
    }
    const debugged = pod('x', 'shop', { ephemeralContainers: [tool] });
    expect(judge(labelled(debugged), debugged)).to.equal('');
  });

  it('skips objects of a controller, so that running workloads can restart', () => {
    for (const mode of ['warn', 'deny'] as const) {
      expect(judge(pod('x', 'shop', always, 'ReplicaSet/x'), undefined, mode)).to.equal('');
    }
    const owned = pod('x', 'shop', always);
    const metadata = { ...(owned.metadata as Json), ownerReferences: [{ kind: 'CatalogSource', name: 'own' }] };
    expect(judge({ ...owned, metadata })).not.to.equal('');
  });

  it('refuses nothing in the namespaces of OpenShift itself, and warns there too', () => {
    const object = workload('Deployment', 'x', 'openshift-ingress', template);
    expect(judge(object, undefined, 'deny')).to.equal('');
    expect(judge(object, undefined, 'warn')).not.to.equal('');
  });
});
