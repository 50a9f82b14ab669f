import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { AgentHoldings } from '../../lib/cluster/agentHoldings.ts';
import { AgentLoop } from '../../lib/cluster/agentLoop.ts';
import type { AgentTools } from '../../lib/cluster/agentNode.ts';
import { AgentPeers } from '../../lib/cluster/agentPeers.ts';
import { AgentServer } from '../../lib/cluster/agentServer.ts';
import { controlRollout } from '../../lib/cluster/rollout.ts';
import type { UpgradeBundle } from '../../lib/cluster/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../lib/cluster/upgradeBundleDefinition.ts';
import { examineFiles, type FoundBundle } from '../../lib/node/medium.ts';
import { digestOf } from '../../lib/oci/digest.ts';
import { Certificates } from '../../lib/store/certificates.ts';
import { Connections } from '../../lib/store/connections.ts';
import { startApiServer } from '../support/apiServer.ts';
import { makeBundle } from '../support/bundle.ts';
import { connectTo } from '../support/cluster.ts';
import { makeContext } from '../support/context.ts';
import { makeFolder, removeFolder } from '../support/mirrorDirectory.ts';
import { node as makeNode } from '../support/site.ts';
import { UpdatingSite } from '../support/updatingSite.ts';

// How a rollout grows with the cluster: nodes that fetch and serve a real bundle over HTTP, and report to a real API, but have no image store.

const namespace = 'oc-upgrade-bundle';
const token = '0123456789abcdef0123';
const apiVersion = 'upgrade-bundle.openshift.io/v1alpha1';

/** What one rollout took. */
interface Measured {
  readonly nodes: number;
  readonly seconds: number;
  /** Requests to the API server for each node, by the phase in which they were sent. */
  readonly requests: Readonly<Record<string, number>>;
  /** How often the node with the stick sent the whole bundle. */
  readonly sentBySource: number;
  /** From how far away the last node got it: 1 is from the source. */
  readonly rounds: number;
}

async function measure(count: number, interval: number): Promise<Measured> {
  const made = await makeBundle({ version: '4.19.4', previous: ['4.19.3'], layerSize: 50_000 });
  const digest = digestOf(await readFile(made.path));
  const folder = await makeFolder();
  const api = await startApiServer({ openshift: '4.19.3' });
  const site = new UpdatingSite(api);
  // To evaluate rules in CEL would take this server longer than everything else.
  api.put(upgradeBundleDefinition({ rules: false }));
  const names = Array.from({ length: count }, (_, index) => (index === 0 ? 'master-0' : `worker-${String(index - 1)}`));
  for (const name of names) {
    site.silent.add(name);
    api.put(makeNode(name, name === 'master-0' ? 'master' : 'worker'));
  }
  if (count < 3) throw new Error('a site has three nodes at least');
  const connected = await connectTo(api, {}, 60_000);
  const context = makeContext();
  const closing: (() => unknown)[] = [];
  const { bundles: found } = await examineFiles(
    made.folder,
    [made.path.split('/').at(-1) ?? ''],
    { device: 'stick' },
    context,
  );
  const round = new Map([['master-0', 0]]);
  let sentBySource = 0;
  const loops = await Promise.all(
    names.map(async (name) => {
      const server = await AgentServer.open(
        {
          ...{ host: '127.0.0.1', port: 0, token },
          onAnswer: ({ method, path, status, client }) => {
            if (method !== 'GET' || !path.endsWith('.tar') || status >= 300) return;
            if (name === 'master-0') sentBySource += 1;
            round.set(client, (round.get(name) ?? 0) + 1);
          },
        },
        context,
      );
      api.put({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: `agent-${name}`, namespace, labels: { 'app.kubernetes.io/name': namespace } },
        spec: { nodeName: name, containers: [{ name: 'agent', ports: [{ containerPort: server.port }] }] },
        status: { podIP: '127.0.0.1' },
      });
      const connections = new Connections({
        certificates: new Certificates({ insecure: false, folders: [] }),
        userAgent: name,
      });
      const own = join(folder, name);
      await mkdir(own);
      const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
      const trust = { keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false, fetchFile };
      const tools: AgentTools = {
        holdings: new AgentHoldings(own, trust),
        images: imagesOfNobody(),
        peers: new AgentPeers(connected.cluster, name, token, connections),
        server,
      };
      const look = (): Promise<readonly FoundBundle[]> => Promise.resolve(name === 'master-0' ? found : []);
      const wait = (patience: number, signal: AbortSignal): Promise<void> =>
        sleep(patience, undefined, { signal }).catch(() => undefined);
      const loop = new AgentLoop(connected.cluster, { node: name, media: { look, wait }, tools, interval }, context);
      closing.push(
        () => {
          connections.close();
        },
        () => loop.close(),
        () => server.close(),
      );
      return { name, loop };
    }),
  );
  const counts: Record<string, number> = {};
  let [phase, before] = ['Detected', 0];
  const next = (now: string): void => {
    counts[phase] = (counts[phase] ?? 0) + api.requests.length - before;
    [phase, before] = [now, api.requests.length];
  };
  let end: () => void = () => undefined;
  const completed = new Promise<void>((resolve) => (end = resolve));
  api.objects.on('change', ({ kind, object }) => {
    const { status } = object as unknown as UpgradeBundle;
    if (kind.kind !== 'UpgradeBundle' || !status?.phase || status.phase === phase) return;
    next(status.phase);
    if (status.phase === 'Completed') end();
  });
  const began = performance.now();
  const bundle = { bundle: { digest }, hold: false, store: 'auto' };
  api.put({ apiVersion, kind: 'UpgradeBundle', metadata: { name: 'x' }, spec: bundle });
  const running = loops.flatMap(({ name, loop }) => [
    loop.run(),
    controlRollout(
      connected.cluster,
      { identity: name, namespace, readBundle: (wanted) => loop.readBundle(wanted), pace: interval },
      context,
    ),
  ]);
  await completed;
  const seconds = (performance.now() - began) / 1000;
  context.interrupt();
  await Promise.all(running);
  for (const close of closing.toReversed()) await close();
  site.stop();
  await connected.close();
  await api.stop();
  await removeFolder(folder);
  await made.remove();
  const requests = Object.fromEntries(Object.entries(counts).map(([name, sum]) => [name, sum / count]));
  return { nodes: count, seconds, requests, sentBySource, rounds: Math.max(...round.values()) };
}

/** A node’s images without a store: loading takes a moment. */
function imagesOfNobody(): AgentTools['images'] {
  let loaded = 0;
  return {
    measureFree: () => Promise.resolve(200 * 2 ** 30),
    stayAboveFloor: (_, context, work) => work(context),
    count: ({ metadata }) =>
      Promise.resolve({ loaded: loaded * metadata.images.length, total: metadata.images.length }),
    load: async () => {
      await sleep(100);
      loaded = 1;
    },
    pin: () => Promise.resolve(),
  };
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { interval: { type: 'string', default: '15' } },
});
const sizes = positionals.length > 0 ? positionals.map(Number) : [3, 50, 500];
for (const count of sizes) {
  const { nodes, seconds, requests, sentBySource, rounds } = await measure(count, Number(values.interval) * 1000);
  const phases = Object.entries(requests).map(([name, each]) => `${name} ${each.toFixed(1)}`);
  console.log(
    `${String(nodes)} nodes: ${seconds.toFixed(0)} s; the source sent the bundle ${String(sentBySource)} times; ${String(rounds)} rounds`,
  );
  console.log(`  requests for each node: ${phases.join(', ')}`);
}
