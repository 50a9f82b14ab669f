import { expect } from 'chai';
import { formatManifest } from '../../../lib/config/manifest.ts';
import { fieldsOf, listOf } from '../../../lib/fields.ts';
import { agentObjects, type AgentOptions } from '../../../lib/update/install/agentObjects.ts';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import { platformImage } from '../../fakes/cluster/site.ts';
import { readRights } from '../../fakes/kubernetes/apiRights.ts';
import { connectTo, startCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';
import { expectGolden } from '../../support/program/golden.ts';

const executables = { amd64: { digest: 'a'.repeat(64), size: 1000 } };
const options = { image: platformImage('d'), executables, admission: undefined, rules: true } as const;

describe('agentObjects', () => {
  const kinds = (objects: ReturnType<typeof agentObjects>): string[] => objects.map(({ kind }) => kind);

  it('are equal to the golden file', async () => {
    const [, ...objects] = agentObjects(options);
    await expectGolden('cluster/agent.yaml', objects.map((object) => formatManifest(object)).join('---\n'));
  });

  it('say nothing on screens if they are off, and signal as they were told', () => {
    const argumentsOf = (screen: AgentOptions['screen']): unknown => {
      const [agents] = agentObjects({ ...options, screen }).slice(-1);
      const pod = fieldsOf(fieldsOf(fieldsOf(agents?.['spec'])['template'])['spec']);
      return listOf(pod['containers'])[0]?.['args'];
    };
    expect(argumentsOf(undefined)).to.equal(undefined);
    expect(argumentsOf({ console: true })).to.equal(undefined);
    expect(argumentsOf({ console: false, signal: 'led' })).to.deep.equal(['--console=off', '--signal=led']);
  });

  it('come in an order in which they can be applied, the agents last', () => {
    const order = kinds(agentObjects({ ...options, admission: 'warn' }));
    expect(order.slice(0, 4)).to.deep.equal(['CustomResourceDefinition', 'Namespace', 'Namespace', 'ServiceAccount']);
    expect(order.slice(-3)).to.deep.equal(['ValidatingAdmissionPolicyBinding', 'DaemonSet', 'DaemonSet']);
    expect(kinds(agentObjects({ ...options, policies: false }))).not.to.include('ValidatingAdmissionPolicy');
  });

  it('ask for no registry: an image by digest that is not pulled', () => {
    const text = JSON.stringify(agentObjects(options));
    expect(text).to.contain(`"image":"${platformImage('d')}","imagePullPolicy":"IfNotPresent"`);
    expect(text).not.to.contain('Always');
  });

  it('can be applied, and applied again without a change', async () => {
    await using started = await startCluster({ openshift: '4.19.3' });
    const { cluster, server } = started;
    const objects = agentObjects({ ...options, admission: 'deny' });
    for (const object of objects) await cluster.apply(object);
    const { revision } = server.objects;
    for (const object of objects) await cluster.apply(object);
    expect(server.objects.revision).to.equal(revision);
  });

  it('give agents no right to change anything of the cluster but their report', () => {
    const roles = agentObjects(options).filter(({ metadata }) => metadata.name === 'oc-upgrade-bundle-agent');
    const rules = roles.flatMap(({ rules: own }) => (own ?? []) as Record<string, string[]>[]);
    const writing = rules.filter(({ verbs = [] }) => verbs.some((verb) => !['get', 'list', 'watch'].includes(verb)));
    expect(writing.map(({ resources, verbs }) => [resources, verbs])).to.deep.equal([
      [['securitycontextconstraints'], ['use']],
      [['leases'], ['list', 'create', 'patch']],
    ]);
    const bound = roles.filter(({ kind }) => kind === 'RoleBinding').map(({ metadata }) => metadata.namespace);
    expect(bound).to.deep.equal(['oc-upgrade-bundle', 'oc-upgrade-bundle-reports']);
  });

  it('keep the token of an agent from the Lease of the controller, by roles alone, before OpenShift 4.17', async () => {
    const objects = agentObjects({ ...options, policies: false });
    const mayDo = readRights(objects);
    const [administrator, agent] = ['system:admin', 'system:serviceaccount:oc-upgrade-bundle:agent'];
    const allow = (attempt: Parameters<typeof mayDo>[0]): boolean => attempt.user === administrator || mayDo(attempt);
    const tokens = new Map([
      ['t', administrator],
      ['a', agent],
    ]);
    await using started = await startCluster({ openshift: '4.12.4', tokens, allow });
    for (const object of objects) await started.cluster.apply(object);
    const progress = { name: 'a', phase: 'Loaded', imagesLoaded: 1, imagesTotal: 1, bytes: 1 } as const;
    const report = formatNodeReport({ bundle: 'x', progress });
    await using worker = await connectTo(started.server, { user: { token: 'a' } });
    await worker.cluster.apply(report);
    await worker.cluster.apply(report);

    const lease = {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: { name: 'controller', namespace: 'oc-upgrade-bundle' },
    };
    const spec = { holderIdentity: 'a worker' };
    for (const act of [
      () => worker.cluster.patch(lease, { spec }),
      () => worker.cluster.apply({ ...lease, spec }, { force: true }),
      () => worker.cluster.update({ ...lease, spec }),
      () => worker.cluster.delete(lease),
      () => worker.cluster.create({ ...lease, metadata: { ...lease.metadata, name: 'other' } }),
    ]) {
      await failureOf(act(), 'denied');
    }
    const { server } = started;
    expect(server.find(lease.apiVersion, 'Lease', 'controller', 'oc-upgrade-bundle')?.['spec']).to.deep.equal({});
  });

  it('run controllers on the control plane only, by an account of their own', () => {
    const sets = agentObjects(options).filter(({ kind }) => kind === 'DaemonSet');
    const pods = sets.map(({ spec }) => (spec as { template: { spec: Record<string, unknown> } }).template.spec);
    expect(pods.map(({ serviceAccountName }) => serviceAccountName)).to.deep.equal(['controller', 'agent']);
    const affinity = JSON.stringify(pods[0]?.['affinity']);
    expect(affinity).to.contain('node-role.kubernetes.io/control-plane').and.not.to.contain('kubernetes.io/master');
    expect(JSON.stringify(agentObjects({ ...options, masterLabel: true }))).to.contain(
      'node-role.kubernetes.io/master',
    );
    expect(JSON.stringify(pods[1]?.['affinity'])).not.to.contain('node-role');
    for (const { nodeSelector } of pods) expect(nodeSelector).to.deep.equal({ 'kubernetes.io/os': 'linux' });
    // The shared token of the agents is only for agents.
    expect(JSON.stringify(pods[0])).not.to.contain('bundle-token');
  });

  it('have no right to everything, to secrets, or to write objects of others', () => {
    const rules = agentObjects(options).flatMap(({ rules: own }) => (own ?? []) as Record<string, string[]>[]);
    expect(rules.flatMap(({ apiGroups, resources, verbs }) => [apiGroups, resources, verbs].flat())).not.to.include(
      '*',
    );
    expect(rules.flatMap(({ resources }) => resources)).not.to.include('secrets');
    const writing = rules.filter(({ verbs = [] }) => verbs.some((verb) => !['get', 'list', 'watch'].includes(verb)));
    const nodes = writing.filter(({ resources = [] }) => resources.includes('nodes') || resources.includes('pods'));
    expect(nodes).to.deep.equal([]);
    const version = writing.find(({ resources = [] }) => resources.includes('clusterversions'));
    expect(version).to.deep.include({ verbs: ['patch'], resourceNames: ['version'] });
  });
});
