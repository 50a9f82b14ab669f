import { mkdir } from 'node:fs/promises';
import { expect } from 'chai';
import { fieldsOf, listOf } from '../../../lib/fields.ts';
import { install } from '../../../lib/update/install.ts';
import { openAgentSite, type AgentSite } from '../../fakes/cluster/agents.ts';
import { MirrorOperator } from '../../fakes/cluster/mirrorOperator.ts';
import { reportMirror } from '../../fakes/cluster/site.ts';
import { dualReplica, furnishTopology, withArbiter, type Topology } from '../../fakes/cluster/topologies.ts';

const planes = ['master-0', 'master-1'];
const machines = 'machineconfiguration.openshift.io/v1';

/** Creates a site with the nodes of a topology. It has what mirrors change. */
async function openTopology(topology: Topology): Promise<AgentSite> {
  const site = await openAgentSite({ openshift: '4.22.1' });
  const { server } = site;
  server.nodeRoots.clear();
  furnishTopology(topology, server);
  for (const name of Object.keys(topology.roles)) {
    await mkdir(site.rootOf(name), { recursive: true });
    server.nodeRoots.set(name, site.rootOf(name));
  }
  for (const name of ['openshift-config', 'kube-system'])
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
  server.put({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'pull-secret', namespace: 'openshift-config' } });
  const spec = { externalRegistryHostnames: ['r.example.com'] };
  server.put({ apiVersion: 'config.openshift.io/v1', kind: 'Image', metadata: { name: 'cluster' }, spec });
  const data = { 'install-config': 'networking:\n  machineNetwork:\n  - cidr: 192.0.2.0/24\n' };
  const metadata = { name: 'cluster-config-v1', namespace: 'kube-system' };
  server.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata, data });
  const policy = { apiVersion: 'operator.openshift.io/v1', kind: 'MachineConfiguration' };
  server.put({ ...policy, metadata: { name: 'cluster' }, spec: { managementState: 'Managed' }, status: {} });
  return site;
}

for (const topology of [dualReplica, withArbiter])
  describe(`install on a cluster of the topology ${topology.topology}`, () => {
    const names = Object.keys(topology.roles).sort();
    let site: AgentSite;
    let operator: MirrorOperator;
    beforeEach(async () => {
      site = await openTopology(topology);
      operator = new MirrorOperator(site.server);
    });
    afterEach(async () => {
      operator.stop();
      await site.close();
    });
    const run = async (mirror: boolean): Promise<number | undefined> => {
      const wait = { timeout: 60_000, interval: 20 };
      const choice = { ...wait, port: 9690, sources: [], mayDisrupt: false };
      const options = { executables: [site.executable], admission: 'warn', overwrite: false, startup: wait } as const;
      const { nodes } = await install(site.cluster, { ...options, ...(mirror && { mirror: choice }) }, site.context);
      return nodes;
    };

    it('brings an agent to every node, and a controller to the two control plane nodes', async () => {
      expect(await run(false)).to.equal(names.length);
      expect(site.kubelets.podsOf('agent')).to.deep.equal(names);
      expect(site.kubelets.podsOf('controller')).to.deep.equal(planes);
    });

    it('lets all pools pull from the mirrors of the two control plane nodes', async () => {
      const reported = new Set<string>();
      // The controllers start the mirrors, and the agents report them.
      const report = (): void => {
        for (const name of site.kubelets.podsOf('controller').filter((each) => !reported.has(each))) {
          reported.add(name);
          reportMirror(site.server, name);
        }
      };
      const reporting = setInterval(report, 50);
      await run(true).finally(() => {
        clearInterval(reporting);
      });
      const set = site.server.find('config.openshift.io/v1', 'ImageDigestMirrorSet', 'oc-upgrade-bundle');
      const hosts = listOf(fieldsOf(set?.['spec'])['imageDigestMirrors']).map(({ mirrors }) =>
        (mirrors as string[]).map((mirror) => mirror.split('/')[0]),
      );
      const wanted = ['localhost:9690', '192.0.2.11:9690', '192.0.2.12:9690'];
      expect(hosts).to.deep.equal(hosts.map(() => wanted));
      expect(hosts).not.to.deep.equal([]);
      const pools = ['master', 'worker', ...(names.includes('arbiter-0') ? ['arbiter'] : [])];
      for (const pool of pools)
        expect(site.server.find(machines, 'MachineConfig', `98-${pool}-oc-upgrade-bundle-mirror`), pool).to.not.equal(
          undefined,
        );
    });
  });
