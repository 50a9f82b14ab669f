import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { executablePath } from '../../lib/node/machine/host.ts';
import { metricsToken } from '../../lib/update/agent/agentMetrics.ts';
import { install, type InstallResult } from '../../lib/update/install.ts';
import { noTrust, readTrust } from '../../lib/update/install/agentTrust.ts';
import { makeExecutable, openAgentSite, siteNodes, type AgentSite } from '../fakes/cluster/agents.ts';
import { infrastructure, node, nodesWithoutAgent } from '../fakes/cluster/site.ts';
import type { Attempt } from '../fakes/kubernetes/apiAccess.ts';
import type { ApiServerOptions } from '../fakes/kubernetes/apiServer.ts';
import { runOutOfTime } from '../support/clock.ts';
import { failureOf } from '../support/program/failure.ts';
import { makeSigningKey } from '../support/release/signing.ts';

const startup = { timeout: 120_000, interval: 20, peerTime: 60_000 };

describe('install', () => {
  let site: AgentSite;

  beforeEach(async () => {
    site = await openAgentSite();
  });
  afterEach(() => site.close());
  const run = (changes: Partial<Parameters<typeof install>[1]> = {}): Promise<InstallResult> => {
    const options = { executables: [site.executable], admission: 'warn', overwrite: false, startup } as const;
    return install(site.cluster, { ...options, ...changes }, site.context);
  };
  const onNode = (name: string): Promise<Buffer> => readFile(join(site.rootOf(name), executablePath));
  const outcomes = ({ objects }: InstallResult): Set<string> => new Set(objects.map(({ outcome }) => outcome));
  const uploads = () =>
    site.server.requests.filter(({ path, query }) => path.endsWith('/exec') && query.get('stdin') === 'true');

  it('brings agents to every node, and the executable over exec to one of them', async () => {
    const result = await run();
    expect(result.nodes).to.equal(3);
    expect(outcomes(result)).to.deep.equal(new Set(['created']));
    const content = await readFile(site.executable.path);
    for (const name of siteNodes) expect(await onNode(name), name).to.deep.equal(content);
    expect(uploads()).to.have.length(1);
    expect(site.context.lines).to.include('info: uploading the executable to master-0');
  });

  it('brings it to each node that cannot fetch it from another', async () => {
    site.kubelets.sharing = false;
    await run({ startup: { ...startup, peerTime: 50 } });
    expect(uploads()).to.have.length(3);
  });

  it('changes nothing when it is run again', async () => {
    await run();
    const { revision } = site.server.objects;
    const result = await run();
    expect(result.objects.filter(({ outcome }) => outcome !== 'unchanged')).to.deep.equal([]);
    expect(site.server.objects.revision).to.equal(revision);
    expect(uploads()).to.have.length(1);
  });

  it('removes the admission policy of an earlier run if it is off', async () => {
    await run({ admission: 'deny' });
    const kinds = ['ValidatingAdmissionPolicyBinding', 'ValidatingAdmissionPolicy'];
    const find = (kind: string) =>
      site.server.find('admissionregistration.k8s.io/v1', kind, 'oc-upgrade-bundle-pull-policy');
    expect(kinds.map((kind) => find(kind) !== undefined)).to.deep.equal([true, true]);
    const { removed } = await run({ admission: undefined });
    expect(removed.map(({ kind }) => kind)).to.deep.equal(kinds);
    expect(kinds.map(find)).to.deep.equal([undefined, undefined]);
    expect((await run({ admission: undefined })).removed).to.deep.equal([]);
  });

  it('reports an error of a container runtime once, though its times change', async () => {
    let count = 0;
    const change = setInterval(() => {
      count += 1;
      site.kubelets.troubles.set(
        'worker-0',
        `RunContainerError at 2026-11-22T15:00:0${count % 10}.${count}Z after 1${count % 10}ms`,
      );
    }, 10);
    await failureOf(run({ startup: { ...startup, timeout: 400 } }), 'not-ready');
    clearInterval(change);
    const said = site.context.lines.filter((line) => line.includes('RunContainerError'));
    expect(new Set(said.map((line) => line.replace(/ at .*/, ''))).size).to.equal(said.length);
  });

  it('says why the pods of the agents are refused, by the latest event', async () => {
    await site.kubelets.stop();
    site.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
    const putEvent = (name: string, at: string, of: string): void => {
      const involvedObject = { kind: 'DaemonSet', namespace: 'oc-upgrade-bundle', name: of };
      const message = `Error creating: ${name} is forbidden`;
      const times = { lastTimestamp: `2026-11-22T15:00:${at}Z`, reason: 'FailedCreate' };
      const metadata = { name, namespace: 'oc-upgrade-bundle' };
      site.server.put({ apiVersion: 'v1', kind: 'Event', metadata, involvedObject, message, ...times });
    };
    for (const [name, at, of] of [
      ['agent-a', '09', 'agent'],
      ['agent-b', '01', 'agent'],
      ['controller-a', '20', 'controller'],
    ] as const)
      putEvent(name, at, of);
    const { message } = await failureOf(run({ startup: { ...startup, timeout: 0 } }), 'not-ready');
    expect(message).to.include('no pod on master-0: Error creating: agent-a is forbidden; no pod on worker-0: ');
    // Refused pods do not come by waiting.
    await failureOf(run({ startup: { ...startup, timeout: 3_600_000, refusalTime: 20 } }), 'not-ready');
  });

  it('waits for the controllers too', async () => {
    const result = await run();
    const controllers = site.server.find('apps/v1', 'DaemonSet', 'controller', 'oc-upgrade-bundle');
    expect(controllers?.['status']).to.include({ desiredNumberScheduled: 1, numberReady: 1 });
    expect(result.nodes).to.equal(3);
  });

  it('names the label master, of which API servers warn, only for nodes that lack the other one', async () => {
    const affinity = ({ objects }: InstallResult): string =>
      JSON.stringify(objects.map(({ object }) => object).filter(({ kind }) => kind === 'DaemonSet'));
    expect(affinity(await run({ dryRun: 'client' }))).to.contain('node-role.kubernetes.io/master');
    const { metadata, ...old } = node('master-0', 'master');
    const labels = { ...metadata.labels, 'node-role.kubernetes.io/control-plane': '' };
    site.server.put({ ...old, metadata: { ...metadata, labels } });
    expect(affinity(await run({ dryRun: 'client' }))).not.to.contain('node-role.kubernetes.io/master');
  });

  it('replaces the executable on every node by another, and keeps the token', async () => {
    await run();
    const token = () => site.server.find('v1', 'Secret', 'bundle-token', 'oc-upgrade-bundle')?.['data'];
    const before = token();
    const executable = await makeExecutable(join(site.folder, 'newer'));
    const result = await run({ executables: [executable] });
    expect(
      result.objects.filter(({ outcome }) => outcome === 'configured').map(({ object }) => object.kind),
    ).to.deep.equal(['DaemonSet', 'DaemonSet']);
    for (const name of siteNodes) expect(await onNode(name), name).to.deep.equal(await readFile(executable.path));
    expect(token()).to.deep.equal(before);
    const { token: encoded = '' } = before as { token?: string };
    expect(Buffer.from(encoded, 'base64').toString()).to.match(/^[0-9a-f]{64}$/);
  });

  it('gives agents their trust, restarts them for that, and reports removed trust', async () => {
    const key = await makeSigningKey({ type: 'ecc' });
    const file = join(site.folder, 'key.asc');
    await writeFile(file, key.publicKey);
    const fingerprints = [key.fingerprint];
    const trust = { fingerprints, keyrings: [file], allowUnsigned: false };
    const said = (): string[] => site.context.lines.filter((line) => line.includes(key.fingerprint));
    const trusted = () => {
      const agents = site.server.find('apps/v1', 'DaemonSet', 'agent', 'oc-upgrade-bundle');
      return agents && readTrust(agents);
    };
    await run();
    const changed = ({ objects }: InstallResult): string[] =>
      objects.filter(({ outcome }) => outcome !== 'unchanged').map(({ object }) => object.kind);
    expect(changed(await run({ trust, dryRun: 'client' }))).to.deep.equal(['DaemonSet', 'DaemonSet']);
    expect(trusted()).to.deep.equal(noTrust);
    expect(changed(await run({ trust }))).to.deep.equal(['DaemonSet', 'DaemonSet']);
    expect(trusted()).to.deep.include({ fingerprints }).and.to.have.property('keys').that.contains('PGP PUBLIC KEY');
    expect(said().at(-1)).to.equal(`info: agents are to trust the key ${key.fingerprint}`);
    const before = trusted();
    expect(changed(await run({ trust: { ...trust, keyrings: [] } }))).to.deep.equal([]);
    expect(trusted()).to.deep.equal(before);
    expect(changed(await run())).to.deep.equal(['DaemonSet', 'DaemonSet']);
    expect(trusted()).to.deep.equal(noTrust);
    expect(said().at(-1)).to.match(/^warn: agents are not to trust the key .* any more: to keep that, add --trust/);
  });

  it('writes nothing in a dry run, on either side, and says what it would do', async () => {
    const { revision } = site.server.objects;
    for (const dryRun of ['client', 'server'] as const) {
      const result = await run({ dryRun });
      expect(outcomes(result), dryRun).to.deep.equal(new Set(['created']));
      expect(result.objects.map(({ object }) => object.kind)).to.include.members(['Namespace', 'Secret', 'DaemonSet']);
    }
    expect(site.server.objects.revision).to.equal(revision);
  });

  it('shows no secret', async () => {
    const { objects } = await run();
    expect(JSON.stringify(objects)).not.to.match(/[^a-z]token["']?:/);
    const secret = site.server.find('v1', 'Secret', 'bundle-token', 'oc-upgrade-bundle');
    const { token } = secret?.['data'] as { token: string };
    expect(site.context.lines.join('\n')).not.to.contain(Buffer.from(token, 'base64').toString());
  });

  it('lets Prometheus read metrics if that is asked for, with a token that is not that of the agents', async () => {
    const find = (apiVersion: string, kind: string, name: string) =>
      site.server.find(apiVersion, kind, name, 'oc-upgrade-bundle');
    const parts = () => [
      JSON.stringify(find('apps/v1', 'DaemonSet', 'agent')).includes('"--metrics-port=8082"'),
      JSON.stringify(find('v1', 'Service', 'bundle')).includes('8082'),
      JSON.stringify(find('networking.k8s.io/v1', 'NetworkPolicy', 'agents-only')).includes('8082'),
      find('monitoring.coreos.com/v1', 'ServiceMonitor', 'agents') !== undefined,
      find('v1', 'Secret', 'metrics-token') !== undefined,
    ];
    await run();
    expect(parts()).to.deep.equal([false, false, false, false, false]);
    await run({ metrics: true });
    expect(parts()).to.deep.equal([true, true, true, true, true]);
    const tokenOf = (name: string): string =>
      Buffer.from((find('v1', 'Secret', name)?.['data'] as { token: string }).token, 'base64').toString();
    expect(tokenOf('metrics-token')).to.equal(metricsToken(tokenOf('bundle-token')));
    expect(outcomes(await run({ metrics: true }))).to.deep.equal(new Set(['unchanged']));
    await run();
    expect(parts()).to.deep.equal([false, false, false, false, false]);
  });

  it('makes a key for reports if they are allowed, keeps it, and takes the rights back if they are denied', async () => {
    site.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'openshift-cluster-version' } });
    const secret = () => site.server.find('v1', 'Secret', 'report-key', 'oc-upgrade-bundle')?.['data'];
    const map = () => site.server.find('v1', 'ConfigMap', 'update-report', 'oc-upgrade-bundle')?.['data'];
    const binding = () =>
      site.server.find('rbac.authorization.k8s.io/v1', 'ClusterRoleBinding', 'oc-upgrade-bundle-controller-reports');
    await run();
    expect([secret(), map(), binding()]).to.deep.equal([undefined, undefined, undefined]);
    const { objects } = await run({ reports: true });
    expect(JSON.stringify(objects)).not.to.include('PRIVATE KEY');
    const key = secret();
    expect(JSON.stringify(map())).to.include('BEGIN PUBLIC KEY').and.not.include('PRIVATE');
    expect(binding()).to.have.nested.property('roleRef.name', 'cluster-reader');
    expect(outcomes(await run({ reports: true }))).to.deep.equal(new Set(['unchanged']));
    const { removed } = await run();
    expect(removed.map(({ metadata: { name } }) => name)).to.include.members([
      'oc-upgrade-bundle-controller-reports',
      'update-report',
    ]);
    expect([map(), binding()]).to.deep.equal([undefined, undefined]);
    expect(secret()).to.deep.equal(key);
  });

  it('names the pod that is not ready, and why', async () => {
    site.kubelets.troubles.set('worker-1', 'ImagePullBackOff');
    const installing = () => failureOf(run({ startup: { ...startup, timeout: 3000 } }), 'not-ready');
    const error = await runOutOfTime(3000, site.surveyed(2), installing);
    expect(error.message).to.equal(
      'the agents of 1 of 3 nodes are not ready after 3 s: agent-worker-1-1 on worker-1: ImagePullBackOff',
    );
    expect(site.context.lines).to.include(
      'info: agents ready on 2 of 3 nodes; waiting for agent-worker-1-1 on worker-1: ImagePullBackOff',
    );
    site.kubelets.troubles.clear();
    expect((await run()).nodes).to.equal(3);
  });

  it('names a node that is down', async () => {
    site.server.put(node('worker-1', 'worker', { conditions: [{ type: 'Ready', status: 'Unknown' }] }));
    const error = await failureOf(run({ startup: { ...startup, timeout: 300 } }), 'not-ready');
    expect(error.message).to.match(/agent-worker-1-1 on worker-1: the node is not ready$/);
  });

  it('needs no right to list MachineConfigs', async () => {
    site.server.fault(/machineconfigs(\?|$)/, { answer: { status: 403 } });
    expect((await run()).nodes).to.equal(3);
  });

  it('says when commands in pods are refused', async () => {
    site.server.fault(/exec/, { answer: { status: 403 } });
    await failureOf(run(), 'denied');
  });

  it('asks one question about the rights of a user who may do everything', async () => {
    await run({ dryRun: 'server' });
    const asked = site.server.requests.filter(({ path }) => path.endsWith('/selfsubjectaccessreviews'));
    expect(asked).to.have.length(1);
  });

  it('names the missing rights before it changes anything, also in a dry run on the server', async () => {
    const allow = ({ verb, resource }: Attempt): boolean =>
      !(verb === 'create' && ['clusterroles', 'pods/exec'].includes(resource));
    await using limited = await openAgentSite({ openshift: '4.19.3', allow });
    const { revision } = limited.server.objects;
    const options = { executables: [limited.executable], admission: 'warn', overwrite: false, startup } as const;
    for (const dryRun of [undefined, 'server'] as const) {
      const error = await failureOf(install(limited.cluster, { ...options, dryRun }, limited.context), 'denied');
      expect(error.message).to.equal(
        'this user lacks 2 rights to install: create clusterroles.rbac.authorization.k8s.io, create pods ' +
          '--subresource=exec -n oc-upgrade-bundle',
      );
    }
    expect(limited.server.objects.revision).to.equal(revision);
  });

  it('does not wait if that is off', async () => {
    const result = await run({ startup: undefined });
    expect(result.nodes).to.equal(undefined);
    expect(uploads()).to.deep.equal([]);
  });

  it('keeps changes of another manager, unless they may be overwritten', async () => {
    await run();
    const set = site.server.find('v1', 'Service', 'bundle', 'oc-upgrade-bundle');
    const spec = { ...(set?.['spec'] as object), publishNotReadyAddresses: false };
    await site.cluster.update({
      ...set,
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { ...set?.metadata, name: 'bundle' },
      spec,
    });
    site.server.put(
      { ...set, apiVersion: 'v1', kind: 'Service', metadata: { ...set?.metadata, name: 'bundle' }, spec },
      'them',
    );
    const error = await failureOf(run(), 'conflict');
    expect(error.message).to.equal('service/bundle was changed by another manager: .spec.publishNotReadyAddresses');
    expect(outcomes(await run({ overwrite: true }))).to.include('configured');
  });

  it('refuses a cluster whose control plane has no executable', async () => {
    site.server.put(node('master-0', 'master', { nodeInfo: { architecture: 'arm64' } }));
    const error = await failureOf(run(), 'unsupported');
    expect(error.message).to.equal('no executable is for arm64, the architecture of master-0');
    expect(error.hint).to.contain('linux-arm64.tar.gz');
  });

  it('names workers of an architecture without an executable once, and does not wait for them', async () => {
    site.server.put(node('arm-0', 'worker', { nodeInfo: { architecture: 'arm64' } }));
    site.server.put(node('z-0', 'worker', { nodeInfo: { architecture: 's390x' } }));
    expect((await run()).nodes).to.equal(3);
    const said = site.context.lines.filter((line) => /arm-0|z-0/.test(line));
    expect(said).to.have.length(2);
    expect(said[0]).to.contain('no executable is for arm64, the architecture of arm-0: no agent runs there');
    expect(said[1]).to.contain('s390x').and.to.contain('mirror');
  });

  it('leaves out Windows nodes and nodes of a virtual kubelet, by name, and does not wait for them', async () => {
    for (const each of nodesWithoutAgent) site.server.put(each);
    expect((await run()).nodes).to.equal(3);
    const said = site.context.lines.filter((line) => line.includes('no agent runs on'));
    expect(said).to.deep.equal([
      'info: no agent runs on aci-0 (virtual kubelet), admiralty-0 (virtual kubelet), kwok-0 (virtual ' +
        'kubelet), tainted-0 (virtual kubelet), win-0 (Windows): the update leaves these nodes out',
    ]);
    expect(site.kubelets.podsOf('agent')).to.deep.equal(['kwok-0', 'master-0', 'tainted-0', 'worker-0', 'worker-1']);
  });
});

describe('install, on another cluster', () => {
  const withSite = async (
    openshift: string,
    test: (site: AgentSite) => Promise<void>,
    more: ApiServerOptions = {},
  ): Promise<void> => {
    await using site = await openAgentSite({ openshift, ...more });
    await test(site);
  };
  const options = { admission: 'warn', overwrite: false, startup: undefined } as const;

  it('leaves out the admission policy if it is not served, and fails if it must deny', async () => {
    await withSite('4.12.3', async ({ server, cluster, executable, context }) => {
      server.kinds.splice(0, Infinity, ...server.kinds.filter(({ group }) => group !== 'admissionregistration.k8s.io'));
      const { objects } = await install(cluster, { ...options, executables: [executable] }, context);
      expect(objects.map(({ object }) => object.kind)).not.to.include('ValidatingAdmissionPolicy');
      expect(context.lines.join('\n')).to.contain('has no ValidatingAdmissionPolicy');
      const deny = { ...options, admission: 'deny', executables: [executable] } as const;
      await failureOf(install(cluster, deny, context), 'unsupported');
    });
  });

  it('leaves the rules out of the kind if they are not evaluated, and logs it', async () => {
    const kubernetes = { kubernetes: 'v1.24.9+4f0dd4d' };
    await withSite(
      '4.11.3',
      async ({ server, cluster, executable, context }) => {
        await install(cluster, { ...options, executables: [executable] }, context);
        const name = 'upgradebundles.upgrade-bundle.openshift.io';
        const definition = server.find('apiextensions.k8s.io/v1', 'CustomResourceDefinition', name);
        expect(JSON.stringify(definition)).to.contain('sha256:').and.not.to.contain('x-kubernetes-validations');
        expect(context.lines.join('\n')).to.contain('v1.24.9+4f0dd4d does not evaluate rules of definitions');
        const again = await install(cluster, { ...options, executables: [executable] }, context);
        expect(again.objects.filter(({ outcome }) => outcome !== 'unchanged')).to.deep.equal([]);
      },
      kubernetes,
    );
  });

  it('refuses one whose control plane is hosted, and writes nothing', async () => {
    await withSite('4.19.3', async ({ server, cluster, executable, context }) => {
      server.put(infrastructure('External'));
      const { revision } = server.objects;
      const installing = install(cluster, { ...options, executables: [executable], dryRun: 'client' }, context);
      expect((await failureOf(installing, 'unsupported')).message).to.contain('is hosted');
      expect(server.objects.revision).to.equal(revision);
    });
  });

  it('refuses one without machine config daemons, and writes nothing', async () => {
    await withSite('4.19.3', async ({ server, cluster, executable, context }) => {
      server.objects.delete(
        {
          kind: server.kinds.find(({ resource }) => resource === 'daemonsets') ?? expect.fail(),
          namespace: 'openshift-machine-config-operator',
          name: 'machine-config-daemon',
        },
        {},
        false,
      );
      const { revision } = server.objects;
      const error = await failureOf(
        install(cluster, { ...options, executables: [executable] }, context),
        'unsupported',
      );
      expect(error.message).to.contain('no machine config daemons');
      expect(server.objects.revision).to.equal(revision);
    });
  });
});
