import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster } from '../../../lib/cluster/client.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import type { Context } from '../../../lib/context.ts';
import { examineFiles, type FoundBundle } from '../../../lib/node/media/medium.ts';
import { AgentLoop } from '../../../lib/update/agent/agentLoop.ts';
import type { AgentTools } from '../../../lib/update/agent/agentNode.ts';
import { AgentPeers, connectToPeers } from '../../../lib/update/agent/agentPeers.ts';
import { AgentServer } from '../../../lib/update/agent/agentServer.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import type { BackupReport } from '../../../lib/update/record/nodeReport.ts';
import { phaseOf, upgradeBundleKind, type UpgradeBundle } from '../../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { connectTo } from '../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { makeKubeconfigFolder } from '../../support/kubeconfig.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { startApiServer, type TestApiServer } from '../kubernetes/apiServer.ts';
import type { ControllerCost } from './fleetController.ts';
import { startLyingPeer, type Lie, type LyingPeer } from './lyingPeer.ts';
import { node as makeNode } from './site.ts';
import { makeBackup, UpdatingSite } from './updatingSite.ts';

const token = '0123456789abcdef0123';
/** The node with the USB drive. */
const source = 'master-0';

/** The times of a simulated rollout, in milliseconds. */
export interface FleetIntervals {
  /** The pause between two checks of the cluster by a node. */
  readonly interval: number;
  /** The time to send the bundle from node to node, because a real bundle is large. */
  readonly sending: number;
  /** The size of each layer in bytes. */
  readonly layerSize?: number;
  /** How many workers take ten times as long to send it; default none. */
  readonly slow?: number;
  /** How long to count requests after the update. */
  readonly rest?: number;
  /**
   * What the last worker tells the nodes that ask it for the bundle, one after the other. It offers it from the start.
   */
  readonly lies?: readonly Lie[];
}

/** The requests to the API server in a phase, and what the controller cost in it. */
export interface PhaseMeasure {
  /** Those of each node. */
  readonly requests: number;
  /** Those of the controller. */
  readonly controller: number;
  /** The CPU time of the controller in seconds, and the peak of its memory so far in bytes. */
  readonly cost: ControllerCost;
}

/** The measurements of a rollout. */
export interface FleetMeasure {
  readonly nodes: number;
  readonly seconds: number;
  readonly phases: ReadonlyMap<string, PhaseMeasure>;
  /** Bytes that the API server sent and received for each node. */
  readonly bytes: number;
  /** The size of the bundle in bytes, and how many times the node with the USB drive sent all of it. */
  readonly bundle: { readonly size: number; readonly sentBySource: number };
  /** The number of hops from the source to the last node; 1 is from the source itself. */
  readonly rounds: number;
  /** The seconds from the first to the last response with the bundle. */
  readonly spread: number;
  /** The requests that were answered with a lie. */
  readonly told: number;
  /** The size of the record in the API server at the end, in bytes; etcd takes 1.5 MiB. */
  readonly record: number;
  /** Requests to the API server in `rest`, of all nodes and the controller, by method and path. */
  readonly atRest: ReadonlyMap<string, number>;
}

/**
 * Measures an update of three or more nodes from a USB drive in one of them. The agents fetch and serve a real bundle
 * over HTTP and report to a real API, but have no image store.
 */
export async function measureFleet(count: number, intervals: FleetIntervals): Promise<FleetMeasure> {
  const made = await makeBundle({ version: '4.19.4', previous: ['4.19.3'], layerSize: intervals.layerSize ?? 50_000 });
  const folder = await makeFolder();
  // A bookmark for each change of other objects would reach the watches of all nodes. A real server sends one a minute.
  const api = await startApiServer({ openshift: '4.19.3', bookmarks: false });
  const site = new UpdatingSite(api);
  // Evaluating CEL rules would take this server longer than all other work.
  api.put(upgradeBundleDefinition({ rules: false }));
  const names = Array.from({ length: count }, (_, index) => (index === 0 ? source : `worker-${index - 1}`));
  for (const name of names) {
    site.silent.add(name);
    api.put(makeNode(name, name === source ? 'master' : 'worker'));
  }
  const connected = await connectTo(api, {}, 60_000);
  const context = makeContext();
  const fleet = new Fleet(made, { cluster: connected.cluster, folder, ...intervals }, context);
  try {
    await fleet.open(names);
    const { size, digest } = await readBundle(made);
    await fleet.startController(api);
    const measures = measurePhases(api, count, () => fleet.readControllerCost());
    const began = performance.now();
    const spec = { bundle: { digest }, hold: false };
    api.put({ ...upgradeBundleKind, metadata: { name: 'x' }, spec });
    const running = fleet.run();
    const phases = await measures;
    const seconds = (performance.now() - began) / 1000;
    const record = JSON.stringify(api.find(upgradeBundleKind.apiVersion, upgradeBundleKind.kind, 'x')).length;
    const atRest = await countAtRest(api, intervals.rest ?? 0);
    context.interrupt();
    await running;
    const bytes = api.requests.reduce((sum, { bytesSent, bytesReceived }) => sum + bytesSent + bytesReceived, 0);
    return {
      nodes: count,
      seconds,
      bytes: bytes / count,
      rounds: fleet.rounds,
      told: fleet.told,
      record,
      atRest,
      phases,
      spread: fleet.spread,
      bundle: { size, sentBySource: fleet.sentBySource },
    };
  } finally {
    context.interrupt();
    await fleet.close();
    site.stop();
    await connected.close();
    await api.stop();
    await removeFolder(folder);
    await made.remove();
  }
}

async function readBundle({ path }: TestBundle) {
  const content = await readFile(path);
  return { size: content.length, digest: digestOf(content) };
}

/** Measures each phase. Returns the measures after the last request. */
async function measurePhases(
  api: TestApiServer,
  nodes: number,
  readCost: () => Promise<ControllerCost>,
): Promise<Map<string, PhaseMeasure>> {
  const isOfController = ({ headers }: TestApiServer['requests'][number]): boolean =>
    headers['user-agent'] === 'controller';
  const ends: { readonly phase: string; readonly end: number; readonly cost: Promise<ControllerCost> }[] = [];
  let phase = 'Detected';
  const began = { end: api.requests.length, cost: await readCost() };
  await new Promise<void>((resolve) => {
    api.objects.on('change', ({ kind, object }) => {
      if (kind.kind !== upgradeBundleKind.kind) return;
      const now = phaseOf(object as UpgradeBundle);
      if (now === phase) return;
      ends.push({ phase, end: api.requests.length, cost: readCost() });
      phase = now;
      if (now === 'Completed') resolve();
    });
  });
  const measures = new Map<string, PhaseMeasure>();
  let before = began;
  for (const { phase: name, end, cost: reading } of ends) {
    const { cpu, memory } = await reading;
    const requests = api.requests.slice(before.end, end);
    const controller = requests.filter(isOfController).length;
    const own = { requests: (requests.length - controller) / nodes, controller };
    measures.set(name, { ...own, cost: { cpu: cpu - before.cost.cpu, memory } });
    before = { end, cost: { cpu, memory } };
  }
  return measures;
}

/** Counts requests for a time, in milliseconds. */
async function countAtRest(api: TestApiServer, time: number): Promise<Map<string, number>> {
  const before = api.requests.length;
  await sleep(time);
  const counts = new Map<string, number>();
  for (const { method, path, query } of api.requests.slice(before)) {
    const name = `${query.has('watch') ? 'WATCH' : method} ${path}`;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}

interface FleetSettings extends FleetIntervals {
  readonly cluster: Cluster;
  readonly folder: string;
}

/** The agents of all nodes. */
class Fleet {
  sentBySource = 0;
  #liar: LyingPeer | undefined;
  readonly #made: TestBundle;
  readonly #settings: FleetSettings;
  readonly #context: Context;
  readonly #round = new Map([[source, 0]]);
  /** The times of the first and the last response with the bundle. */
  readonly #sent = { first: Infinity, last: 0 };
  #controller: ChildProcess | undefined;
  readonly #loops: AgentLoop[] = [];
  readonly #closing: (() => unknown)[] = [];

  constructor(made: TestBundle, settings: FleetSettings, context: Context) {
    this.#made = made;
    this.#settings = settings;
    this.#context = context;
  }

  /** The number of hops to the last node. */
  get rounds(): number {
    return Math.max(...this.#round.values());
  }

  /** The seconds from the first to the last response with the bundle. */
  get spread(): number {
    return (this.#sent.last - this.#sent.first) / 1000;
  }

  /** The number of lies. */
  get told(): number {
    return this.#liar?.requests ?? 0;
  }

  async open(names: readonly string[]): Promise<void> {
    const { folder, path } = this.#made;
    const file = path.split('/').at(-1) ?? '';
    const { bundles } = await examineFiles(folder, [file], { device: 'drive' }, this.#context);
    const { lies } = this.#settings;
    const liar = lies && names.at(-1);
    if (lies) this.#liar = await startLyingPeer(token, await readFile(path), lies);
    this.#closing.push(() => this.#liar?.close());
    await Promise.all(names.map((name) => this.#openNode(name, [source, liar].includes(name) ? bundles : [], liar)));
  }

  /** Starts the controller of the node with the USB drive, which is of the control plane. */
  async startController(api: TestApiServer): Promise<void> {
    const { folder, interval } = this.#settings;
    const kubeconfigs = await makeKubeconfigFolder();
    const { key, keyFile } = this.#made;
    const options = [
      ...[await kubeconfigs.write({ cluster: { server: api.url } }), source, String(interval)],
      ...[join(folder, source), keyFile, key.fingerprint],
    ];
    const child = fork(new URL('./fleetController.ts', import.meta.url), options);
    this.#controller = child;
    this.#closing.push(async () => {
      child.kill('SIGKILL');
      await kubeconfigs.remove();
    });
    await this.readControllerCost();
  }

  /** Returns what the controller has cost since its start. */
  async readControllerCost(): Promise<ControllerCost> {
    if (!this.#controller) throw new Error('there is no controller');
    this.#controller.send('cost');
    const [cost] = (await once(this.#controller, 'message')) as [ControllerCost];
    return cost;
  }

  async run(): Promise<void> {
    await Promise.all([...this.#loops].map((loop) => loop.run()));
  }

  async close(): Promise<void> {
    for (const close of this.#closing.toReversed()) await close();
  }

  async #openNode(name: string, found: readonly FoundBundle[], liar: string | undefined): Promise<void> {
    const { cluster, folder, interval, sending, slow = 0 } = this.#settings;
    const onResponse = ({ method, path, status, client }: Parameters<NonNullable<OnResponse>>[0]): void => {
      if (method !== 'GET' || !path.endsWith('.tar') || status >= 300) return;
      if (name === source) this.sentBySource += 1;
      this.#round.set(client, (this.#round.get(name) ?? 0) + 1);
      this.#sent.first = Math.min(this.#sent.first, performance.now());
      this.#sent.last = performance.now();
    };
    const server = await AgentServer.open({ host: '127.0.0.1', port: 0, token, onResponse }, this.#context);
    const isSlow = name !== source && Number(name.split('-').at(-1)) < slow;
    slowDown(server, isSlow ? 10 * sending : sending);
    if (name === liar) Object.defineProperty(server, 'origin', { value: this.#liar?.origin });
    const connections = connectToPeers(token, name);
    const own = join(folder, name);
    await mkdir(own);
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    // Each real node has its own processors to check signatures with. These nodes share one, and
    // only the controller needs the signatures.
    const { key, keyFile } = this.#made;
    const known = name === source || name === liar ? { keyrings: [keyFile], fingerprints: [key.fingerprint] } : none;
    const trust = { ...known, allowUnsigned: name !== source && name !== liar, fetchFile };
    const cache = new BundleCache(own, trust);
    const tools: AgentTools = {
      cache,
      images: imagesOfNobody(),
      peers: new AgentPeers(cluster, name, connections),
      server,
      backup: {
        advance: reportBackup,
        measure: () => Promise.resolve(2 ** 26),
        ended: new AbortController().signal,
        close: () => Promise.resolve(),
      },
    };
    const wait = (timeout: number, signal: AbortSignal): Promise<void> =>
      sleep(timeout, undefined, { signal }).catch(() => undefined);
    const media = { find: () => Promise.resolve(found), wait, unusable: new Map<never, never>() };
    const loop = new AgentLoop(cluster, { node: name, media, tools, interval }, this.#context);
    this.#loops.push(loop);
    this.#closing.push(
      () => {
        connections.close();
      },
      () => loop.close(),
      () => server.close(),
    );
  }
}

/** Reports a backup as soon as the controller asks for it. */
function reportBackup({ status }: UpgradeBundle, node: string): Promise<BackupReport | undefined> {
  return Promise.resolve(status?.backupNode === node ? { made: makeBackup() } : undefined);
}

const none = { keyrings: [], fingerprints: [] };

/** The number of parts in which a node sends a bundle. */
const pieces = 20;

/** Makes a node send a bundle slowly. */
function slowDown(server: AgentServer, time: number): void {
  const offer = server.offer.bind(server);
  server.offer = ({ size, chunks }, digest) => {
    const send = async function* (start: number, length: number) {
      // In parts, as a network does: each request takes its share of the time.
      const share = Math.max(1, Math.ceil((pieces * length) / size));
      for (let part = 0; part < share; part += 1) {
        await sleep(time / pieces);
        const at = Math.floor((length * part) / share);
        if (chunks) yield* chunks(start + at, Math.floor((length * (part + 1)) / share) - at);
      }
    };
    offer({ size, ...(chunks && { chunks: send }) }, digest);
  };
}

type OnResponse = Parameters<typeof AgentServer.open>[0]['onResponse'];

/** The images of a node without a store. Loading takes a moment. */
function imagesOfNobody(): AgentTools['images'] {
  let loaded = 0;
  return {
    measureDisks: () => Promise.resolve({ free: 200 * 2 ** 30 }),
    stayAboveFloor: (_, context, work) => work(context, 0),
    count: ({ metadata }) =>
      Promise.resolve({ loaded: loaded * metadata.images.length, total: metadata.images.length }),
    findBase: () => Promise.resolve({ base: undefined, lack: undefined }),
    load: async () => {
      await sleep(100);
      loaded = 1;
    },
    pull: () => Promise.resolve(false),
    describeRefused: () => Promise.resolve(undefined),
    hold: () => Promise.resolve(),
    settleHold: () => Promise.resolve(),
    release: () => Promise.resolve(),
    pin: () => Promise.resolve(),
    pinnedReleases: () => Promise.resolve([]),
    unpin: () => Promise.resolve(),
  };
}
