import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster } from '#cluster/client';
import { listServed, type StoredObject } from '#cluster/objects';
import type { Written } from '#config/manifest';
import { parseReference } from '#content/oci';
import { checkInterrupted, type Context, awaitDone, type WaitOptions } from '#context';
import { isPluginError, messageOf, PluginError, nameSome } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf, textsOf } from '#fields';
import { readContainers } from '#readiness/lint';
import { readNode, isPoolNode } from '#readiness/nodes';
import {
  topologyOf,
  surveyedKinds,
  type DrillOutcome,
  type RunningDrill,
  type DrillRecord,
} from '#readiness/preflight';
import {
  checkDrain,
  checkNodes,
  checkPreflight,
  checkDrillRights,
  type DrillMode,
  DrillReport,
  type RequestedImage,
  type PodResult,
} from './drillChecks.ts';
import { readDrillPods, type DrillPod } from './drillPods.ts';
import { NodeShell } from './nodeShell.ts';
import { claimNode, nodeReference, releaseNode, uncordon } from './releaseNode.ts';

/** Options of a drill. The timeout is for draining a node, and again for its restart. */
interface DrillOptions extends DrillMode, Required<WaitOptions> {
  /** The time after which the node ends the drill by itself, in milliseconds; by default enough for all parts. */
  readonly limit?: number;
}

/** The result of a drill of one node. */
export interface NodeDrill {
  readonly node: string;
  readonly result: DrillOutcome;
  readonly reboot: boolean;
  readonly version: string;
  /** In ISO 8601. */
  readonly started: string;
  readonly ended: string;
  /** The time from the restart until the last pod ran again, in seconds. */
  readonly seconds: number;
  /** Why it failed, if not only because of pods. */
  readonly message?: string;
  readonly pods: readonly PodResult[];
  readonly asked: readonly RequestedImage[];
}

/** The time for everything but draining and restarting, in milliseconds. */
const reserve = 5 * 60_000;

/** The time for removing a drill after an interruption or a failure, in milliseconds. */
const farewell = 60_000;

/**
 * Shows whether a node restarts while every registry answers nothing: restarts its container runtime or, with
 * `reboot`, drains and reboots it. Waits until all pods that ran there run again. Removes everything from the node
 * afterwards, and records the result in the cluster. Throws the errors of the checks before the first change,
 * `interrupted`, and the errors of the cluster.
 */
export async function drillNode(
  cluster: Cluster,
  name: string,
  options: DrillOptions,
  context: Context,
): Promise<NodeDrill> {
  const before = await checkBefore(cluster, name, options, context);
  const shell = new NodeShell(cluster, name);
  await shell.readRuntime();
  const { reboot, timeout, limit = 2 * timeout + reserve } = options;
  const started = new Date();
  const until = new Date(started.getTime() + limit);
  const drained = reboot && before.nodes > 1;
  const drill: RunningDrill = { started: started.toISOString(), until: until.toISOString(), reboot, cordoned: drained };
  const report = new DrillReport(before.pods);
  let result: DrillOutcome = 'interrupted';
  let message: string | undefined;
  const end = (): Promise<void> =>
    finish(cluster, shell, { result, message, report, version: before.version, drill }, context);
  const plan = { node: name, until: Math.floor(until.getTime() / 1000), registries: before.registries };
  await shell.begin(plan).catch(async (error: unknown) => {
    // An interrupted request may have reached the node.
    if (!isPluginError(error, 'busy')) await end();
    throw error;
  });
  try {
    // Only now, because the node undoes this if nothing else does.
    await claimNode(cluster, name, drill);
    context.log('info', `${name}: every registry answers nothing, until ${drill.until} at the latest`);
    if (drained) {
      context.log('info', `${name}: draining`);
      await evictPods(
        cluster,
        before.pods.filter((pod) => pod.evictable),
        options,
        context,
      );
    }
    await restart({ cluster, shell, options, bootId: before.bootId, report }, context);
    await awaitPods({ cluster, shell, options, report, drained }, context);
    result = 'passed';
  } catch (error) {
    if (isPluginError(error, 'interrupted')) throw error;
    result = 'failed';
    message = messageOf(error);
  } finally {
    // After an interruption too.
    await end();
  }
  const ended = new Date().toISOString();
  return {
    node: name,
    result,
    reboot,
    version: before.version,
    started: drill.started,
    ended,
    seconds: report.seconds,
    message,
    pods: report.results(),
    asked: report.asked,
  };
}

/** Ends a drill that was interrupted: removes everything from the node, and uncordons it if the drill cordoned it. */
export async function endDrill(cluster: Cluster, name: string, wait: WaitOptions, context: Context): Promise<void> {
  await new NodeShell(cluster, name).endWithin(wait, context);
  await releaseNode(cluster, name, ({ started, reboot }) => ({
    result: 'interrupted',
    started,
    ended: new Date().toISOString(),
    reboot,
  }));
}

async function checkBefore(cluster: Cluster, name: string, options: DrillOptions, context: Context) {
  await checkDrillRights(cluster, options);
  const [nodes, all] = await Promise.all([cluster.list('v1', 'Node'), cluster.list('v1', 'Pod')]);
  const infrastructures = await listServed(cluster, ...surveyedKinds.infrastructures);
  checkNodes(name, nodes, all, options, topologyOf(infrastructures));
  const version = await checkPreflight(cluster, context);
  const pods = readDrillPods(all, name);
  if (options.reboot && nodes.length > 1) checkDrain(pods, await cluster.list('policy/v1', 'PodDisruptionBudget'));
  const node = nodes.find(({ metadata }) => metadata.name === name);
  const { bootID } = fieldsAt(node, 'status', 'nodeInfo');
  return { version, pods, nodes: nodes.length, registries: listRegistries(nodes, all), bootId: textOf(bootID) };
}

/** Lists the registries of all images that pods run and that nodes have. */
function listRegistries(nodes: readonly StoredObject[], pods: readonly StoredObject[]): string[] {
  const images = [
    ...pods.flatMap(({ spec }) => readContainers(fieldsOf(spec)).map(({ image }) => image)),
    ...nodes.flatMap(({ status }) => listOf(fieldsOf(status)['images']).flatMap(({ names }) => textsOf(names))),
  ];
  const registries = images.flatMap((image) => {
    try {
      return [parseReference(image).registry];
    } catch {
      return [];
    }
  });
  return [...new Set(registries)].sort();
}

interface Restart {
  readonly cluster: Cluster;
  readonly shell: NodeShell;
  readonly options: DrillOptions;
  readonly bootId: string | undefined;
  readonly report: DrillReport;
}

/** Restarts the container runtime or the node, and waits until it works again. */
async function restart({ cluster, shell, options, bootId, report }: Restart, context: Context): Promise<void> {
  const { reboot, timeout, interval } = options;
  const former = await shell.readRuntime();
  report.begin();
  context.log('info', `${shell.node}: ${reboot ? 'rebooting' : 'restarting the container runtime'}`);
  await (reboot ? shell.reboot() : shell.restartRuntime());
  const what = reboot ? 'the node did not come back' : 'the container runtime did not come back';
  const overdue = new PluginError('not-ready', `${what} within ${Math.round(timeout / 1000)} s`, {
    settings: ['timeout'],
  });
  const isBack = async (): Promise<boolean> => {
    const node = await cluster.read(nodeReference(shell.node));
    const { bootID } = fieldsAt(node, 'status', 'nodeInfo');
    const isReady = (!reboot || bootID !== bootId) && node && readNode(node).ready;
    const runtime = isReady ? await shell.readRuntime() : '';
    return runtime !== '' && runtime !== '0' && (reboot || runtime !== former);
  };
  await sleep(interval, undefined, { signal: context.signal }).catch(() => undefined);
  await awaitDone(async () => ((await isBack().catch(passOver(context))) ? undefined : overdue), options, context);
}

/** Returns a handler that only logs errors, because the API of a single node is down too while it restarts. */
function passOver({ log, signal }: Context): (error: unknown) => undefined {
  return (error) => {
    checkInterrupted(signal);
    if (!isPluginError(error)) throw error;
    log('debug', error.message);
  };
}

interface Waiting {
  readonly cluster: Cluster;
  readonly shell: NodeShell;
  readonly options: DrillOptions;
  readonly report: DrillReport;
  readonly drained: boolean;
}

/** Waits until all pods run again. Throws `not-ready` after the timeout. */
async function awaitPods({ cluster, shell, options, report, drained }: Waiting, context: Context): Promise<void> {
  // After a restart of the container runtime alone, kubelets see the state of pods only some seconds later.
  if (!options.reboot) await sleep(5 * options.interval, undefined, context).catch(() => undefined);
  let uncordoned = !drained;
  const check = async (): Promise<void> => {
    // Pods that moved may come back now: they start without a registry too.
    if (!uncordoned) await cluster.patch(nodeReference(shell.node), uncordon);
    uncordoned = true;
    report.note(await cluster.list('v1', 'Pod'), shell.node, { reboot: options.reboot, drained });
    report.requests = await shell.readRequests();
  };
  await awaitDone(
    async () => {
      await check().catch(passOver(context));
      const { length } = report.missing;
      const words = length === 1 ? '1 pod does' : `${length} pods do`;
      const time = Math.round(options.timeout / 1000);
      return length === 0 ? undefined : new PluginError('not-ready', `${words} not run again after ${time} s`);
    },
    options,
    context,
  );
}

interface Ending {
  readonly result: DrillOutcome;
  readonly message: string | undefined;
  readonly report: DrillReport;
  readonly version: string;
  readonly drill: RunningDrill;
}

/** Removes the drill from the node, and records its end. Only logs what fails, because the node removes it too. */
async function finish(
  cluster: Cluster,
  shell: NodeShell,
  { result, message, report, version, drill }: Ending,
  context: Context,
): Promise<void> {
  const signal = AbortSignal.timeout(farewell);
  const last = cluster.detached(signal);
  const node = shell.over(last);
  const attempt = async (what: string, work: () => Promise<void>): Promise<void> => {
    await work().catch((error: unknown) => {
      context.log('warn', `${shell.node}: cannot ${what}: ${messageOf(error)}`);
    });
  };
  await attempt('read the requests', async () => {
    report.requests = await node.readRequests();
  });
  const record = {
    result,
    started: drill.started,
    ended: new Date().toISOString(),
    reboot: drill.reboot,
    version,
    pods: report.pods.length,
    missing: report.missing.length,
    images: report.asked.length,
    ...(message !== undefined && { message: message.slice(0, 500) }),
  };
  await attempt('record the drill', () => releaseNode(last, shell.node, () => record));
  // Last but one: until then the node undoes the rest if this process is killed.
  await attempt(`remove the drill from the node, which does it itself until ${drill.until}`, () =>
    node.endWithin({ timeout: farewell / 2, interval: 1000 }, { signal }),
  );
  await attempt('write an event', () => recordEvent(last, shell.node, record));
}

/** Creates an event about a drill of a node. Events of nodes are in `default`; the cluster deletes them after hours. */
async function recordEvent(cluster: Cluster, node: string, record: DrillRecord): Promise<void> {
  const { result, ended, reboot, pods = 0, missing = 0, images = 0, message } = record;
  const time = ended.replace(/\.\d+/, '');
  const how = reboot ? 'a reboot' : 'a restart of the container runtime';
  const words = `${pods - missing} of ${pods} pods ran again after ${how} without a registry; ${images} images were asked for`;
  const event: Written<'Event'> = {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { name: `${node.slice(0, 200)}.drill-${Date.parse(ended).toString(16)}`, namespace: 'default' },
    // As in the events of kubelets, the uid of a node is its name.
    involvedObject: { apiVersion: 'v1', kind: 'Node', name: node, uid: node },
    reason: `Drill${result.charAt(0).toUpperCase()}${result.slice(1)}`,
    message: (message === undefined ? words : `${message}; ${words}`).slice(0, 1000),
    type: result === 'passed' ? 'Normal' : 'Warning',
    firstTimestamp: time,
    lastTimestamp: time,
    count: 1,
    source: { component: 'oc-upgrade-bundle' },
    reportingComponent: 'oc-upgrade-bundle',
    reportingInstance: node,
  };
  await cluster.create(event);
}

/**
 * Evicts pods and waits until they are gone. A PodDisruptionBudget delays an eviction. Throws `not-ready` with the pods
 * that are left after the timeout.
 */
async function evictPods(
  cluster: Cluster,
  pods: readonly DrillPod[],
  options: WaitOptions,
  context: Context,
): Promise<void> {
  const asked = new Set<string>();
  const check = async (): Promise<PluginError | undefined> => {
    const present = new Set((await cluster.list('v1', 'Pod')).map(({ metadata }) => metadata.uid));
    const remainingPods = pods.filter(({ uid }) => present.has(uid));
    const reasons = await Promise.all(
      remainingPods.filter(({ uid }) => !asked.has(uid)).map((pod) => evict(cluster, pod, asked)),
    );
    const [first] = remainingPods;
    if (!first) return undefined;
    const why = reasons.find((reason) => reason !== undefined);
    const names = nameSome(remainingPods.map(({ namespace, name }) => `${namespace}/${name}`));
    const message = `these pods did not leave the node: ${names}${why === undefined ? '' : ` (${why})`}`;
    const hint =
      'See “oc get poddisruptionbudget -A” and “oc describe pod”. The drill changed nothing on the node that stays.';
    return new PluginError('not-ready', message, { hint, settings: ['timeout'] });
  };
  await awaitDone(check, options, context);
}

async function evict(
  cluster: Cluster,
  { namespace, name, uid }: DrillPod,
  asked: Set<string>,
): Promise<string | undefined> {
  try {
    await cluster.evict({ name, namespace, uid });
    asked.add(uid);
    return undefined;
  } catch (error) {
    if (isPluginError(error, 'rate-limited')) return error.message;
    throw error;
  }
}

/** Returns the nodes of a pool, sorted. Throws `not-found` if it has none. */
export async function listPool(cluster: Cluster, pool: string): Promise<string[]> {
  const apiVersion = 'machineconfiguration.openshift.io/v1';
  const object = await cluster.read({ apiVersion, kind: 'MachineConfigPool', metadata: { name: pool } });
  const { matchLabels = { [`node-role.kubernetes.io/${pool}`]: '' } } = fieldsAt(object, 'spec', 'nodeSelector');
  const labels = Object.entries(fieldsOf(matchLabels));
  const nodes = object ? (await cluster.list('v1', 'Node')).map(readNode) : [];
  const own = nodes.filter((node) => isPoolNode(node) && labels.every(([key, value]) => node.labels[key] === value));
  if (own.length > 0) return own.map(({ name }) => name).sort();
  throw new PluginError('not-found', object ? `the pool ${pool} has no nodes` : `there is no pool ${pool}`, {
    hint: 'See “oc get machineconfigpool” and “oc get nodes”.',
  });
}
