import { expect } from 'chai';
import { startCluster } from '../../support/cluster.ts';

describe('the discovery of kinds', () => {
  it('sends one request for an API version if several callers need it at the same time', async () => {
    await using connected = await startCluster();
    const kinds = ['ConfigMap', 'Secret', 'ConfigMap'];
    const found = await Promise.all(kinds.map((kind) => connected.cluster.findKind('v1', kind)));
    expect(found.map((each) => each?.kind)).to.deep.equal(kinds);
    expect(connected.server.requests.filter(({ path }) => path === '/api/v1')).to.have.length(1);
  });
});
