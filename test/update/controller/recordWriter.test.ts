import { expect } from 'chai';
import { RecordWriter } from '../../../lib/update/controller/recordWriter.ts';
import { upgradeBundleKind, type UpgradeBundle } from '../../../lib/update/record/upgradeBundle.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import { connectTo } from '../../support/cluster.ts';

describe('RecordWriter', () => {
  it('writes nothing to an UpgradeBundle that was changed since it was read', async () => {
    await using rollout = await RolloutSite.start();
    await using connected = await connectTo(rollout.server);
    const { cluster, context } = connected;
    rollout.server.put(upgradeBundle('record'));
    const writer = new RecordWriter(cluster, 'master-0', context);
    const reference = { ...upgradeBundleKind, metadata: { name: 'record' } };
    const read = (await cluster.read(reference)) as UpgradeBundle;
    rollout.edit('UpgradeBundle', 'record', { spec: { hold: true } });
    await writer.writeStall(read, 'an old reason');
    expect(rollout.condition('Stalled')).to.equal(' : ');
    expect(context.lines.join()).to.match(/^debug: .*modified/);
    await writer.writeStall((await cluster.read(reference)) as UpgradeBundle, 'a new reason');
    expect(rollout.condition('Stalled')).to.equal('True Failing: a new reason');
  });
});
