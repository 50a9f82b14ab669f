import { expect } from 'chai';
import { listServed, readMatching } from '../../lib/cluster/objects/servedObjects.ts';
import { Refusal, statusAnswer } from '../fakes/kubernetes/apiStatus.ts';
import { startCluster, type StartedCluster } from '../support/cluster.ts';

describe('the objects of a kind that a cluster may not serve', () => {
  let connected: StartedCluster;
  beforeEach(async () => {
    connected = await startCluster();
    for (const namespace of ['a', 'b']) {
      connected.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
      for (const name of ['one', 'two'])
        connected.server.put({
          apiVersion: 'v1',
          kind: 'ConfigMap',
          metadata: { name, namespace },
          data: { namespace },
        });
    }
  });
  afterEach(() => connected.close());
  const readOnes = () => readMatching(connected.cluster, 'v1', 'ConfigMap', ({ metadata }) => metadata.name === 'one');

  it('are none if it does not', async () => {
    expect(await listServed(connected.cluster, 'example.com/v1', 'Widget')).to.deep.equal([]);
    expect(await readMatching(connected.cluster, 'example.com/v1', 'Widget', () => true)).to.deep.equal([]);
    expect(await listServed(connected.cluster, 'v1', 'ConfigMap', { namespace: 'a' })).to.have.length(2);
  });

  it('are read if their metadata match, each in its namespace', async () => {
    const before = connected.server.requests.length;
    expect((await readOnes()).map((object) => object['data'])).to.deep.equal([{ namespace: 'a' }, { namespace: 'b' }]);
    const paths = connected.server.requests.slice(before).map(({ path }) => path);
    expect(paths.filter((path) => path.includes('/configmaps/two'))).to.deep.equal([]);
  });

  it('are left out if they are removed meanwhile', async () => {
    const gone = statusAnswer(new Refusal(404, 'NotFound', 'configmaps "one" not found'));
    connected.server.fault(/namespaces\/a\/configmaps\/one/, { answer: gone });
    expect((await readOnes()).map(({ metadata }) => metadata.namespace)).to.deep.equal(['b']);
  });
});
