import type { Cluster } from '#cluster/client';
import type { KubernetesObject } from '#config/manifest';
import type { Context } from '#context';
import { ignoring, PluginError, nameSome } from '#errors';
import {
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
import { agentObjects, type AgentOptions } from './agentObjects.ts';
import { agentSet } from './agentSurvey.ts';
import { compareTrust, gatherTrust, noTrust, readTrust, type WantedTrust } from './agentTrust.ts';
import { readAgentVersion, type Executable } from './executable.ts';
import { serviceMonitor, serviceMonitorKind } from './metricsObjects.ts';
import type { AdmissionMode } from './pullPolicyAdmission.ts';

/** Settings of an installation. */
export interface InstallationOptions {
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
export async function planInstallation(
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
