/** Installing and removing agents and the controller. */

import { randomBytes } from 'node:crypto';
import {
  type ApplyOptions,
  deleteObjects,
  applyObjects,
  type AppliedObject,
  listDenied,
  type AccessRequest,
} from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import { type ObjectReference, listServed } from '#cluster/objects';
import type { Written, KubernetesObject } from '#config/manifest';
import type { Context, WaitOptions } from '#context';
import { isPluginError, PluginError, nameSome, ignoring } from '#errors';
import { fieldsOf, textOf } from '#fields';
import {
  checkImageRetention,
  agentArchitectures,
  type ClusterNode,
  isCovered,
  isPoolNode,
  mayHaveAgent,
  nameWithoutAgent,
  readNode,
  isControlPlane,
} from '#readiness/nodes';
import { machineConfigDaemon, readDaemonImage, refuseHostedControlPlane } from '#readiness/preflight';
import { isOlder } from '#release/version';
import { metricsToken } from './agent/agentMetrics.ts';
import { reportReferences } from './install/agentAccess.ts';
import { tokenSecret, agentObjects, type AgentOptions } from './install/agentObjects.ts';
import { startAgents, type StartupOptions } from './install/agentStartup.ts';
import { agentSet } from './install/agentSurvey.ts';
import { compareTrust, gatherTrust, noTrust, readTrust, type WantedTrust } from './install/agentTrust.ts';
import { readAgentVersion, type Executable } from './install/executable.ts';
import { metricsReferences, metricsSecret, serviceMonitor, serviceMonitorKind } from './install/metricsObjects.ts';
import { pullPolicyReferences, type AdmissionMode } from './install/pullPolicyAdmission.ts';
import { installRetention, planRetention } from './install/retention.ts';
import { awaitMirrors, installMirror, type MirrorChoice } from './mirror/mirrorInstallation.ts';
import { agentNamespace } from './record/upgradeBundle.ts';
import { makeReportKey, reportKeySecret, reportMap } from './report/reportKey.ts';

export { executablePort, tokenPath } from './install/agentScript.ts';
export { describeClocks, describeSilence } from './install/agentSurvey.ts';
export { addAgentTrust, checkAgents } from './install/agentTrustCheck.ts';
export { compareAgents, readAgentVersion, readExecutables } from './install/executable.ts';
export { uninstallAgents } from './install/uninstall.ts';

/** Options of an installation. */
interface InstallOptions extends InstallationOptions, ApplyOptions {
  /** Options of waiting until agents run on every node. Undefined does not wait, and does not upload the executable. */
  readonly startup: StartupOptions | undefined;
  /** The time to wait for the setting that keeps the images of nodes; by default it is not installed. */
  readonly retention?: WaitOptions | undefined;
  /** Mirrors on the control plane; by default none are added. */
  readonly mirror?: MirrorChoice | undefined;
}

/** The result of an installation. */
export interface InstallResult {
  readonly objects: readonly AppliedObject[];
  /**
   * Objects of an earlier installation that these options do not need, and were removed; in a dry run, those to remove.
   */
  readonly removed: readonly ObjectReference[];
  /** The number of nodes with a ready agent; undefined if the caller did not wait. */
  readonly nodes?: number;
}

/**
 * Returns the objects of an installation that is applied by other means, in the order in which to apply them. Throws
 * the errors of planInstallation and planRetention.
 */
export async function planManifests(
  cluster: Cluster,
  options: InstallOptions,
  context: Context,
): Promise<readonly KubernetesObject[]> {
  const objects = await planInstallation(cluster, options, context);
  if (!options.retention) return objects;
  const { policy, configs } = await planRetention(cluster);
  const words =
    'apply the MachineConfiguration first, and wait until its status has the policy: the files after it would ' +
    'reboot every node';
  context.log('warn', words);
  return [policy, ...objects, ...configs];
}

/**
 * Installs the agents that let a cluster update itself from bundles: applies the objects, creates the agents’ token if
 * there is none, and uploads their executable. Existing objects stay, so a second run changes nothing. Throws the
 * errors of planInstallation, requireRights, installRetention, applyObjects and startAgents.
 */
export async function install(cluster: Cluster, options: InstallOptions, context: Context): Promise<InstallResult> {
  const objects = await planInstallation(cluster, options, context);
  const unneeded = [
    ...(options.metrics ? [] : metricsReferences),
    ...(options.admission ? [] : pullPolicyReferences),
    ...(options.reports ? [] : reportReferences),
  ];
  const secrets = [tokenSecret, ...(options.metrics ? [metricsSecret] : [])];
  const tokens = [
    ...secrets.map((metadata) => ({ apiVersion: 'v1', kind: 'Secret', metadata })),
    ...(options.reports ? [reportKeySecret, reportMap] : []),
  ];
  if (options.dryRun !== 'client') await requireRights(cluster, [...objects, ...tokens], unneeded);
  const { retention } = options;
  const keeping = retention ? await installRetention(cluster, options, retention, context) : [];
  if (!retention) await warnOfLostImages(cluster, context);
  const sets = objects.filter(({ kind }) => kind === 'DaemonSet');
  const others = objects.filter((object) => !sets.includes(object));
  // The agents come last, because their pods need the token.
  const stated = await applyObjects(cluster, others, options, context);
  const token = [
    ...(await makeTokens(cluster, options)),
    ...(options.reports ? await makeReportKey(cluster, options) : []),
  ];
  const removed = await deleteObjects(cluster, unneeded, options, context);
  const agents = await applyObjects(cluster, sets, options, context).catch((error: unknown) => {
    // In a dry run, their namespace does not exist yet.
    if (options.dryRun && isPluginError(error, 'not-found')) return sets.map(asCreated);
    throw error;
  });
  const all = [...keeping, ...stated, ...token, ...agents];
  const startup = options.dryRun ? undefined : options.startup;
  const pods = startup && (await startAgents(cluster, options.executables, startup, context)).pods;
  // The controllers start the mirrors.
  if (options.mirror) all.push(...(await installMirror(cluster, options, options.mirror, context)));
  if (options.mirror && !options.dryRun) await awaitMirrors(cluster, options.mirror, context);
  return { objects: all, removed, ...(pods && { nodes: pods.length }) };
}

async function warnOfLostImages(cluster: Cluster, context: Context): Promise<void> {
  // Hosted clusters have no pools.
  const pools = await listServed(cluster, 'machineconfiguration.openshift.io/v1', 'MachineConfigPool');
  const findings = await checkImageRetention(cluster, pools);
  const [first] = findings;
  if (!first) return;
  const names = findings.map(({ subject }) => subject.name).join(', ');
  context.log('warn', `pools ${names}: ${first.message}. ${first.advice}`);
}

/**
 * Creates the Secret with the token of the agents and, for metrics, the Secret with the token that is derived from it.
 * Never replaces the token of the agents, because running agents use the token that they have.
 */
async function makeTokens(cluster: Cluster, { dryRun, metrics }: InstallOptions): Promise<AppliedObject[]> {
  const own = await writeToken(cluster, tokenSecret, (before) => before ?? randomBytes(32).toString('hex'), dryRun);
  if (metrics !== true) return [own.applied];
  return [own.applied, (await writeToken(cluster, metricsSecret, () => metricsToken(own.token), dryRun)).applied];
}

async function writeToken(
  cluster: Cluster,
  metadata: typeof tokenSecret | typeof metricsSecret,
  choose: (before: string | undefined) => string,
  dryRun: ApplyOptions['dryRun'],
): Promise<{ applied: AppliedObject; token: string }> {
  // The result must not contain the token.
  const object = { apiVersion: 'v1', kind: 'Secret', metadata } as const;
  const before = await cluster.read(object);
  const encoded = textOf(fieldsOf(before?.['data'])['token']);
  const presentToken = encoded === undefined ? undefined : Buffer.from(encoded, 'base64').toString();
  const token = choose(presentToken);
  if (token === presentToken) return { applied: { object, outcome: 'unchanged' }, token };
  const data = { token: Buffer.from(token).toString('base64') };
  if (!dryRun) await cluster.apply({ ...object, type: 'Opaque', data } satisfies Written<'Secret'>);
  return { applied: { object, outcome: before ? 'configured' : 'created' }, token };
}

function asCreated(object: KubernetesObject): AppliedObject {
  return { object, outcome: 'created' };
}

/** Pods of the agents, which `install` lists, and in which it runs commands to upload the executable. */
const pods: ObjectReference = { apiVersion: 'v1', kind: 'Pod', metadata: { name: '', namespace: agentNamespace } };

/** Returns the requests of an installation that applies some objects and removes others. */
function listRequests(applied: readonly ObjectReference[], removed: readonly ObjectReference[]): AccessRequest[] {
  return [
    ...applied.flatMap((object) => (['get', 'create', 'patch'] as const).map((verb) => ({ verb, object }))),
    ...removed.map((object) => ({ verb: 'delete', object }) as const),
    { verb: 'list', object: pods },
    { verb: 'create', object: pods, subresource: 'exec' },
  ];
}

/**
 * Checks that the user has each right that an installation needs, before it changes anything. Throws `denied` with the
 * missing rights.
 */
async function requireRights(
  cluster: Cluster,
  applied: readonly (KubernetesObject | ObjectReference)[],
  removed: readonly ObjectReference[],
): Promise<void> {
  const denied = await listDenied(cluster, listRequests(applied, removed));
  const [first] = denied;
  if (first === undefined) return;
  const rights = denied.length === 1 ? '1 right' : `${denied.length} rights`;
  throw new PluginError('denied', `this user lacks ${rights} to install: ${nameSome(denied, 5)}`, {
    hint: `Run this as cluster-admin. To check one right: oc auth can-i ${first}`,
    settings: ['context'],
  });
}

/** Settings of an installation. */
interface InstallationOptions {
  /** The executables of the agents: one for each architecture of the nodes. */
  readonly executables: readonly Executable[];
  /** The policy for workloads that pull at every start; undefined for none. */
  readonly admission: AdmissionMode | undefined;
  /** The trust of the agents in addition to the Red Hat release key; by default none. */
  readonly trust?: WantedTrust;
  /** What agents say to a person in front of a node; by default on the login screen only. */
  readonly screen?: AgentOptions['screen'];
  /** Whether Prometheus can read metrics of the agents; default false. */
  readonly metrics?: boolean;
  /** Whether reports may be written onto drives with a verified bundle; default false. */
  readonly reports?: boolean;
  /** The version of this program, which the objects record; by default they record none. */
  readonly version?: string;
}

const redHatOnly: WantedTrust = { fingerprints: [], keyrings: [], allowUnsigned: false };

/** The first Kubernetes version that evaluates the CEL rules of definitions by default. */
const firstWithRules = '1.25.0';

/**
 * Returns the objects of an installation for a cluster. The agents use the image of its machine config daemons, which
 * every node has. Logs objects that its Kubernetes does not serve, and changes of the agents’ trust. Throws
 * `unsupported` for a cluster without machine config daemons, for a control plane without an executable, and for `deny`
 * if policies are not served. Also throws the errors of gatherTrust and of reading.
 */
async function planInstallation(
  cluster: Cluster,
  {
    executables,
    admission,
    trust: wantedTrust = redHatOnly,
    screen,
    metrics = false,
    reports,
    version,
  }: InstallationOptions,
  context: Context,
): Promise<KubernetesObject[]> {
  await refuseHostedControlPlane(cluster);
  const { gitVersion } = await cluster.version();
  const rules = !isOlder(gitVersion.replace(/^v/, '').replace(/\+.*$/, ''), firstWithRules);
  if (!rules) {
    const words = `Kubernetes ${gitVersion} does not evaluate rules of definitions: only their schema is enforced`;
    context.log('warn', words);
  }
  const policies =
    (await cluster.findKind('admissionregistration.k8s.io/v1', 'ValidatingAdmissionPolicy')) !== undefined;
  if (!policies) {
    const words =
      'the cluster has no ValidatingAdmissionPolicy (OpenShift 4.17): only roles limit what agents and ' +
      'controllers write, and an agent can report for other nodes';
    context.log('warn', words);
  }
  const admitted = checkAdmission(cluster, policies, admission);
  if (admission && !admitted) {
    const words =
      'the cluster has no ValidatingAdmissionPolicy (OpenShift 4.17): it cannot warn of workloads that always pull';
    context.log('warn', words);
  }
  const image = await findImage(cluster);
  // Printed objects need no executable: nodes then wait for one.
  const nodes = (await cluster.list('v1', 'Node')).map(readNode);
  checkNodes(nodes, executables, context);
  const records = Object.fromEntries(executables.map((each) => [each.architecture, each]));
  const agents = await cluster.read(agentSet);
  const before = agents ? readTrust(agents) : noTrust;
  const installed = version === undefined ? undefined : await readAgentVersion(cluster);
  if (version !== undefined && installed?.version !== undefined && isOlder(version, installed.version))
    context.log(
      'warn',
      `the agents are of version ${installed.version}: this installs the older ${version} in their place`,
    );
  const trust = await gatherTrust(wantedTrust, before, context);
  for (const { level, words } of compareTrust(before, trust)) context.log(level, words);
  const { apiVersion, kind } = serviceMonitorKind;
  const hasMonitors = metrics && (await cluster.findKind(apiVersion, kind)) !== undefined;
  const own = { image, executables: records, trust, admission: admitted ? admission : undefined };
  const masterLabel = nodes.some(
    (node) => isControlPlane(node) && !('node-role.kubernetes.io/control-plane' in node.labels),
  );
  const objects = agentObjects({ ...own, policies, rules, screen, metrics, reports, masterLabel, version });
  return hasMonitors ? [...objects, serviceMonitor] : objects;
}

function checkAdmission(cluster: Cluster, policies: boolean, admission: AdmissionMode | undefined): boolean {
  if (!admission) return false;
  if (policies || admission === 'warn') return policies;
  throw new PluginError(
    'unsupported',
    `${cluster.name} has no ValidatingAdmissionPolicy, which OpenShift has from 4.17 on`,
    {
      hint: 'Install without the admission policy (off).',
      settings: ['admissionPolicy'],
    },
  );
}

async function findImage(cluster: Cluster): Promise<string> {
  const daemon = await cluster.read(machineConfigDaemon).catch(ignoring('not-found'));
  const text = daemon && readDaemonImage(daemon);
  if (text !== undefined) return text;
  throw new PluginError('unsupported', `${cluster.name} has no machine config daemons, whose image the agents run in`, {
    hint: 'The agents are for OpenShift 4 with a machine config operator.',
  });
}

/**
 * Logs the nodes on which no agent runs. Throws `unsupported` if no control plane node could run a controller.
 * `executables`: none if nodes are to wait for them.
 */
function checkNodes(nodes: readonly ClusterNode[], executables: readonly Executable[], context: Context): void {
  const outside = nameWithoutAgent(nodes.filter((node) => !isPoolNode(node)));
  if (outside !== undefined) context.log('info', `no agent runs on ${outside}: the update leaves these nodes out`);
  const architectures = executables.map(({ architecture }) => architecture);
  const isAble = (node: ClusterNode): boolean => mayHaveAgent(node) && isCovered(node, architectures);
  const lacking = nodes.filter((node) => isPoolNode(node) && !isAble(node));
  const isControlled = nodes.some((node) => isControlPlane(node) && isAble(node));
  for (const [architecture, own] of Map.groupBy(lacking, (node) => node.architecture)) {
    const names = nameSome(own.map(({ name }) => name));
    const message = `no executable is for ${architecture}, the architecture of ${names}`;
    const isKnown = agentArchitectures.some((each) => each === architecture);
    const hint = isKnown
      ? `Unpack the archive oc-disconnected-…-linux-${architecture}.tar.gz, and use the executable in it.`
      : 'Agents are for amd64 and arm64. Other nodes need a mirror that serves the release.';
    if (!isControlled) throw new PluginError('unsupported', message, { hint, settings: ['executable'] });
    context.log('warn', `${message}: no agent runs there. ${hint}`);
  }
}
