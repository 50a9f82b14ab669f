import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { connectCluster } from '../../lib/cluster/client.ts';
import { drillNode, endDrill } from '../../lib/drill/drill.ts';
import { drillFile } from '../../lib/node/machine/host.ts';
import { drillUnit } from '../../lib/node/runtime/drillRegistry.ts';
import { checkDrills, lastDrillAnnotation } from '../../lib/readiness/preflight/drillRecord.ts';
import { DrillSite, drilled } from '../fakes/cluster/drillSite.ts';
import { KilledCluster } from '../fakes/cluster/killedCluster.ts';
import { pod } from '../fakes/cluster/site.ts';
import { dualReplica, withArbiter } from '../fakes/cluster/topologies.ts';
import type { Json } from '../fakes/kubernetes/apiPatch.ts';
import { requireRoot } from '../support/archive/storeReader.ts';
import { hasty } from '../support/cluster.ts';
import { makeContext } from '../support/context.ts';
import { requirePeer } from '../support/peers.ts';
import { executeProgram } from '../support/program/execution.ts';
import { failureOf } from '../support/program/failure.ts';

const child = fileURLToPath(new URL('../fakes/cluster/drillChild.ts', import.meta.url));
const options = { reboot: false, single: false, timeout: 120_000, interval: 200 };
const router = `quay.io/site/router@sha256:${'a'.repeat(64)}`;

describe('a drill of a node with systemd', function () {
  requirePeer(this, 'unshare', 'systemd-analyze', 'skopeo');
  let site: DrillSite;

  before(async function () {
    await requireRoot(this);
  });
  beforeEach(async () => {
    site = await DrillSite.start([router, 'registry.example.org/x/y:1']);
  });
  afterEach(async function () {
    if (this.currentTest?.state === 'failed') console.error(await site.node.console);
    await site.close();
    expect(site.denied).to.deep.equal([]);
  });

  const record = (): Json => {
    const { annotations = {} } = site.object.metadata as { annotations?: Record<string, string> };
    return JSON.parse(annotations[lastDrillAnnotation] ?? '{}') as Json;
  };
  const expectClean = async (place = site): Promise<void> => {
    await place.until(async () => (await place.traces()).length === 0);
    await place.until(async () => (await place.runtimeState()).endsWith('free'));
  };
  /** Runs a drill in a process of its own, which ends itself by `kill -9` after a step. */
  const runChild = (killAt: number): Promise<void> =>
    new Promise((resolve) => {
      execFile(process.execPath, [child, site.kubeconfig, drilled, String(killAt)], () => {
        resolve();
      });
    });
  /**
   * Runs a drill in this process, which ends as by `kill -9` after a step; 0 for none. Returns the number of its steps.
   */
  const runKilled = async (place: DrillSite, reboot: boolean, limit: number, killAt: number): Promise<number> => {
    const context = makeContext();
    const cluster = await connectCluster({ kubeconfig: place.kubeconfig, environment: {}, retry: hasty }, context);
    const end = Promise.withResolvers<undefined>();
    const killed = new KilledCluster(cluster, killAt, () => {
      cluster[Symbol.dispose]();
      end.resolve(undefined);
    });
    const drill = drillNode(killed.cluster, drilled, { ...options, reboot, limit }, context);
    const ended = await Promise.race([drill, end.promise]);
    cluster[Symbol.dispose]();
    expect(ended?.result ?? 'killed').to.equal(killed.steps < killAt || killAt === 0 ? 'passed' : 'killed');
    return killed.steps;
  };

  it('reports the client of each request while the container runtime restarts, and leaves nothing behind', async () => {
    const { code, stdout } = await executeProgram('oc-adm_upgrade_bundle', [
      'drill',
      drilled,
      `--kubeconfig=${site.kubeconfig}`,
      '-o',
      'json',
    ]);
    expect(code).to.equal(0);
    const { nodes } = JSON.parse(stdout) as { nodes: Json[] };
    expect(nodes[0]).to.include({ node: drilled, result: 'passed', reboot: false, version: '4.19.3' });
    const { pods, asked } = nodes[0] as { pods: Json[]; asked: Json[] };
    expect(pods.map(({ name }) => name)).to.have.members([`agent-${drilled}`, 'dns-default-x', 'router-1']);
    expect(asked.map(({ image }) => image)).to.deep.equal([router, '*.org/x/y:1']);
    const owner = { namespace: 'openshift-ingress', name: 'router-1', owner: 'ReplicaSet/router' };
    expect(asked.map(({ pods: users }) => users)).to.deep.equal([[owner], []]);
    await expectClean();
    expect((await site.node.read('/var/log/crio'))?.trim().split('\n')).to.deep.equal([
      'started free',
      'started redirected',
      'reloaded free',
    ]);
    expect(record()).to.include({ result: 'passed', pods: 3, missing: 0, images: 2, version: '4.19.3' });
    const end = ['drill', drilled, '--end', `--kubeconfig=${site.kubeconfig}`, '-o', 'json'];
    const ended = await executeProgram('oc-adm_upgrade_bundle', end);
    expect(JSON.parse(ended.stdout), ended.stderr).to.deep.include({ outputVersion: 1, ended: [drilled] });
  });

  it('drains and reboots the node, and the registry is there before the container runtime', async () => {
    const { cluster, context } = site.connected;
    const drill = await drillNode(cluster, drilled, { ...options, reboot: true }, context);
    expect(drill).to.include({ result: 'passed', reboot: true });
    expect(drill.pods.map(({ seconds = 0 }) => seconds > 0.5)).to.deep.equal([true, true, true]);
    expect(drill.asked.map(({ image }) => image)).to.include(router);
    await expectClean();
    const log = (await site.node.read('/var/log/crio'))?.trim().split('\n');
    expect(log).to.deep.equal(['started free', 'started redirected', 'reloaded free']);
    expect(site.server.find('v1', 'Pod', 'router-1-again', 'openshift-ingress')?.['spec']).to.include({
      nodeName: 'worker-1',
    });
    const [finding] = checkDrills([site.object]);
    expect(finding?.message).to.match(
      /^drills passed on 1 of 1 nodes \(worker-0\), the last on \d{4}-\d\d-\d\d with a reboot$/,
    );
  });

  it('fails if a pod does not run again, names it, and lets the node use its registries again', async () => {
    const { cluster, context } = site.connected;
    const running = drillNode(cluster, drilled, { ...options, timeout: 10_000 }, context);
    await site.until(() => site.node.has(drillFile));
    site.breakPod('dns-default-x', 'openshift-dns', 'Back-off pulling image');
    const { result, message, pods } = await running;
    expect([result, message]).to.deep.equal(['failed', '1 pod does not run again after 10 s']);
    const broken = pods.find(({ name }) => name === 'dns-default-x');
    expect(broken?.message).to.equal('container main: ImagePullBackOff: Back-off pulling image');
    await expectClean();
    expect(checkDrills([site.object])[0]).to.include({ severity: 'warning' });
  });

  it('leaves nothing behind if it is interrupted, while it drains too', async () => {
    site.server.put({
      apiVersion: 'policy/v1',
      kind: 'PodDisruptionBudget',
      metadata: { name: 'router', namespace: 'openshift-ingress' },
      spec: { selector: { matchLabels: { app: 'router' } } },
      status: { disruptionsAllowed: 1 },
    });
    const { connected } = site;
    for (const reboot of [false, true]) {
      const context = makeContext();
      const stop = new AbortController();
      const cluster = connected.cluster.within(stop.signal);
      const running = drillNode(cluster, drilled, { ...options, reboot }, { ...context, signal: stop.signal });
      // To look for traces on the node takes processes, and on a busy machine the drill ends meanwhile.
      await site.until(() => site.isClaimed);
      stop.abort();
      const error = await running.catch((reason: unknown) => reason);
      expect(error).to.have.property('code', 'interrupted');
      expect(await site.traces()).to.deep.equal([]);
      expect(record()).to.include({ result: 'interrupted', reboot });
    }
  });

  it('lets a container runtime that is starting when the drill ends use its registries again', async () => {
    const { cluster, context } = site.connected;
    const { node } = site;
    await node.tryRun('touch', '/etc/crio-slow');
    const running = drillNode(cluster, drilled, { ...options, timeout: 5000 }, context).catch(
      (error: unknown) => error,
    );
    await site.until(async () => (await site.runtimeState()) === 'started redirected');
    const stopping = node.tryRun('systemctl', 'stop', drillUnit);
    await site.until(async () => !(await node.has(drillFile)));
    await node.tryRun('rm', '/etc/crio-slow');
    await Promise.all([stopping, running]);
    await expectClean();
  });

  for (const mode of ['restart', 'reboot']) {
    it(`leaves nothing behind if the command is killed after any step of a ${mode}`, async () => {
      const isReboot = mode === 'reboot';
      const started = Date.now();
      const count = await runKilled(site, isReboot, 600_000, 0);
      expect(count).to.be.at.least(6);
      // The node ends the drill of a killed command, and no drill that is slow because the machine is busy.
      const limit = Math.max(8000, 2 * (Date.now() - started));
      const steps = Array.from({ length: count }, (_, index) => index + 1);
      let killed = 0;
      const others = await Promise.all(steps.slice(1, 4).map(() => DrillSite.start()));
      try {
        const work = [site, ...others].map(async (each) => {
          for (let step = steps.shift(); step !== undefined; step = steps.shift()) {
            const isReached = async (): Promise<boolean> => (await runKilled(each, isReboot, limit, step)) === step;
            // A run may have a step less than another.
            if ((await isReached()) || (await isReached())) killed += 1;
            await expectClean(each);
          }
        });
        const failures = (await Promise.allSettled(work)).filter(({ status }) => status === 'rejected');
        expect(failures).to.deep.equal([]);
      } finally {
        await Promise.all(others.map((each) => each.close()));
      }
      // A node that was drained has fewer pods to evict in its next drill.
      expect(killed).to.be.at.least(6);
    });
  }

  it('leaves nothing behind after power cuts before, during and after its own reboot', async () => {
    const { cluster, context } = site.connected;
    const begin = (reboot: boolean): Promise<unknown> =>
      drillNode(cluster, drilled, { ...options, reboot, timeout: 15_000 }, context).catch((error: unknown) => error);
    // Without the command, nothing but the node itself can end the drill.
    void runChild(1);
    await site.until(() => site.node.has(drillFile));
    await site.cutPower();
    expect(await site.node.has(drillFile)).to.equal(false);
    await site.until(async () => (await site.runtimeState()).endsWith('free'));
    await endDrill(cluster, drilled, options, context);
    await expectClean();
    const running = begin(true);
    await site.until(async () => (await site.runtimeState()) === 'started redirected');
    await site.cutPower();
    await site.until(async () => (await site.runtimeState()).endsWith('free'));
    const starts = ((await site.node.read('/var/log/crio')) ?? '').match(/^started .*/gm);
    expect(starts).to.deep.equal(['started free', 'started free', 'started redirected', 'started free']);
    expect(await site.node.has(drillFile)).to.equal(false);
    await running;
    await expectClean();
  });

  it('is ended by systemd if its process on the node is killed', async () => {
    await runChild(2);
    await site.until(() => site.node.has(drillFile));
    await site.node.tryRun('systemctl', 'kill', '--signal=KILL', drillUnit);
    await site.until(async () => (await site.traces()).every((trace) => !trace.startsWith('/')));
    await endDrill(site.connected.cluster, drilled, options, site.connected.context);
    await expectClean();
  });
});

describe('a drill of one of two control plane nodes', function () {
  requirePeer(this, 'unshare', 'systemd-analyze', 'skopeo');
  before(async function () {
    await requireRoot(this);
  });
  const places = [
    { topology: dualReplica, name: 'master-1', other: 'master-0' },
    { topology: withArbiter, name: 'master-1', other: 'master-0' },
    { topology: withArbiter, name: 'arbiter-0', other: 'master-0' },
  ];
  for (const place of places)
    it(`drains and reboots ${place.name} of ${place.topology.topology}, unless another member is not healthy`, async () => {
      await using site = await DrillSite.start([router], place);
      const { cluster, context } = site.connected;
      const drill = () => drillNode(cluster, place.name, { ...options, reboot: true }, context);
      const setMember = (ready: string): void => {
        const member = pod(`etcd-${place.other}`, 'openshift-etcd', { nodeName: place.other }, `Node/${place.other}`);
        const status = { phase: 'Running', conditions: [{ type: 'Ready', status: ready }] };
        site.server.put({ ...member, status });
      };
      setMember('False');
      const { message } = await failureOf(drill(), 'not-ready');
      expect(message).to.equal(`the control plane is not healthy: ${place.other}`);
      expect(await site.traces()).to.deep.equal([]);
      setMember('True');
      const { result, pods, asked } = await drill();
      expect(result).to.equal('passed');
      expect(pods.map(({ name }) => name)).to.include.members([`agent-${place.name}`, 'router-1']);
      expect(asked.map(({ image }) => image)).to.include(router);
      expect(site.server.find('v1', 'Pod', 'router-1-again', 'openshift-ingress')?.['spec']).to.include({
        nodeName: place.other,
      });
      await site.until(async () => (await site.traces()).length === 0);
      expect(site.denied).to.deep.equal([]);
    });
});
