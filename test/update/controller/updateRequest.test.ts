import { expect } from 'chai';
import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import { clusterVersionReference } from '../../../lib/cluster/version/clusterVersion.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { fieldsAt } from '../../../lib/fields.ts';
import { requestUpdate } from '../../../lib/update/controller/updateRequest.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('requestUpdate', () => {
  const update = { version: '4.20.4', release: `mirror.test/openshift/release@${digestOf('release')}` };
  let connected: StartedCluster;
  beforeEach(async () => (connected = await startCluster({ openshift: '4.20.3' })));
  afterEach(() => connected.close());

  const read = async (): Promise<StoredObject> => {
    const found = await connected.cluster.read(clusterVersionReference);
    if (!found) throw new Error('no ClusterVersion');
    return found;
  };

  it('requests nothing of a ClusterVersion that another client changed meanwhile', async () => {
    const before = await read();
    await connected.cluster.patch(clusterVersionReference, { spec: { channel: 'candidate-4.20' } });
    await failureOf(requestUpdate(connected.cluster, before, update, []), 'conflict');
    expect(fieldsAt(await read(), 'spec')['desiredUpdate']).to.equal(undefined);
  });

  it('removes a forced update and an architecture', async () => {
    const desiredUpdate = { image: 'mirror.test/other:1', force: true, architecture: 'Multi' };
    await connected.cluster.patch(clusterVersionReference, { spec: { desiredUpdate } });
    expect(await requestUpdate(connected.cluster, await read(), update, [])).to.deep.equal([]);
    const { release: image, version } = update;
    expect(fieldsAt(await read(), 'spec')['desiredUpdate']).to.deep.equal({ image, version, force: false });
  });
});
