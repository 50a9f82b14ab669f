import type { KubernetesObject } from '../config/manifest.ts';
import { digestOf, hexOf, type Digest } from '../oci/digest.ts';
import { parseJson } from '../oci/syntax.ts';
import { architectures, type Architecture } from '../release/version.ts';
import { agentNamespace } from './upgradeBundle.ts';
import { fieldsOf, textOf, type Fields } from '../kubernetes/fields.ts';
import { isFields } from '../kubernetes/kubeconfigMerge.ts';
import { nodePhases, upgradeBundleApi, type NodeProgress } from './upgradeBundle.ts';

/** What the agent of one node says of it. */
export interface NodeReport {
  /** The uid of the UpgradeBundle that it is about. */
  readonly bundle: string;
  readonly progress: NodeProgress;
  /** Where other nodes reach it: `https://10.128.2.7:8080`; undefined where it does not know. */
  readonly origin?: string | undefined;
  /** The bundle that it offers to other nodes. */
  readonly offers?: Digest | undefined;
  /** The bundle that it has found while the cluster has no UpgradeBundle at work. */
  readonly proposal?: Proposal | undefined;
}

/** A bundle that an UpgradeBundle may be made for: it says of itself that it is this release. */
export interface Proposal {
  readonly version: string;
  readonly arch: Architecture;
}

const { group } = upgradeBundleApi;
const annotation = `${group}/report`;
const labels = { offers: `${group}/offers`, part: `${group}/part` } as const;
/** Into how many parts nodes are divided by their names, so that one who looks for some of many need not read of all. */
const parts = 16;
const versionPattern = /^\d+\.\d+\.\d+(?:-[0-9a-z]+(?:[.-][0-9a-z]+)*)?$/;
/** Of what a node says, in characters. */
const longest = 4000;

/**
 * Where reports are: each agent writes a Lease of its own, as kubelets do. So what a node says costs the same however many there are, where one object with
 * the words of all would be sent to all whenever one of them says something.
 */
export const reportKind = {
  apiVersion: 'coordination.k8s.io/v1',
  kind: 'Lease',
  namespace: agentNamespace,
  labelSelector: labels.part,
} as const;

/** Makes the Lease in which a report stands, as of now. */
export function formatNodeReport({ bundle, progress, origin, offers, proposal }: NodeReport): KubernetesObject {
  const { apiVersion, kind, namespace } = reportKind;
  const { name: node, message } = progress;
  const said = {
    bundle,
    origin,
    proposal,
    ...progress,
    ...(message !== undefined && { message: message.slice(0, longest) }),
  };
  return {
    apiVersion,
    kind,
    metadata: {
      name: leaseName(node),
      namespace,
      labels: { [labels.part]: partOf(node), ...(offers !== undefined && { [labels.offers]: markOf(offers) }) },
      annotations: { [annotation]: JSON.stringify(said) },
    },
    // With the six digits that a MicroTime has.
    spec: { holderIdentity: node, renewTime: new Date().toISOString().replace('Z', '000Z') },
  };
}

/** Reads the Lease of an agent; undefined for one that says nothing, or nothing that a status may have. What it offers is not told from it. */
export function parseReport({ metadata }: KubernetesObject): NodeReport | undefined {
  const said = parseFields(textOf(fieldsOf(metadata.annotations)[annotation]) ?? '');
  const { bundle, origin, name, phase: stated, imagesLoaded, imagesTotal, bytes, free, message } = said;
  const proposal = parseProposal(said['proposal']);
  const phase = nodePhases.find((known) => known === stated);
  if (typeof bundle !== 'string' || typeof name !== 'string' || !phase) return undefined;
  if (!isCount(imagesLoaded) || !isCount(imagesTotal) || !isCount(bytes) || imagesLoaded > imagesTotal)
    return undefined;
  const more = { ...(isCount(free) && { free }), ...(typeof message === 'string' && { message }) };
  const progress = { name, phase, imagesLoaded, imagesTotal, bytes, ...more };
  return { bundle, origin: textOf(origin), progress, ...(proposal && { proposal }) };
}

/** The node that a Lease of an agent is about, and when that was renewed last, as the node has the time. */
export function readRenewal(lease: KubernetesObject): { readonly node: string; readonly renewed: string } {
  const { holderIdentity, renewTime } = fieldsOf(lease['spec']);
  return { node: textOf(holderIdentity) ?? '', renewed: textOf(renewTime) ?? '' };
}

/** Selects the Leases of nodes that offer a bundle: of all of them, or of one part of the nodes that chance chooses. */
export function selectOffers(digest: Digest, which: 'all' | 'some'): string {
  const offering = `${labels.offers}=${markOf(digest)}`;
  return which === 'all' ? offering : `${offering},${labels.part}=${Math.floor(Math.random() * parts)}`;
}

/** What a Lease is called: names of nodes are at most 253 characters long, as those of objects are. */
function leaseName(node: string): string {
  return node.length <= 240 ? `agent-${node}` : `agent-${hexOf(digestOf(node))}`;
}

function partOf(node: string): string {
  return String(Number.parseInt(hexOf(digestOf(node)).slice(0, 4), 16) % parts);
}

/** Of a digest, what a label has room for. */
function markOf(digest: Digest): string {
  return hexOf(digest).slice(0, 32);
}

/** Names objects: nothing counts but a version and an architecture. */
function parseProposal(value: unknown): Proposal | undefined {
  const { version, arch } = fieldsOf(value);
  const known = architectures.find((each) => each === arch);
  const isVersion = typeof version === 'string' && version.length <= 64 && versionPattern.test(version);
  return known && isVersion ? { version, arch: known } : undefined;
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

function parseFields(text: string): Fields {
  try {
    const value = parseJson(text);
    return isFields(value) ? value : {};
  } catch {
    return {};
  }
}
