import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { expect } from 'chai';
import { digestOf } from '../../lib/content/oci/reference.ts';
import { bundleName, SimulatedCluster, gatherTrustIn } from '../fakes/cluster/simulatedCluster.ts';
import { requireRoot } from '../support/archive/storeReader.ts';
import { makeBundle } from '../support/content/bundle.ts';
import { requirePeer } from '../support/peers.ts';

describe('the controllers of a cluster', function () {
  requirePeer(this, 'skopeo', 'podman');

  it('have one leader, and another one when that is gone', async function () {
    await requireRoot(this);
    await using made = await makeBundle({ version: '4.19.4', previous: ['4.19.3'] });
    const trust = await gatherTrustIn(made);
    await using cluster = await SimulatedCluster.start({ trust });
    cluster.allow(digestOf(await readFile(made.path)));
    const nodes = await Promise.all(
      ['master-0', 'master-1', 'worker-0', 'worker-1'].map((name) => cluster.addNode(name, ['--disk-floor=1Mi'])),
    );
    const holder = (): unknown => {
      const lease = cluster.api.find('coordination.k8s.io/v1', 'Lease', 'controller', 'oc-upgrade-bundle');
      return (lease?.['spec'] as { holderIdentity?: string } | undefined)?.holderIdentity;
    };
    await cluster.until(() => nodes.some(({ name }) => name === holder()));
    const leader = nodes.find(({ name }) => name === holder());
    const other = nodes.find((node) => node !== leader);
    await other?.putFile(made.path, basename(made.path));
    await cluster.until(() => cluster.phase() === 'Loading');
    await leader?.kill('everything');
    await cluster.until(() => holder() !== leader?.name && holder() !== undefined);
    await cluster.until(() => cluster.condition('Loaded').includes(leader?.name ?? ''));
    leader?.start();
    await cluster.until(() => cluster.phase() === 'Completed');
    expect(cluster.site.requests).to.deep.equal([{ image: made.release.pullspec, version: '4.19.4', force: false }]);
    expect(cluster.names('UpgradeBundle')).to.deep.equal([bundleName]);
    expect([...new Set(cluster.denied)]).to.deep.equal([]);
  });
});
