import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import type { StoredObject } from '../../lib/cluster/objects/storedObject.ts';
import { drillNode, endDrill, listPool } from '../../lib/drill/drill.ts';
import { claimNode } from '../../lib/drill/releaseNode.ts';
import { drillTraces, requestsFile } from '../../lib/node/runtime/drillRegistry.ts';
import { lastDrillAnnotation, runningDrillAnnotation } from '../../lib/readiness/preflight/drillRecord.ts';
import { ScriptedNode } from '../fakes/cluster/scriptedNode.ts';
import { furnish, pod } from '../fakes/cluster/site.ts';
import type { ApiObject } from '../fakes/kubernetes/apiObjects.ts';
import type { Json } from '../fakes/kubernetes/apiPatch.ts';
import { startCluster, type StartedCluster } from '../support/cluster.ts';
import { failureOf } from '../support/program/failure.ts';

const name = 'worker-0';
const digest = `sha256:${'a'.repeat(64)}`;
const options = { reboot: false, single: false, timeout: 10_000, interval: 5 };

/** Waits until a condition is true, and not longer than a drill. */
async function until(condition: () => boolean): Promise<void> {
  const end = Date.now() + options.timeout;
  while (!condition()) {
    if (Date.now() > end) throw new Error('it does not become true');
    await sleep(5);
  }
}

/** A pod as its kubelet reports it, with the ID of its container. */
const running = (object: StoredObject, containerID: string, isReady = true): StoredObject => ({
  ...object,
  metadata: { uid: object.metadata.name, labels: { app: 'x' }, ...object.metadata },
  status: {
    phase: 'Running',
    conditions: [{ type: 'Ready', status: isReady ? 'True' : 'False' }],
    containerStatuses: [
      isReady
        ? { name: 'main', containerID, state: { running: {} } }
        : { name: 'main', state: { waiting: { reason: 'ErrImagePull', message: 'no such host' } } },
    ],
  },
});
const router = (nodeName: string, own = 'router-1'): StoredObject =>
  pod(
    own,
    'openshift-ingress',
    { nodeName, containers: [{ name: 'main', image: `quay.io/site/router@${digest}` }] },
    'ReplicaSet/router',
  );
const dns = pod('dns-1', 'openshift-dns', {}, 'DaemonSet/dns');

describe('drills', () => {
  let connected: StartedCluster;
  let node: ScriptedNode;

  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.19.3' });
    furnish(connected.server);
    node = await ScriptedNode.start(connected.server, name);
    connected.server.put(running(dns, 'cri-o://1'));
    connected.server.put(running(router(name), 'cri-o://2'));
  });
  afterEach(async () => {
    await node.close();
    await connected.close();
  });

  const drill = (more: Partial<typeof options> = {}, signal = connected.context.signal) =>
    drillNode(connected.cluster.within(signal), name, { ...options, ...more }, { ...connected.context, signal });
  const object = (): ApiObject => connected.server.find('v1', 'Node', name)!;
  const annotations = (): Json => (object().metadata as { annotations?: Json }).annotations ?? {};
  const record = (): Json => JSON.parse(String(annotations()[lastDrillAnnotation])) as Json;
  const isCordoned = (): boolean => (object()['spec'] as { unschedulable?: boolean }).unschedulable === true;
  const events = () => {
    const kind = connected.server.kinds.find((known) => known.kind === 'Event');
    return kind ? connected.server.objects.list(kind, '') : [];
  };
  const expectClean = (): void => {
    expect(annotations()).not.to.have.property(runningDrillAnnotation);
    expect(isCordoned()).to.equal(false);
    expect(node.has('drill')).to.equal(false);
    expect(drillTraces.filter((path) => existsSync(node.path(path)))).to.deep.equal([]);
  };

  describe('drillNode', () => {
    it('passes if the container runtime restarts, and all pods run', async () => {
      const request = { time: '2026-11-22T10:00:00Z', image: `quay.io/site/router@${digest}`, client: 'cri-o/1.33' };
      const started = drill();
      await until(() => node.has('drill'));
      await writeFile(node.path(requestsFile), `${JSON.stringify(request)}\n`);
      const { result, reboot, version, pods, asked, message } = await started;
      expect({ result, reboot, version, message }).to.deep.equal({
        result: 'passed',
        reboot: false,
        version: '4.19.3',
        message: undefined,
      });
      expect(pods.map((each) => each.name)).to.have.members(['dns-1', 'router-1']);
      expect(asked.map(({ image, pods: users }) => [image, users.map((each) => each.name)])).to.deep.equal([
        [request.image, ['router-1']],
      ]);
      expectClean();
    });

    it('records its end in the Node object, and in an event', async () => {
      await drill();
      expect(record()).to.include({
        result: 'passed',
        reboot: false,
        version: '4.19.3',
        pods: 2,
        missing: 0,
        images: 0,
      });
      expect(events().map(({ reason, type, message }) => ({ reason, type, message }))).to.deep.equal([
        {
          reason: 'DrillPassed',
          type: 'Normal',
          message:
            '2 of 2 pods ran again after a restart of the container runtime without a registry; 0 images were ' +
            'asked for',
        },
      ]);
    });

    it('marks the node while it runs', async () => {
      const started = drill();
      await until(() => runningDrillAnnotation in annotations());
      const mark = JSON.parse(String(annotations()[runningDrillAnnotation])) as Json;
      expect(mark).to.include({ reboot: false, cordoned: false });
      // The time for draining, for the restart, and for everything else.
      expect(Date.parse(String(mark['until'])) - Date.parse(String(mark['started']))).to.equal(320_000);
      await started;
    });

    it('fails if a pod does not run again, and names its reason', async () => {
      const started = drill({ timeout: 300 });
      await until(() => node.has('drill'));
      connected.server.put(running(router(name), '', false));
      const { result, message, pods } = await started;
      expect([result, message]).to.deep.equal(['failed', '1 pod does not run again after 0 s']);
      expect(pods.find((each) => each.name === 'router-1')).to.deep.include({
        seconds: undefined,
        message: 'container main: ErrImagePull: no such host',
      });
      expect(record()).to.include({ result: 'failed', missing: 1, message });
      expect(events()[0]).to.include({ reason: 'DrillFailed', type: 'Warning' });
      expectClean();
    });

    it('fails if the container runtime does not restart', async () => {
      await node.break('stuck');
      const { result, message } = await drill({ timeout: 100 });
      expect([result, message]).to.deep.equal(['failed', 'the container runtime did not come back within 0 s']);
      expectClean();
    });

    it('records that it was interrupted, and leaves nothing behind', async () => {
      await node.break('stuck');
      const stop = new AbortController();
      const started = drill({}, stop.signal);
      await until(() => runningDrillAnnotation in annotations());
      stop.abort();
      await failureOf(started, 'interrupted');
      expect(record()).to.include({ result: 'interrupted', reboot: false });
      expectClean();
    });

    it('changes nothing beside another drill that the Node object does not show', async () => {
      const first = drill();
      await until(() => node.has('drill'));
      await first;
      const before = annotations();
      await writeFile(node.path('../state/drill'), '');
      await failureOf(drill(), 'busy');
      expect(annotations()).to.deep.equal(before);
      expect(node.has('drill')).to.equal(true);
    });

    it('leaves nothing behind if the node cannot start it', async () => {
      await node.break('short');
      await failureOf(drill(), 'command-failed');
      expectClean();
      expect(annotations()).to.deep.equal({});
    });

    it('changes nothing if the user lacks a right', async () => {
      await using other = await startCluster({
        openshift: '4.19.3',
        tokens: new Map([['t', 'bob']]),
        allow: ({ resource }) => resource !== 'pods/exec',
      });
      furnish(other.server);
      const denied = drillNode(other.cluster, name, options, other.context);
      expect((await failureOf(denied, 'denied')).message).to.contain('create pods --subresource=exec');
      expect(node.has('drill')).to.equal(false);
    });

    /** Boots the node as its kubelet reports it, and moves its evicted pods to another node. */
    const reboot = async (): Promise<void> => {
      await until(() => connected.server.find('v1', 'Pod', 'router-1', 'openshift-ingress') === undefined);
      expect(isCordoned()).to.equal(true);
      connected.server.put(running(router('worker-1', 'router-2'), 'cri-o://3'));
      await until(() => node.has('rebooted'));
      connected.server.put(running(dns, 'cri-o://4'));
      const { status } = object() as { status?: { nodeInfo: Json } };
      connected.server.put({ ...object(), status: { ...status, nodeInfo: { ...status?.nodeInfo, bootID: 'second' } } });
    };

    it('drains the node before it reboots, and uncordons it', async () => {
      const [{ result, pods }] = await Promise.all([drill({ reboot: true }), reboot()]);
      expect(result).to.equal('passed');
      expect(pods.map(({ name: own, seconds }) => [own, seconds === undefined])).to.have.deep.members([
        ['dns-1', false],
        ['router-1', false],
      ]);
      expect(record()).to.include({ result: 'passed', reboot: true });
      expectClean();
    });

    it('does not reboot a node that a pod does not leave', async () => {
      connected.server.put({
        apiVersion: 'policy/v1',
        kind: 'PodDisruptionBudget',
        metadata: { name: 'router', namespace: 'openshift-ingress' },
        spec: { selector: { matchLabels: { app: 'x' } } },
        status: { disruptionsAllowed: 0 },
      });
      await failureOf(drill({ reboot: true }), 'not-ready');
      expect(node.has('rebooted')).to.equal(false);
      const denied = connected.server.fault(/\/eviction$/, { answer: { status: 429, body: '' } });
      const budgets = connected.server.kinds.find(({ kind }) => kind === 'PodDisruptionBudget');
      if (budgets)
        connected.server.objects.delete({ kind: budgets, namespace: 'openshift-ingress', name: 'router' }, {}, false);
      const { result, message } = await drill({ reboot: true, timeout: 200 });
      expect(denied.hits).to.be.greaterThan(0);
      expect(result).to.equal('failed');
      expect(message).to.match(/^these pods did not leave the node: openshift-ingress\/router-1/);
      expect(node.has('rebooted')).to.equal(false);
      expectClean();
    });
  });

  describe('endDrill', () => {
    it('removes a drill from the node, and records that it was interrupted', async () => {
      const marks = { started: '2026-11-22T10:00:00Z', until: '2026-11-22T11:00:00Z', reboot: true, cordoned: true };
      await claimNode(connected.cluster, name, marks);
      expect(isCordoned()).to.equal(true);
      await writeFile(node.path('../state/drill'), '');
      await endDrill(connected.cluster, name, { timeout: 1000 }, connected.context);
      expect(record()).to.include({ result: 'interrupted', started: marks.started, reboot: true });
      expectClean();
    });

    it('changes no Node object without a drill', async () => {
      await endDrill(connected.cluster, name, { timeout: 1000 }, connected.context);
      expect(annotations()).to.deep.equal({});
    });

    it('leaves a node cordoned that was cordoned before', async () => {
      connected.server.put({ ...object(), spec: { ...(object()['spec'] as object), unschedulable: true } });
      const marks = { started: '2026-11-22T10:00:00Z', until: '2026-11-22T11:00:00Z', reboot: false, cordoned: false };
      await claimNode(connected.cluster, name, marks);
      await endDrill(connected.cluster, name, { timeout: 1000 }, connected.context);
      expect(isCordoned()).to.equal(true);
    });
  });

  describe('listPool', () => {
    it('lists the nodes of a pool by its role, or by its selector', async () => {
      expect(await listPool(connected.cluster, 'worker')).to.deep.equal(['worker-0', 'worker-1']);
      connected.server.put({
        apiVersion: 'machineconfiguration.openshift.io/v1',
        kind: 'MachineConfigPool',
        metadata: { name: 'infra' },
        spec: { nodeSelector: { matchLabels: { site: 'edge' } } },
      });
      expect((await failureOf(listPool(connected.cluster, 'infra'), 'not-found')).message).to.equal(
        'the pool infra has no nodes',
      );
      const { metadata } = object();
      const labels = { ...(metadata as { labels?: Json }).labels, site: 'edge' };
      connected.server.put({ ...object(), metadata: { ...metadata, labels } });
      expect(await listPool(connected.cluster, 'infra')).to.deep.equal(['worker-0']);
    });

    it('names a pool that the cluster lacks', async () => {
      const { message } = await failureOf(listPool(connected.cluster, 'other'), 'not-found');
      expect(message).to.equal('there is no pool other');
    });
  });
});
