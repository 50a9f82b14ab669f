import { isDeepStrictEqual } from 'node:util';
import type { Cluster } from '#cluster/client';
import { subjectOf, type Finding } from '#cluster/finding';
import { isSelected, conditionsOf, type StoredObject, listServed } from '#cluster/objects';
import type { KubernetesObject, WrittenAs } from '#config/manifest';
import { hexOf, type Digest } from '#content/oci';
import { nameSome } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf, type Fields } from '#fields';
import { shellCommand } from '#text';
import type { ClusterSurvey } from '../preflight/survey.ts';

/**
 * The kind with which the machine config operator pins images on nodes. It is served by default since OpenShift
 * 4.19.12.
 */
export const pinnedImageSetKind = {
  apiVersion: 'machineconfiguration.openshift.io/v1',
  kind: 'PinnedImageSet',
} as const;

/** What is written of a PinnedImageSet (openshift/api, machineconfiguration/v1, PinnedImageSetSpec). */
export type PinnedImageSet = WrittenAs<
  'machineconfiguration.openshift.io/v1',
  'PinnedImageSet',
  { readonly spec: { readonly pinnedImages: readonly { readonly name: string }[] } }
>;

/** The label and annotations of our own PinnedImageSets: their owner, bundle and release. */
export const ownership = {
  label: 'app.kubernetes.io/managed-by',
  value: 'oc-upgrade-bundle',
  bundle: 'upgrade-bundle.openshift.io/bundle',
  release: 'upgrade-bundle.openshift.io/release',
} as const;

/** The label by which pools select MachineConfigs and PinnedImageSets. */
export const roleLabel = 'machineconfiguration.openshift.io/role';
/** The largest number of images that the API accepts in one set. */
const largestSet = 500;
/** The API’s rule for names: a host with a dot, at most one folder, and a digest (openshift/api, ImageDigestFormat). */
const pinnable =
  /^([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?\/([a-zA-Z0-9-_]{0,61}\/)?[a-zA-Z0-9-_.]*@sha256:[a-f0-9]{64}$/;

/** The images of a bundle to pin. */
export interface PinnedBundle {
  /** The name of the UpgradeBundle. */
  readonly name: string;
  readonly digest: Digest;
  /** The release image, by digest. */
  readonly release: string;
  readonly images: readonly string[];
}

/** Lists the images that no PinnedImageSet can name, because the API refuses their names. */
export function listUnpinnable(images: readonly string[]): string[] {
  return images.filter((image) => !pinnable.test(image) || image.length > 447);
}

/**
 * Returns the PinnedImageSets that pin the images of a bundle in all pools: one for each pool, or several if there are
 * too many images.
 */
export function makePinnedImageSets(bundle: PinnedBundle, pools: readonly KubernetesObject[]): PinnedImageSet[] {
  const names = new Set(bundle.images.filter((image) => listUnpinnable([image]).length === 0));
  const images = [...names].sort().map((name) => ({ name }));
  const count = Math.ceil(images.length / largestSet);
  const parts = Array.from({ length: count }, (_, index) => images.slice(index * largestSet, (index + 1) * largestSet));
  return poolRoles(pools).flatMap((role) =>
    parts.map((pinnedImages, index): PinnedImageSet => ({
      ...pinnedImageSetKind,
      metadata: {
        name: `oc-upgrade-bundle-${hexOf(bundle.digest).slice(0, 12)}-${role}${index === 0 ? '' : `-${index + 1}`}`,
        labels: { [roleLabel]: role, [ownership.label]: ownership.value },
        annotations: { [ownership.bundle]: bundle.name, [ownership.release]: bundle.release },
      },
      spec: { pinnedImages },
    })),
  );
}

/** Returns whether a stored set equals a planned one. */
export function isSameSet(made: KubernetesObject, stored: StoredObject | undefined): stored is StoredObject {
  if (!stored) return false;
  const { labels = {}, annotations = {} } = stored.metadata;
  return (
    isDeepStrictEqual(stored['spec'], made['spec']) &&
    Object.entries(made.metadata.labels ?? {}).every(([key, value]) => labels[key] === value) &&
    Object.entries(made.metadata.annotations ?? {}).every(([key, value]) => annotations[key] === value)
  );
}

/** Lists our own sets of a cluster; none if the cluster does not serve the kind. */
export async function listOwnSets(cluster: Cluster): Promise<readonly StoredObject[]> {
  const { apiVersion, kind } = pinnedImageSetKind;
  return await listServed(cluster, apiVersion, kind, { labelSelector: `${ownership.label}=${ownership.value}` });
}

/** The progress of the nodes of a cluster in pinning. */
export interface PinState {
  /** The names of the nodes that have not pinned all their sets. */
  readonly waiting: readonly string[];
  /** The nodes whose machine config daemon has not reported about any of the sets. */
  readonly unreported: readonly string[];
  /** The errors that nodes report about sets. */
  readonly failures: readonly string[];
}

/** Reads the progress in pinning from the reports of the machine config daemons. */
export function readPinState(
  sets: readonly StoredObject[],
  pools: readonly StoredObject[],
  poolNodes: readonly StoredObject[],
  nodes: readonly string[],
): PinState {
  const selectors = new Map(pools.map((pool) => [pool.metadata.name, selectorOf(pool)]));
  const own = new Set(sets.map(({ metadata }) => metadata.name));
  const reports = new Map(poolNodes.map((report) => [report.metadata.name, report]));
  const isPinned = (name: string): boolean => {
    const report = reports.get(name);
    const pool = textOf(fieldsAt(report, 'spec', 'pool')['name']);
    const selector = selectors.get(pool ?? '');
    if (!report || !selector) return false;
    return sets.filter(({ metadata }) => isSelected(metadata.labels, selector)).every(isPinnedOn(report));
  };
  return {
    waiting: nodes.filter((name) => !isPinned(name)),
    unreported: nodes.filter((name) => {
      const reportedSets = listOf(fieldsOf(reports.get(name)?.['status'])['pinnedImageSets']);
      return !reportedSets.some((each) => own.has(String(each['name'])));
    }),
    failures: nodes.flatMap((name) => failuresOf(reports.get(name), own)),
  };
}

function failuresOf(report: StoredObject | undefined, own: ReadonlySet<string>): string[] {
  if (!report) return [];
  const conditions = conditionsOf(report);
  const degraded = conditions.get('PinnedImageSetsDegraded');
  if (degraded?.status !== 'True') return [];
  const failed = listFailedSets(report);
  // While the daemon tries again, the condition of the last failure stays, and its error is gone.
  if (failed.length === 0 && conditions.get('PinnedImageSetsProgressing')?.status === 'True') return [];
  // The daemon reports one error for all sets of a node, and pins none of them.
  const first = failed.find(({ set }) => own.has(set)) ?? failed[0];
  const { name } = report.metadata;
  if (!first) return [`${name}: ${degraded.message}`];
  if (own.has(first.set)) return [`${name}: ${first.error}`];
  return [
    `${name}: the set ${first.set} of the site: ${first.error}; while it fails, nothing is pinned there: ` +
      `correct it, or delete it (${shellCommand`oc delete pinnedimageset ${first.set}`})`,
  ];
}

/** Lists the sets that a node could not pin in the generation that it was asked for. */
function listFailedSets({ status }: StoredObject): { readonly set: string; readonly error: string }[] {
  return listOf(fieldsOf(status)['pinnedImageSets']).flatMap(({ name, lastFailedGenerationError }) => {
    const error = textOf(lastFailedGenerationError);
    return error === undefined ? [] : [{ set: String(name), error }];
  });
}

/**
 * Finds PinnedImageSets of the site that nodes cannot pin. The machine config daemon pins nothing on a node while one
 * of its sets fails (openshift/machine-config-operator, pkg/daemon/pinned_image_set.go), and tries again.
 */
export function checkSitePins({ pinnedSets, poolNodes }: Pick<ClusterSurvey, 'pinnedSets' | 'poolNodes'>): Finding[] {
  const isDegraded = (node: StoredObject): boolean =>
    conditionsOf(node).get('PinnedImageSetsDegraded')?.status === 'True';
  const failed = poolNodes
    .filter(isDegraded)
    .flatMap((node) => listFailedSets(node).map((each) => ({ ...each, node: node.metadata.name })));
  return pinnedSets
    .filter(({ metadata }) => metadata.labels?.[ownership.label] !== ownership.value)
    .flatMap((set): Finding[] => {
      const own = failed.filter((each) => each.set === set.metadata.name);
      const [first] = own;
      if (!first) return [];
      const message = `cannot be pinned on ${nameSome(own.map(({ node }) => node))}: ${first.error}`;
      return [{ check: 'images', severity: 'warning', subject: subjectOf(set), message, advice: failedAdvice }];
    });
}

/** Returns whether our sets alone can have lost an image, which agents load again. */
export function losesOnlyOwnPins(survey: Pick<ClusterSurvey, 'pinnedSets' | 'poolNodes'>): boolean {
  const isOwn = ({ metadata }: StoredObject): boolean => metadata.labels?.[ownership.label] === ownership.value;
  return survey.pinnedSets.some(isOwn) && checkSitePins(survey).length === 0;
}

const failedAdvice =
  'Load its images into the image stores of these nodes, or delete the set: while it fails, nodes pin no other ' +
  'images, and an update without a registry waits.';

/** Returns roles of which each pool selects at least one. Most custom pools also select the role worker. */
export function poolRoles(pools: readonly KubernetesObject[]): string[] {
  const usual = ['master', 'worker'];
  const rank = ({ metadata: { name } }: KubernetesObject): string => `${usual.includes(name) ? '0' : '1'}${name}`;
  const roles: string[] = [];
  for (const pool of pools.toSorted((a, b) => (rank(a) < rank(b) ? -1 : 1))) {
    const selector = selectorOf(pool);
    if (!roles.some((role) => isSelected({ [roleLabel]: role }, selector))) roles.push(pool.metadata.name);
  }
  return roles;
}

/** Returns the label selector by which a pool selects MachineConfigs and sets; by default its own role. */
export function selectorOf({ spec, metadata }: KubernetesObject): Fields {
  const selector = fieldsAt(spec, 'machineConfigSelector');
  return Object.keys(selector).length > 0 ? selector : { matchLabels: { [roleLabel]: metadata.name } };
}

/** Returns whether the API server has the kind PinnedImageSet. */
export async function servesPins(cluster: Cluster): Promise<boolean> {
  return (await cluster.findKind(pinnedImageSetKind.apiVersion, pinnedImageSetKind.kind)) !== undefined;
}

/** Returns the images that the machine config operator has pinned on each node, by the name of the node. */
export function pinnedOf({
  pinnedSets,
  poolNodes,
  pools,
}: Pick<ClusterSurvey, 'pinnedSets' | 'poolNodes' | 'pools'>): Map<string, Set<string>> {
  const selectors = new Map(pools.map((pool) => [pool.metadata.name, selectorOf(pool)]));
  return new Map(
    poolNodes.map((node) => {
      const pool = textOf(fieldsAt(node, 'spec', 'pool')['name']);
      const selector = selectors.get(pool ?? '');
      const sets = pinnedSets.filter(({ metadata: { labels } }) => selector && isSelected(labels, selector));
      const images = sets.filter(isPinnedOn(node)).flatMap(({ spec }) => listOf(fieldsOf(spec)['pinnedImages']));
      return [node.metadata.name, new Set(images.flatMap((image) => textOf(image['name']) ?? []))];
    }),
  );
}

/** Returns a test whether a node (MachineConfigNode) reports a set as pinned in its present generation. */
function isPinnedOn(node: StoredObject): (set: StoredObject) => boolean {
  const conditions = conditionsOf(node);
  const settled = ['Progressing', 'Degraded'].every(
    (state) => conditions.get(`PinnedImageSets${state}`)?.status === 'False',
  );
  const reported = listOf(fieldsOf(node['status'])['pinnedImageSets']);
  return ({ metadata: { name, generation } }) =>
    settled && reported.some((each) => each['name'] === name && each['currentGeneration'] === generation);
}
