import { readFile } from 'node:fs/promises';
import { upgradeBundleName } from '#bundle/open';
import type { Cluster } from '#cluster/client';
import type { StoredObject } from '#cluster/objects';
import { readClusterVersion } from '#cluster/version';
import type { Written, KubernetesObject } from '#config/manifest';
import { digestOf, hexOf, type Digest, parseJson, parseJsonIfValid } from '#content/oci';
import type { Context } from '#context';
import { ignoring } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';
import { clusterBackup, type ClusterBackup } from '#node/clusterBackup';
import { pathOnHost, type Host, mirrorStateFile } from '#node/machine';
import { withoutBases, type FoundBundle } from '#node/media';
import { architectures } from '#release/version';
import { choice, count, list, mapping, matches, object, optional, readStated, text, type Static } from '#schema';
import { mirrorContents } from './mirrorContent.ts';
import {
  nodeProgress,
  reportNamespace,
  upgradeBundleApi,
  activeBundle,
  proposalAnnotation,
  upgradeBundleKind,
  type UpgradeBundle,
  type WrittenBundle,
} from './upgradeBundle.ts';

/**
 * The places of the base blobs of a delta bundle on a node. `offered`: all in files, which other nodes can fetch.
 * `stored`: in the image store. `missing`: some are in neither.
 */
const baseStates = ['offered', 'stored', 'missing'] as const;

/** See `baseStates`. */
export type BaseState = (typeof baseStates)[number];

/** The longest message of a node, in characters. */
const longest = 4000;

/** The largest number of bundles and of images that a mirror reports. */
const mostReported = 20;
/** A version or an image in the report of a mirror. */
const name = text({ maxLength: longest / 10 });
const names = list(name, { maxItems: mostReported });

const mirrorState = object({
  /** The versions of the retained bundles. */
  versions: names,
  /** The port at which it serves. */
  port: optional(count()),
  /** What the mirror keeps of them; whole bundles without it. */
  content: optional(choice(mirrorContents)),
  /** The bytes of each bundle, by the version of its last release. */
  sizes: optional(mapping(name, count())),
  /** The number of images that clients got. */
  requests: count(),
  /**
   * Images that were requested and are not retained (`openshift-release-dev/ocp-release@sha256:…`), and manifests of
   * images that cannot be read (`sha256:…`).
   */
  lacking: names,
});

/** What the mirror of a node serves, and what it was asked for since its start. */
export type MirrorState = Static<typeof mirrorState>;

const backupReport = object({ made: optional(clusterBackup), failure: optional(text({ maxLength: longest })) });

/** The last backup of a node for an update, or why there is none. */
export type BackupReport = Static<typeof backupReport>;

/** Its values become names of objects. */
const proposal = object({
  version: text({ maxLength: 64, pattern: String.raw`^\d+\.\d+\.\d+(?:-[0-9a-z]+(?:[.-][0-9a-z]+)*)?$` }),
  arch: choice(architectures),
});

/** A found bundle, for which the controller may create an UpgradeBundle. It is not verified. */
export type Proposal = Static<typeof proposal>;

/** The statement of the annotation with a report. */
const nodeReport = object(
  {
    /** The uid of the UpgradeBundle that the report is about. */
    bundle: text(),
    /** The uid of the completed UpgradeBundle whose images the node keeps, while no other one is active. */
    keeps: optional(text()),
    /** The version of the release that the progress is about; absent until the controller has chosen one. */
    version: optional(text()),
    progress: nodeProgress,
    /** The URL of the agent for other nodes, such as `https://10.128.2.7:8080`; absent if it does not know it. */
    origin: optional(text()),
    /** Absent for a bundle that is no delta, and until the node knows. */
    base: optional(choice(baseStates)),
    /** The backup before the update, if the controller has asked this node for it. */
    backup: optional(backupReport),
    /** The state of the mirror of a control plane node, if it has one. */
    mirror: optional(mirrorState),
    /** The bundle that the node has found while no UpgradeBundle is active. */
    proposal: optional(proposal),
  },
  { where: ({ progress: { imagesLoaded, imagesTotal } }) => imagesLoaded <= imagesTotal },
);

/** The report of one node’s agent. `offers`: the digest of the bundle that it offers to other nodes, in a label. */
export type NodeReport = Static<typeof nodeReport> & { readonly offers?: Digest | undefined };

/** The age after which a backup is made again, in milliseconds: an obstacle may delay the update for long. */
const longestAge = 6 * 3_600_000;

/** Returns whether a backup is recent enough for an update. `now`: milliseconds since 1970. */
export function isRecentBackup({ time }: ClusterBackup, now = Date.now()): boolean {
  return now - Date.parse(time) < longestAge;
}

const { group } = upgradeBundleApi;
const annotation = `${group}/report`;
const labels = { offers: `${group}/offers`, part: `${group}/part` } as const;
/**
 * The number of parts into which nodes are divided by their names. A node that needs one of many holders reads only a
 * part of them.
 */
const parts = 16;

/**
 * The kind of the reports. Each agent writes a Lease of its own, as kubelets do, because each change of a shared object
 * would be sent to all nodes.
 */
export const reportKind = {
  apiVersion: 'coordination.k8s.io/v1',
  kind: 'Lease',
  namespace: reportNamespace,
  labelSelector: labels.part,
} as const;

/**
 * Returns the Lease with a report and the present time. Long messages are cut, and a proposal that names no object is
 * left out: a medium can have any bundle, and the rest of the report must be read.
 */
export function formatNodeReport({
  offers,
  progress,
  backup,
  proposal: found,
  ...about
}: NodeReport): Written<'Lease'> {
  const { apiVersion, kind, namespace } = reportKind;
  const { name: node, message } = progress;
  const fields = {
    ...about,
    progress: { ...progress, message: message?.slice(0, longest) },
    backup: backup && { ...backup, failure: backup.failure?.slice(0, longest) },
    proposal: matches(proposal, found) ? found : undefined,
  };
  return {
    apiVersion,
    kind,
    metadata: {
      name: leaseName(node),
      namespace,
      labels: { [labels.part]: partOf(node), ...(offers !== undefined && { [labels.offers]: markOf(offers) }) },
      annotations: { [annotation]: JSON.stringify(fields satisfies NodeReport) },
    },
    // A MicroTime has six decimals.
    spec: { holderIdentity: node, renewTime: new Date().toISOString().replace('Z', '000Z') },
  };
}

/** What the Lease of an agent says. */
interface ReceivedReport {
  readonly node: string;
  /** The time of its renewal by the clock of the node. */
  readonly renewed: string;
  /** The same by the clock of the API server, in milliseconds since 1970; NaN if the Lease does not say so. */
  readonly written: number;
  /** Undefined if it has none, or an invalid one. It lacks `offers`. */
  readonly report?: NodeReport | undefined;
}

/**
 * Reads the Lease of an agent. Its holder is the node, and not what the report names: an admission policy binds the
 * name and the holder to the node of the token. Undefined for a Lease with the name of another node.
 */
export function readReport({ metadata, ...lease }: KubernetesObject): ReceivedReport | undefined {
  const { holderIdentity, renewTime } = fieldsOf(lease['spec']);
  const node = textOf(holderIdentity);
  if (node === undefined || metadata.name !== leaseName(node)) return undefined;
  const stated = parseJsonIfValid(textOf(fieldsOf(metadata.annotations)[annotation]) ?? '');
  const report = readStated(nodeReport, stated);
  return {
    node,
    renewed: textOf(renewTime) ?? '',
    written: readRenewalTime({ metadata, ...lease }),
    report: report?.progress.name === node ? report : undefined,
  };
}

/**
 * Returns when a Lease was last renewed by the clock of the API server, in milliseconds since 1970; NaN if it does not
 * say so. API servers update the time of a manager when it changes a value (Kubernetes, ManagedFieldsEntry).
 */
function readRenewalTime({ metadata }: KubernetesObject): number {
  const entries = listOf(fieldsOf(metadata)['managedFields']);
  const own = entries.filter(({ fieldsV1 }) => 'f:renewTime' in fieldsAt(fieldsV1, 'f:spec'));
  const times = own.map(({ time }) => Date.parse(textOf(time) ?? ''));
  return times.length === 0 ? Number.NaN : Math.max(...times);
}

/** Returns the label selector for nodes that offer a bundle: all of them, or a random part. */
export function selectOffers(digest: Digest, which: 'all' | 'some'): string {
  const offering = `${labels.offers}=${markOf(digest)}`;
  return which === 'all' ? offering : `${offering},${labels.part}=${Math.floor(Math.random() * parts)}`;
}

/** Returns the name of a node’s Lease. Kubernetes limits the names of nodes and objects to 253 characters. */
function leaseName(node: string): string {
  return node.length <= 240 ? `agent-${node}` : `agent-${hexOf(digestOf(node))}`;
}

function partOf(node: string): string {
  return String(Number.parseInt(hexOf(digestOf(node)).slice(0, 4), 16) % parts);
}

/** Returns the part of a digest that fits into a label. */
function markOf(digest: Digest): string {
  return hexOf(digest).slice(0, 32);
}

/** Returns the state of a mirror without what exceeds a report: the oldest missing images, and ends of long names. */
export function limitMirrorState({ versions, sizes = {}, lacking, ...state }: MirrorState): MirrorState {
  const reported = versions.slice(0, mostReported);
  const ofReported = Object.entries(sizes).filter(([version]) => reported.includes(version));
  return {
    ...state,
    versions: reported,
    ...(ofReported.length > 0 && { sizes: Object.fromEntries(ofReported) }),
    lacking: lacking.slice(-mostReported).map((image) => image.slice(0, longest / 10)),
  };
}

/** The state of the mirror of a node. */
export interface NodeMirror extends MirrorState {
  readonly node: string;
}

/** Reads the state of the mirror of this node, which its server writes; undefined if it has none. */
export async function readMirrorState(host: Host): Promise<MirrorState | undefined> {
  try {
    return readStated(mirrorState, parseJson(await readFile(pathOnHost(host, mirrorStateFile), 'utf8')));
  } catch {
    return undefined;
  }
}

/**
 * Lists the states of all mirrors from the reports of agents; none if the user may not read reports. Throws other
 * errors of the cluster.
 */
export async function listMirrorStates(cluster: Cluster): Promise<NodeMirror[]> {
  const { apiVersion, kind, ...options } = reportKind;
  const leases = await cluster.list(apiVersion, kind, options).catch(ignoring('denied'));
  const reports = (leases ?? []).flatMap((lease) => readReport(lease) ?? []);
  return reports.flatMap(({ node, report }) => (report?.mirror ? [{ node, ...report.mirror }] : []));
}

/**
 * Chooses the bundle that a node proposes: the only one on its media, except base releases of deltas. Undefined if
 * there is none, or if they differ.
 */
export function chooseProposal(bundles: readonly FoundBundle[]): Proposal | undefined {
  const meant = withoutBases(bundles);
  const [first] = meant;
  if (!first || meant.some(({ identity }) => identity !== first.identity)) return undefined;
  const arch = architectures.find((each) => each === first.arch);
  return arch && { version: first.version, arch };
}

/**
 * Creates the UpgradeBundle of a bundle that an agent has found, unless the cluster has an active one or runs that
 * version. It has no digest, so it waits until an administrator allows one. Deletes those whose bundle no agent finds
 * any more. Throws the errors of the cluster.
 */
export async function followProposals(
  cluster: Cluster,
  reports: readonly StoredObject[],
  bundles: readonly UpgradeBundle[],
  clusterVersion: StoredObject | undefined,
  context: Context,
): Promise<void> {
  const proposed = reports
    .flatMap((lease) => readReport(lease) ?? [])
    .flatMap(({ node, report: { bundle = '', proposal } = {} }) =>
      proposal ? [{ ...proposal, bundle, node, name: upgradeBundleName(proposal) }] : [],
    );
  for (const bundle of bundles.filter(isProposal))
    if (!proposed.some(({ name }) => name === bundle.metadata.name)) await remove(cluster, bundle, context);
  if (activeBundle(bundles)) return;
  const running = clusterVersion && readClusterVersion(clusterVersion).version;
  const takenNames = new Set(bundles.map(({ metadata }) => metadata.name));
  // A USB drive that is still inserted after the update must not propose it again. A report on an UpgradeBundle that
  // has just ended can be of the place that it named.
  const first = proposed.find(
    ({ bundle, version, name }) => bundle === '' && version !== running && !takenNames.has(name),
  );
  if (!first) return;
  const { name, node, version, arch } = first;
  const metadata = { name, annotations: { [proposalAnnotation]: node } };
  const made: WrittenBundle = { ...upgradeBundleKind, metadata, spec: { bundle: {} } };
  if (await cluster.create(made).catch(ignoring('conflict')))
    context.log('info', `${node} has ${version} ${arch}: created UpgradeBundle ${name}`);
}

/** Returns whether the controller created an UpgradeBundle, and no administrator has allowed it or named its file. */
function isProposal({ metadata: { annotations = {} }, spec: { bundle } }: UpgradeBundle): boolean {
  return bundle.digest === undefined && bundle.file === undefined && proposalAnnotation in annotations;
}

/** Deletes this version of an object: its digest may be allowed now. */
async function remove(cluster: Cluster, bundle: UpgradeBundle, context: Context): Promise<void> {
  if (await cluster.delete(bundle).catch(ignoring('conflict')))
    context.log('info', `deleted UpgradeBundle ${bundle.metadata.name}: no node has its bundle any more`);
}
