import type { BundleBase } from '#bundle/metadata';
import { describeMissingBlobs } from '#bundle/open';
import type { Check, Finding, Weight } from '#cluster/finding';
import { blocks } from '#cluster/version';
import { nameSome } from '#errors';
import { goArchitecture, oldestKubelet, type Architecture } from '#release/version';
import { shellCommand } from '#text';
import { isByDigest } from '../lint/image.ts';
import type { PodTemplate } from '../preflight/podTemplate.ts';
import { type ClusterNode, mayHaveAgent, mayRunOn } from './node.ts';
import { checkNodeDisks, type DiskNeeds, type NodeDisks } from './nodeDisks.ts';

/** The facts about the images and disks of nodes that are not in their Node objects. */
export interface NodeKnowledge {
  /** The largest numbers of images that kubelets list, in any pool; -1 for all (`nodeStatusMaxImages`). */
  readonly imageLimits: readonly number[];
  /** The pinned images of each node, by the name of the node. */
  readonly pinned: ReadonlyMap<string, ReadonlySet<string>>;
  /** The file systems, by the name of the node. */
  readonly disks: ReadonlyMap<string, NodeDisks>;
  /** Whether control plane nodes keep bundles for mirrors, and so may fill three quarters of their disk only. */
  readonly retains?: boolean;
  /** The bytes of the etcd databases, by the name of the node. */
  readonly databases?: ReadonlyMap<string, number>;
}

/** The requirements of a bundle on each node. */
export interface BundleNeeds {
  readonly version: string;
  readonly arch: Architecture;
  /** The pullspecs by digest. */
  readonly images: readonly string[];
  /** The size of the blobs of the bundle, in bytes. */
  readonly size: number;
  /** The images that each node has, because the bundle leaves out their blobs. */
  readonly base?: Pick<BundleBase, 'blobs' | 'images'>;
}

const gibibyte = 1024 ** 3;
const advice = {
  ready: 'Bring the node up, or remove it from the cluster: an update waits for every node.',
  cordon: (name: string): string => shellCommand`To allow pods on it again: oc adm uncordon ${name}`,
  pressure: 'Make room on the node: a kubelet in this state removes images.',
  arch: 'Take the bundle for the architecture of the nodes, or the one for multi.',
  kubelet: 'Update its machine config pool first; resume the pool if it is paused.',
  list:
    'Check on the node (crictl images), or let kubelets list all images (KubeletConfig with nodeStatusMaxImages: ' +
    '-1).',
  missing:
    'Load them into the image store of the node before its registry is unreachable: a pod that is moved or ' +
    'started there needs them.',
  left: 'Create the bundle again from a new report of the site, or with the content that nodes have.',
  next: 'They must be on every node, and pinned, before the update begins.',
};

/** Checks one node: its state, its architecture, its free space and its images. */
export function checkNode(
  node: ClusterNode,
  templates: readonly PodTemplate[],
  running: readonly string[],
  bundle: BundleNeeds | undefined,
  knowledge: NodeKnowledge,
): Finding[] {
  const find = findingsOf(node);
  const loaded = mayHaveAgent(node) ? bundle : undefined;
  return [
    ...(node.ready ? [] : [find('nodes', blocks('nodeDown'), 'is not ready', advice.ready)]),
    ...(node.schedulable ? [] : [find('nodes', warns, 'is cordoned', advice.cordon(node.name))]),
    ...(node.pressed
      ? [find('nodes', blocks('diskPressure'), 'is short of disk space (DiskPressure)', advice.pressure)]
      : []),
    ...(bundle ? [...checkArchitecture(node, bundle, find), ...checkKubelet(node, bundle, find)] : []),
    ...(loaded ? checkNodeDisks(node, knowledge.disks.get(node.name), diskNeedsOf(node, loaded, knowledge)) : []),
    ...checkPresent(node, neededNow(node, templates, running), knowledge, find),
    ...(loaded ? [...checkNext(node, loaded, knowledge, find), ...checkLeftOut(node, loaded, knowledge)] : []),
  ];
}

function findingsOf({ name }: ClusterNode): Find {
  return (check, weight, message, advice) => ({ check, ...weight, subject: { kind: 'Node', name }, message, advice });
}

type Find = (check: Check, weight: Weight, message: string, advised: string) => Finding;

const warns = { severity: 'warning' } as const;
const informs = { severity: 'info' } as const;

function checkArchitecture({ architecture }: ClusterNode, { version, arch }: BundleNeeds, find: Find): Finding[] {
  const bundleArchitecture = goArchitecture(arch);
  if (bundleArchitecture === undefined || architecture === '' || bundleArchitecture === architecture) return [];
  return [
    find(
      'nodes',
      blocks('architecture'),
      `is ${architecture}, and the bundle of ${version} is for ${arch}`,
      advice.arch,
    ),
  ];
}

function checkKubelet({ kubelet }: ClusterNode, { version }: BundleNeeds, find: Find): Finding[] {
  const [, minor] = /^v1\.(\d+)\./.exec(kubelet) ?? [];
  const oldest = oldestKubelet(version);
  if (minor === undefined || oldest === undefined || Number(minor) >= oldest) return [];
  const message = `has kubelet ${kubelet}, and the API server of ${version} supports 1.${oldest} and later`;
  return [find('nodes', blocks('kubeletSkew'), message, advice.kubelet)];
}

/** Returns the bytes that a bundle adds to a node. Loaded images need no more space. */
function diskNeedsOf(node: ClusterNode, bundle: BundleNeeds, knowledge: NodeKnowledge): DiskNeeds {
  const { present, wanted: total } = countNext(node, bundle, knowledge);
  return {
    blobs: bundle.size * (1 - present / Math.max(1, total)),
    backups: isControlPlane(node) ? 2 * (knowledge.databases?.get(node.name) ?? gibibyte) : 0,
    retains: knowledge.retains === true && isControlPlane(node),
  };
}

function neededNow(node: ClusterNode, templates: readonly PodTemplate[], running: readonly string[]): Set<string> {
  const used = templates
    .filter((each) => !each.idle && makesPods(each) && mayRunOn(each, node))
    .flatMap(({ images }) => images);
  return new Set([...used, ...(isControlPlane(node) ? running : [])]);
}

// Returns whether a template creates pods. Of pods, only static ones count; workloads create the others.
function makesPods({ subject, owner }: PodTemplate): boolean {
  return subject.kind === 'Pod' ? owner?.startsWith('Node/') === true : subject.kind !== 'Job';
}

function checkPresent(node: ClusterNode, needed: ReadonlySet<string>, knowledge: NodeKnowledge, find: Find): Finding[] {
  const missing = [...needed].filter((image) => !holds(node, image, knowledge)).sort();
  if (missing.length === 0) return [];
  if (isTruncated(node, knowledge)) {
    const what =
      `lists its ${node.listed} largest images only: whether it has ${missing.length} that pods may need there ` +
      'cannot be told';
    return [find('images', informs, what, advice.list)];
  }
  return [find('images', warns, `lacks images that pods may need there: ${nameSome(missing, 2)}`, advice.missing)];
}

function checkNext(node: ClusterNode, bundle: BundleNeeds, knowledge: NodeKnowledge, find: Find): Finding[] {
  const { present, wanted: total } = countNext(node, bundle, knowledge);
  if (present === total) return [];
  const unsure = isTruncated(node, knowledge) ? ', by its list of images' : '';
  const what = `has ${present} of the ${total} images of ${bundle.version}${unsure}`;
  return [find('images', informs, what, advice.next)];
}

/** Finds the blobs that a bundle for a site leaves out, and that a node has in none of the images of the report. */
export function checkLeftOut(
  node: ClusterNode,
  { base }: Pick<BundleNeeds, 'base'>,
  knowledge: NodeKnowledge,
): Finding[] {
  const { images = {}, blobs = [] } = base?.images ? base : {};
  const held = new Set(Object.entries(images).flatMap(([image, own]) => (holds(node, image, knowledge) ? own : [])));
  const missing = blobs.filter(({ digest }) => !held.has(digest));
  if (missing.length === 0) return [];
  const find = findingsOf(node);
  const what = `${describeMissingBlobs(base, missing)}, which the bundle leaves out`;
  return [
    isTruncated(node, knowledge)
      ? find('images', warns, `may lack ${what}, by its list of images`, advice.left)
      : find('images', blocks('missingBase'), `lacks ${what}`, advice.left),
  ];
}

/** Returns how many images of a bundle a node has, and how many the bundle has. */
function countNext(node: ClusterNode, { images }: BundleNeeds, knowledge: NodeKnowledge) {
  const nextImages = images.filter(isByDigest);
  return { present: nextImages.filter((image) => holds(node, image, knowledge)).length, wanted: nextImages.length };
}

function holds({ name, images }: ClusterNode, image: string, { pinned }: NodeKnowledge): boolean {
  return images.has(image) || pinned.get(name)?.has(image) === true;
}

/** Returns whether the list of images may be incomplete: it is as long as a limit. */
function isTruncated({ listed }: ClusterNode, { imageLimits }: NodeKnowledge): boolean {
  return imageLimits.includes(listed);
}

/** Returns whether a node is an arbiter: it has a member of etcd, and nothing else of the control plane. */
export function isArbiter({ labels }: ClusterNode): boolean {
  return 'node-role.kubernetes.io/arbiter' in labels;
}

/** Returns whether a node has the role `master` or `control-plane`. */
export function isControlPlane({ labels }: ClusterNode): boolean {
  return 'node-role.kubernetes.io/master' in labels || 'node-role.kubernetes.io/control-plane' in labels;
}
