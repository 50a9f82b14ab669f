import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { NodeShell } from '../../lib/drill/nodeShell.ts';
import { drillFile, executablePath } from '../../lib/node/machine/host.ts';
import { drillTraces, requestsFile } from '../../lib/node/runtime/drillRegistry.ts';
import { ScriptedNode } from '../fakes/cluster/scriptedNode.ts';
import { furnish, pod } from '../fakes/cluster/site.ts';
import { startCluster, type StartedCluster } from '../support/cluster.ts';
import { failureOf } from '../support/program/failure.ts';

const namespace = 'oc-upgrade-bundle';

describe('NodeShell', () => {
  let connected: StartedCluster;
  let node: ScriptedNode;
  let shell: NodeShell;

  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.19.3' });
    furnish(connected.server);
    node = await ScriptedNode.start(connected.server, 'worker-0');
    shell = new NodeShell(connected.cluster, 'worker-0');
  });
  afterEach(async () => {
    await node.close();
    await connected.close();
  });

  const plan = { node: 'worker-0', until: 2_000_000_000, registries: ['quay.io'] };
  const remove = (name: string): void => {
    const kind = connected.server.kinds.find((known) => known.kind === 'Pod');
    if (kind) connected.server.objects.delete({ kind, namespace, name }, {}, false);
  };

  it('starts one drill at a time', async () => {
    await shell.begin(plan);
    expect(node.has('drill')).to.equal(true);
    const { message, hint } = await failureOf(shell.begin(plan), 'busy');
    expect(message).to.equal('another drill is running on worker-0');
    expect(hint).to.contain('end it');
  });

  it('names the node and the reason if a drill does not start', async () => {
    await node.break('short');
    const { message } = await failureOf(shell.begin(plan), 'command-failed');
    expect(message).to.match(/^worker-0: the drill has ended at once/);
    await shell.end();
    await node.remove(executablePath);
    expect((await failureOf(shell.begin(plan), 'command-failed')).message).to.equal(
      'worker-0: the agent has no executable',
    );
  });

  it('reads the process of the container runtime, which a restart changes', async () => {
    expect(await shell.readRuntime()).to.equal('100');
    await shell.restartRuntime();
    expect(await shell.readRuntime()).to.equal('101');
  });

  it('announces a reboot to the drill', async () => {
    await shell.reboot();
    expect(node.has('rebooted')).to.equal(true);
    expect(drillTraces.map((path) => existsSync(node.path(path)))).to.include(true);
  });

  it('reads all requests, except for an incomplete last line', async () => {
    expect(await shell.readRequests()).to.deep.equal([]);
    const requests = Array.from({ length: 1000 }, (_, index) => ({
      time: '2026-11-22T10:00:00Z',
      image: `quay.io/a/b:${index}`,
      client: `cri-o/1.33 ${'é'.repeat(40)}`,
    }));
    const lines = requests.map((request) => `${JSON.stringify(request)}\n`).join('');
    expect(Buffer.byteLength(lines)).to.be.greaterThan(2 * 60_000);
    await writeFile(node.path(requestsFile), `${lines}{"time":"2026`);
    expect(await shell.readRequests()).to.deep.equal(requests);
  });

  it('leaves nothing of a drill on the node', async () => {
    await shell.begin(plan);
    await writeFile(node.path(requestsFile), '');
    expect(existsSync(node.path(drillFile))).to.equal(true);
    await shell.end();
    expect(node.has('drill')).to.equal(false);
    expect(drillTraces.filter((path) => existsSync(node.path(path)))).to.deep.equal([]);
  });

  it('runs its commands in the running agent of the node alone', async () => {
    remove('agent-1');
    const agent = node.agent('agent-1');
    const others = [
      { ...agent, spec: { ...(agent['spec'] as object), nodeName: 'worker-1' } },
      { ...agent, status: { phase: 'Pending' } },
      { ...agent, metadata: { ...agent.metadata, deletionTimestamp: '2026-11-22T10:00:00Z' } },
      pod('agent-1', namespace),
    ];
    for (const other of others) {
      connected.server.put(other);
      const { message } = await failureOf(shell.readRuntime(), 'not-ready');
      expect(message).to.equal('no agent runs on worker-0, and a drill needs one');
      remove('agent-1');
    }
  });

  it('finds the agent that replaced another one', async () => {
    await shell.readRuntime();
    remove('agent-1');
    connected.server.put(node.agent('agent-2'));
    await failureOf(shell.readRuntime());
    expect(await shell.readRuntime()).to.equal('100');
  });

  it('ends a drill as soon as an agent runs, and fails after the timeout', async () => {
    await shell.begin(plan);
    remove('agent-1');
    // The pod that it remembers is gone, also for the only attempt within the timeout on a busy machine.
    await failureOf(shell.readRuntime());
    const signal = new AbortController().signal;
    await failureOf(shell.endWithin({ timeout: 20, interval: 5 }, { signal }), 'not-ready');
    const ending = shell.endWithin({ timeout: 60_000, interval: 5 }, { signal });
    connected.server.put(node.agent('agent-2'));
    await ending;
    expect(node.has('drill')).to.equal(false);
  });
});
