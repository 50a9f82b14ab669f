import { expect } from 'chai';
import { executableVariable } from '../../../lib/update/install/agentScript.ts';
import { describeClocks, describeSilence, surveyAgents } from '../../../lib/update/install/agentSurvey.ts';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import { node, nodesWithoutAgent } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

const namespace = 'oc-upgrade-bundle';
const labels = { 'app.kubernetes.io/name': namespace };

describe('the agents of a cluster', () => {
  let site: StartedCluster;
  beforeEach(async () => {
    site = await startCluster({ openshift: '4.19.3' });
    for (const name of [namespace, `${namespace}-reports`])
      site.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    for (const name of ['worker-1', 'worker-0']) site.server.put(node(name, 'worker'));
  });
  afterEach(() => site.close());

  const putPod = (name: string, status: Json, metadata: Json = {}): void =>
    void site.server.put({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: `agent-${name}`, namespace, labels, ...metadata },
      spec: { nodeName: name, containers: [{ name: 'agent', image: 'r/agent:1' }] },
      status: { phase: 'Running', ...status },
    });
  const ready = { conditions: [{ type: 'Ready', status: 'True' }] };
  const inState = (state: Json, more: Json = {}): Json => ({ containerStatuses: [{ name: 'agent', state, ...more }] });
  const running = (more: Json = {}): Json => inState({ running: {} }, more);
  /** Stores a DaemonSet with the counts of its pods. */
  const putSet = (name: string, counts: readonly [desired: number, updated: number, ready: number]): void => {
    const [desiredNumberScheduled, updatedNumberScheduled, numberReady] = counts;
    const env = [{ name: executableVariable('amd64'), value: 'x' }];
    const template = { spec: { containers: [{ name: 'agent', image: 'r/agent:1', env }] } };
    const status = { observedGeneration: 9, desiredNumberScheduled, updatedNumberScheduled, numberReady };
    site.server.put({
      apiVersion: 'apps/v1',
      kind: 'DaemonSet',
      metadata: { name, namespace },
      spec: { template },
      status,
    });
  };
  const survey = () => surveyAgents(site.cluster);
  const reasons = async (): Promise<string[]> => (await survey()).pods.map(({ reason }) => reason);

  it('are complete if each is ready and of the present template, and the controllers too', async () => {
    const isComplete = async (): Promise<boolean> => (await survey()).complete;
    for (const name of ['worker-0', 'worker-1']) putPod(name, { ...ready, ...running() });
    expect(await isComplete(), 'without a DaemonSet').to.equal(false);
    putSet('agent', [2, 2, 2]);
    expect(await isComplete()).to.equal(true);
    putSet('agent', [2, 1, 2]);
    expect(await isComplete(), 'of an earlier template').to.equal(false);
    putSet('agent', [2, 2, 2]);
    putSet('controller', [1, 1, 0]);
    expect(await isComplete(), 'without a ready controller').to.equal(false);
    putSet('controller', [1, 1, 1]);
    expect(await isComplete()).to.equal(true);
    putPod('worker-1', running());
    expect(await isComplete(), 'with a pod that is not ready').to.equal(false);
  });

  it('are on the nodes that can have one, and no pod elsewhere is waited for', async () => {
    for (const each of nodesWithoutAgent) site.server.put(each);
    putSet('agent', [3, 2, 2]);
    for (const name of ['worker-0', 'worker-1']) putPod(name, { ...ready, ...running() });
    putPod('win-0', {});
    const { pods, complete, withoutAgent } = await survey();
    expect(pods.map((each) => each.node)).to.deep.equal(['worker-0', 'worker-1']);
    expect(complete).to.equal(true);
    expect(withoutAgent).to.include('win-0');
  });

  it('that are not ready say why', async () => {
    for (const [status, reason] of [
      [inState({ waiting: { reason: 'ImagePullBackOff', message: 'no route' } }), 'ImagePullBackOff: no route'],
      [
        inState({ waiting: { reason: 'CrashLoopBackOff' } }, { lastState: { terminated: { message: 'no disk' } } }),
        'CrashLoopBackOff: no disk',
      ],
      [inState({ waiting: { reason: 'CrashLoopBackOff' } }), 'CrashLoopBackOff'],
      [
        running({ restartCount: 3, lastState: { terminated: { exitCode: 7 } } }),
        'it has ended 3 times, the last time with exit code 7',
      ],
      [{}, 'its container is not running yet'],
      [running(), 'the agent has not started yet, or cannot report to the API server'],
      [{ conditions: [{ type: 'PodScheduled', status: 'False', message: 'no node fits' }] }, 'no node fits'],
      [{ ...ready, ...running() }, ''],
    ] as const) {
      putPod('worker-0', status);
      expect((await reasons())[0]).to.equal(reason);
    }
    const [first] = (await survey()).pods;
    expect(first).to.include({ pod: 'agent-worker-0', running: true, ready: true, isRefused: false });
    putPod('worker-0', { ...ready, ...running() }, { deletionTimestamp: '2026-11-20T10:00:00Z', finalizers: ['a/b'] });
    expect((await reasons())[0], 'of a deleted pod').to.equal('there is no pod yet');
  });

  it('without a pod say why the API server refuses it, by the latest event', async () => {
    const refuse = (name: string, message: string, at: string, reason = 'FailedCreate'): void =>
      void site.server.put({
        apiVersion: 'v1',
        kind: 'Event',
        metadata: { name, namespace },
        involvedObject: { kind: 'DaemonSet', namespace, name: 'agent' },
        reason,
        message,
        lastTimestamp: `2026-11-20T10:00:${at}Z`,
      });
    expect(await reasons()).to.deep.equal(['there is no pod yet', 'there is no pod yet']);
    refuse('a', 'exceeded quota', '20');
    refuse('b', 'no class of priority', '10');
    refuse('c', 'created', '30', 'SuccessfulCreate');
    site.server.put(node('worker-1', 'worker', { conditions: [{ type: 'Ready', status: 'Unknown' }] }));
    const { pods } = await survey();
    expect(pods.map(({ reason, isRefused }) => [reason, isRefused])).to.deep.equal([
      ['exceeded quota', true],
      ['the node is not ready', false],
    ]);
  });

  /** Stores a report of a node, which was written some time ago by the clock of the API server. Milliseconds. */
  const report = ({ name = 'worker-0', age = 0, skew = 0 } = {}): void => {
    const progress = { name, phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 } as const;
    const renewTime = new Date(Date.now() - age + skew).toISOString().replace('Z', '000Z');
    const lease = { ...formatNodeReport({ bundle: '', progress }), spec: { holderIdentity: name, renewTime } };
    site.server.backdate(site.server.put(lease), age);
  };

  it('are silent if none has reported for 15 minutes, for the reason of the first one', async () => {
    const silence = (): Promise<string | undefined> => describeSilence(site.cluster);
    putPod('worker-0', { ...ready, ...running() });
    putPod('worker-1', inState({ waiting: { reason: 'ImagePullBackOff' } }));
    expect(await silence()).to.equal(
      'no agent has reported yet; agent-worker-1 on worker-1: ImagePullBackOff. See: oc -n oc-upgrade-bundle get pods',
    );
    putPod('worker-1', { ...ready, ...running() });
    report({ age: 16 * 60_000 });
    expect(await silence()).to.match(
      /^no agent has reported since 20\d\d-\S+:\d\dZ\. See: oc -n oc-upgrade-bundle logs -l app\.kubernetes\.io\/name=/,
    );
    report({ name: 'worker-1', age: 14 * 60_000 });
    expect(await silence()).to.equal(undefined);
  });

  it('differ in their clocks from the API server by over a minute, and are not silent for that', async () => {
    report({ name: 'a', skew: -40 * 60_000 });
    report({ name: 'b', skew: 3 * 86_400_000 });
    report({ name: 'c' });
    report({ name: 'd', skew: 50_000 });
    expect(await describeClocks(site.cluster)).to.equal(
      'clocks differ from that of the API server: a 40 minutes behind, b 3 days ahead. Set them: certificates and ' +
        'times depend on them',
    );
    expect(await describeSilence(site.cluster)).to.equal(undefined);
    for (const name of ['a', 'b', 'c', 'd']) report({ name, age: 3_600_000, skew: 3_600_000 });
    expect(await describeSilence(site.cluster)).to.match(/^no agent has reported since 20/);
    report({ name: 'a' });
    report({ name: 'b', skew: 5 * 3_600_000 });
    expect(await describeClocks(site.cluster)).to.match(/: b 5 hours ahead, c 60 minutes ahead, d 60 minutes ahead\./);
  });
});
