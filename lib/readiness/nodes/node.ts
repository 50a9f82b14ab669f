import type { V1PodSpec } from '@kubernetes/client-node';
import type { Finding } from '#cluster/finding';
import { isSelected, conditionsOf } from '#cluster/objects';
import type { Json, KubernetesObject } from '#config/manifest';
import { nameSome } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf, textsOf, type Fields } from '#fields';
import { normalizeImage } from '../lint/image.ts';
import type { PodTemplate } from '../preflight/podTemplate.ts';

/** The facts of a Node object. */
export interface ClusterNode {
  readonly name: string;
  readonly labels: Fields;
  /** The architecture by its name in Go: `amd64`. */
  readonly architecture: string;
  /** The version of its kubelet: `v1.31.3`; empty if the node does not report it. */
  readonly kubelet: string;
  /** Its container runtime: `cri-o://1.31.4-5.rhaos4.18.git0123456.el9`; empty if the node does not report it. */
  readonly runtime: string;
  readonly ready: boolean;
  readonly schedulable: boolean;
  /** Whether the node evicts pods because its disk is full. */
  readonly pressed: boolean;
  readonly taints: readonly Fields[];
  /** The names of the images that its kubelet lists: the largest images, up to a limit. */
  readonly images: ReadonlySet<string>;
  /** The number of images that its kubelet lists. */
  readonly listed: number;
  /**
   * The size of the file system of its images, and the part for pods, in bytes; undefined if the node does not report
   * it.
   */
  readonly capacity: number | undefined;
  readonly allocatable: number | undefined;
}

/** Reads a Node object. A missing field is empty or undefined, and a missing condition is false. */
export function readNode(object: KubernetesObject): ClusterNode {
  const { status, spec } = object;
  const { nodeInfo, images, capacity, allocatable } = fieldsOf(status);
  const { unschedulable, taints } = fieldsOf(spec);
  const listed = listOf(images);
  const conditions = conditionsOf(object);
  return {
    name: object.metadata.name,
    labels: fieldsOf(object.metadata.labels),
    architecture: textOf(fieldsOf(nodeInfo)['architecture']) ?? '',
    kubelet: textOf(fieldsOf(nodeInfo)['kubeletVersion']) ?? '',
    runtime: textOf(fieldsOf(nodeInfo)['containerRuntimeVersion']) ?? '',
    ready: conditions.get('Ready')?.status === 'True',
    schedulable: unschedulable !== true,
    pressed: conditions.get('DiskPressure')?.status === 'True',
    taints: listOf(taints),
    images: new Set(listed.flatMap(({ names }) => textsOf(names)).map(normalizeImage)),
    listed: listed.length,
    capacity: parseQuantity(fieldsOf(capacity)['ephemeral-storage']),
    allocatable: parseQuantity(fieldsOf(allocatable)['ephemeral-storage']),
  };
}

/**
 * Returns whether a pod of a template may run on a node, by its node, node selector, required node affinity and
 * tolerations, as the scheduler decides (Kubernetes, component-helpers/scheduling/corev1/nodeaffinity).
 */
export function mayRunOn({ spec, node: bound }: Pick<PodTemplate, 'spec' | 'node'>, node: ClusterNode): boolean {
  // A static pod runs only on the node whose files define it.
  if (bound !== undefined) return bound === node.name;
  const selected = Object.entries(fieldsOf(spec['nodeSelector'])).every(
    ([label, value]) => node.labels[label] === value,
  );
  const tolerations = listOf(spec['tolerations']);
  return (
    selected &&
    isInAffinity(spec, node) &&
    node.taints.every((taint) => isPassing(taint) || tolerations.some((each) => tolerates(each, taint)))
  );
}

/** Terms are alternatives, and the requirements of a term are all needed. A term without any selects no node. */
function isInAffinity({ affinity }: Fields, { name, labels }: ClusterNode): boolean {
  const required = fieldsAt(affinity, 'nodeAffinity')['requiredDuringSchedulingIgnoredDuringExecution'];
  if (required === undefined || required === null) return true;
  return listOf(fieldsOf(required)['nodeSelectorTerms']).some(({ matchExpressions, matchFields }) => {
    const requirements = [...listOf(matchExpressions), ...listOf(matchFields)];
    return (
      requirements.length > 0 &&
      isSelected(labels, { matchExpressions }) &&
      isSelected({ 'metadata.name': name }, { matchExpressions: matchFields })
    );
  });
}

/** The exponents of ten of the decimal suffixes, from `n` to `E`. */
const decimals: Readonly<Record<string, number>> = { n: -9, u: -6, m: -3, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };

/**
 * Parses a Kubernetes quantity that is not negative (`125293548Ki`, `115470533646`, `100G`, `250m`, `1e9`); undefined
 * for another text (Kubernetes, apimachinery, quantity.go).
 */
export function parseQuantity(value: unknown): number | undefined {
  const form = /^\+?(\d+\.?\d*|\.\d+)(?:([KMGTPE])i|([numkMGTPE])|[eE]([+-]?\d+))?$/;
  const [, digits, binary, decimal = '', exponent] = form.exec(String(value)) ?? [];
  if (digits === undefined) return undefined;
  if (binary !== undefined) return Number(digits) * 1024 ** ' KMGTPE'.indexOf(binary);
  return Number(`${digits}e${exponent ?? decimals[decimal] ?? 0}`);
}

// Ignores taints of temporary states, such as a cordon or a drain.
function isPassing({ key, effect }: Fields): boolean {
  return effect === 'PreferNoSchedule' || String(key).startsWith('node.kubernetes.io/');
}

function tolerates({ key, operator, value, effect }: Fields, taint: Fields): boolean {
  if (effect !== undefined && effect !== '' && effect !== taint['effect']) return false;
  if (operator === 'Exists') return key === undefined || key === '' || key === taint['key'];
  return key === taint['key'] && (value ?? '') === (taint['value'] ?? '');
}

/** The architectures that agents exist for, by their names in Go. */
export const agentArchitectures = ['amd64', 'arm64'] as const;

/** The label in which kubelets state their operating system. */
const systemLabel = 'kubernetes.io/os';

/**
 * The labels of nodes with a machine, unlike those of virtual-kubelet, KWOK, Liqo and Admiralty. Agents tolerate every
 * taint, so taints do not keep them away.
 */
const notVirtual: readonly { readonly key: string; readonly operator: string; readonly values?: readonly string[] }[] =
  [
    { key: 'type', operator: 'NotIn', values: ['virtual-kubelet', 'kwok'] },
    { key: 'liqo.io/type', operator: 'NotIn', values: ['virtual-node'] },
    { key: 'virtual-kubelet.io/provider', operator: 'DoesNotExist' },
  ];

/** Other architectures of OpenShift. Nodes without the label count as those of an agent. */
const supported = [{ key: 'kubernetes.io/arch', operator: 'NotIn', values: ['ppc64le', 's390x'] }];

/** The fields of a pod spec that keep agents off nodes on which none can run. */
export const agentPlacement = {
  nodeSelector: { [systemLabel]: 'linux' },
  affinity: {
    nodeAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: [{ matchExpressions: [...notVirtual, ...supported] }],
      },
    },
  },
} as const satisfies Partial<Json<V1PodSpec>>;

/**
 * Returns whether the machine config operator updates a node. It leaves out Windows nodes
 * (openshift/machine-config-operator, pkg/helpers, IsWindows), and a virtual node has no machine.
 */
export function isPoolNode(node: ClusterNode): boolean {
  return systemOf(node) === 'linux' && !isVirtual(node);
}

/**
 * Returns whether an agent can run on a node: it is neither Windows nor virtual, and its architecture has an agent or
 * is unknown.
 */
export function mayHaveAgent(node: ClusterNode): boolean {
  return isPoolNode(node) && isCovered(node, agentArchitectures);
}

/** Returns whether a node has one of some architectures. Of none, each counts. */
export function isCovered({ architecture }: ClusterNode, architectures: readonly string[]): boolean {
  return architectures.length === 0 || architecture === '' || architectures.includes(architecture);
}

/**
 * Names nodes on which no agent runs, with the reason; undefined if there is none: `win-0 (Windows)`. `architectures`:
 * those of the installed executables; by default all that agents exist for.
 */
export function nameWithoutAgent(
  nodes: readonly ClusterNode[],
  architectures: readonly string[] = agentArchitectures,
): string | undefined {
  const others = nodes.filter((node) => !mayHaveAgent(node) || !isCovered(node, architectures));
  const names = others.map((node) => `${node.name} (${reasonOf(node)})`);
  return names.length === 0 ? undefined : nameSome(names.sort(), 10);
}

const advice = {
  outside: 'Nothing to do for the update of OpenShift. Update such nodes afterwards, as their own operator says.',
  architecture: 'Let a mirror serve the release to them: no agent loads their images before the update.',
};

/** Finds nodes on which no agent runs: one finding for those outside of all pools, and one for architectures. */
export function checkAgentNodes(nodes: readonly ClusterNode[]): Finding[] {
  const outside = nameWithoutAgent(nodes.filter((node) => !isPoolNode(node)));
  const others = nameWithoutAgent(nodes.filter(isPoolNode));
  const subject = { kind: 'Node', name: '' };
  const own = { check: 'nodes', subject } as const;
  const findings: Finding[] = [];
  if (outside !== undefined) {
    const message = `in no machine config pool, and not checked: ${outside}`;
    findings.push({ ...own, severity: 'info', message, advice: advice.outside });
  }
  if (others !== undefined)
    findings.push({ ...own, severity: 'warning', message: `no agent runs on ${others}`, advice: advice.architecture });
  return findings;
}

function reasonOf(node: ClusterNode): string {
  if (isVirtual(node)) return 'virtual kubelet';
  if (isPoolNode(node)) return node.architecture;
  const system = systemOf(node);
  return system === 'windows' ? 'Windows' : system;
}

// As in the machine config operator, a node without the label counts as Linux.
function systemOf({ labels }: ClusterNode): string {
  return textOf(labels[systemLabel]) ?? 'linux';
}

// Some providers set only the taint of their node, or the version of their kubelet.
function isVirtual({ labels, taints, kubelet }: ClusterNode): boolean {
  const taint = /^(?:virtual-kubelet\.io|kwok\.x-k8s\.io|virtual-node\.[^/]+)\//;
  const isTainted = taints.some(({ key }) => taint.test(String(key)));
  return (
    isTainted ||
    /-vk-|virtual-kubelet|^kwok-|^fake$/.test(kubelet) ||
    notVirtual.some(({ key, values }) => values?.includes(String(labels[key])) ?? key in labels)
  );
}
