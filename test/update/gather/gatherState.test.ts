import { expect } from 'chai';
import { gatherState } from '../../../lib/update/gather/gatherState.ts';
import { Redactor } from '../../../lib/update/gather/redaction.ts';
import { furnish, node, platformImage } from '../../fakes/cluster/site.ts';
import { startHostileServer } from '../../fakes/kubernetes/hostileServer.ts';
import { connectTo, startCluster, type ConnectedCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

const namespace = 'oc-upgrade-bundle';

describe('gatherState', () => {
  let site: StartedCluster;
  beforeEach(async () => {
    site = await startCluster({ openshift: '4.19.3' });
    furnish(site.server);
    for (const name of [namespace, 'openshift-machine-config-operator', 'openshift-cluster-version'])
      site.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
  });
  afterEach(() => site.close());

  /** Reads all files: their texts by path, in their order. */
  async function gather({ cluster }: Pick<ConnectedCluster, 'cluster'> = site): Promise<Map<string, string>> {
    const files = new Map<string, string>();
    for await (const { path, content } of gatherState(cluster, new Redactor(), makeContext())) files.set(path, content);
    return files;
  }
  const putPod = (name: string, restartCount: number, more: object = {}): void => {
    const containers = [{ name: 'agent', image: platformImage('d'), env: [{ name: 'PASSWORD', value: 'hunter2' }] }];
    const status = { phase: 'Running', containerStatuses: [{ name: 'agent', restartCount }] };
    site.server.put({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, namespace },
      spec: { containers },
      status,
      ...more,
    });
    site.server.podLogs.set(`${namespace}/${name}`, ['proxy http://joe:pw123@proxy:3128']);
  };

  it('has a log of each container, and of the one before if that has ended', async () => {
    putPod('agent-a', 0);
    putPod('agent-b', 2);
    const paths = [...(await gather()).keys()];
    expect(paths.filter((path) => path.startsWith('logs/'))).to.deep.equal([
      `logs/${namespace}/agent-a/agent.log`,
      `logs/${namespace}/agent-b/agent.log`,
      `logs/${namespace}/agent-b/agent.previous.log`,
    ]);
    const asked = site.server.requests.filter(({ path }) => path.includes('/log?'));
    expect(asked.every(({ path }) => path.includes('tailLines=5000'))).to.equal(true);
  });

  it('has the images of nodes in files of their own, and not again in their objects', async () => {
    site.server.put(node('worker-0', 'worker', { images: [{ names: ['r/a@sha256:1', 'r/a:2'], sizeBytes: 70 }] }));
    const files = await gather();
    expect(files.get('nodes/worker-0-images.txt')).to.equal('70 r/a@sha256:1 r/a:2\n');
    expect(files.get('objects/node.json')).to.include('worker-0').and.not.include('r/a@sha256:1');
  });

  it('leaves out secrets in objects, logs and failures', async () => {
    putPod('agent-a', 0);
    site.server.fault(/poddisruptionbudgets/, {
      answer: {
        status: 403,
        body: JSON.stringify({ kind: 'Status', code: 403, message: 'Bearer abcdef123456 denied' }),
      },
    });
    const text = [...(await gather()).values()].join('\n');
    for (const secret of ['hunter2', 'pw123', 'abcdef123456']) expect(text, secret).not.to.include(secret);
    expect(text).to.include('proxy http://REDACTED@proxy:3128');
  });

  it('names in its last file each part that could not be read, and continues', async () => {
    putPod('agent-a', 0);
    site.server.fault(/poddisruptionbudgets/, { answer: { status: 403 } });
    site.server.fault(/\/log\?/, { answer: { status: 403 } });
    const files = await gather();
    const [last, failures = ''] = [...files].at(-1) ?? [];
    expect(last).to.equal('failures.txt');
    const lines = failures.trim().split('\n');
    expect(lines.map((line) => line.split(': ')[0])).to.deep.equal([
      'PodDisruptionBudget',
      `logs/${namespace}/agent-a/agent.log`,
    ]);
    expect([...files.keys()]).to.include('objects/certificatesigningrequest.json');
    site.server.clearFaults();
    expect((await gather()).get('failures.txt')).to.equal('');
  });

  it('reads namespaces one by one, and no kind that the cluster does not serve', async () => {
    const paths = [...(await gather()).keys()];
    expect(paths).to.include.members([`objects/pod-${namespace}.json`, 'objects/event-default.json']);
    expect(paths).not.to.include('objects/upgradebundle.json').and.not.to.include('objects/pod.json');
    expect(site.server.requests.some(({ path }) => /\/(secrets|configmaps)/.test(path))).to.equal(false);
  });

  it('makes names of the cluster to parts of a path, which are short and lead nowhere else', async () => {
    const long = 'n'.repeat(300);
    await using hostile = await startHostileServer(['../../x', '..', '/etc', 'a\0b\nc', long, `${long}2`, 'é']);
    await using connected = await connectTo(hostile);
    const files = await gather(connected);
    expect([...files.keys()]).to.include.members([
      'nodes/%2E.%2F..%2Fx-images.txt',
      'nodes/%2E.-images.txt',
      'nodes/%2Fetc-images.txt',
      'nodes/a%00b%0Ac-images.txt',
      'nodes/%C3%A9-images.txt',
      'logs/%2Ens/%C3%A9/%2E..log',
    ]);
    const cut = [...files.keys()].filter((path) => path.startsWith(`nodes/${'n'.repeat(180)}%`));
    expect(cut).to.have.length(2);
    expect(cut.every((path) => path.length < 220)).to.equal(true);
  });

  it('ends if it is interrupted', async () => {
    const context = makeContext();
    const files = gatherState(site.cluster, new Redactor(), context);
    await files.next();
    context.interrupt();
    await failureOf(files.next(), 'interrupted');
  });
});
