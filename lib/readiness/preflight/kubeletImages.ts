import { subjectOf, type Finding, type Subject, type Weight } from '#cluster/finding';
import { isSelected, type StoredObject } from '#cluster/objects';
import { blocks } from '#cluster/version';
import { nameSome } from '#errors';
import { fieldsAt, fieldsOf, textOf, type Fields } from '#fields';
import { listVerified, pullPolicyFields } from '#node/runtime';
import { isOlder } from '#release/version';
import { parseQuantity, readNode } from '../nodes/node.ts';
import type { FileSystem } from '../nodes/nodeDisks.ts';
import type { ClusterSurvey } from './survey.ts';

/** The kubelet removes images from this part of the disk on, and evicts pods below the other (kubelet defaults). */
const defaults = { imageGCHighThresholdPercent: 85, evictionHard: { 'imagefs.available': '15%' } };

const advice = {
  age:
    'Agents hold images before they load them, so nothing removes them. To load without agents, pin the bundle ' +
    'first, or set imageMaximumGCAge to 0s until the update ends.',
  disk:
    'Make room, or raise the threshold until the update ends: images of other releases and workloads are ' +
    'removed, and before OpenShift 4.16 loaded images that are not pinned yet.',
};

/**
 * Finds kubelets that would remove loaded images: by age, from a part of the disk on, or because they evict pods. Reads
 * the running configuration of each kubelet, or the KubeletConfig of its pool. `added`: the bytes that an update adds
 * to the file system of the images. The limits are those of Kubernetes (pkg/kubelet/images/image_gc_manager.go,
 * pkg/kubelet/eviction).
 */
export function checkImageRemoval(survey: RemovalSurvey, added: number): Finding[] {
  const groups = new Map<string, { readonly advice: string; readonly nodes: string[] }>();
  for (const node of survey.nodes)
    for (const [message, advised] of describeRemoval(survey, node, added)) {
      const group = groups.get(message) ?? { advice: advised, nodes: [] };
      group.nodes.push(node.metadata.name);
      groups.set(message, group);
    }
  return [...groups].map(([message, { advice: advised, nodes }]): Finding => {
    const [name = ''] = nodes;
    const others = nodes.length === 1 ? '' : ` (as on ${nameSome(nodes.slice(1))})`;
    const subject = { kind: 'Node', name };
    return { check: 'images', severity: 'warning', subject, message: `${message}${others}`, advice: advised };
  });
}

type RemovalSurvey = KubeletSurvey & Pick<ClusterSurvey, 'nodes' | 'disks'>;

/** What a kubelet does with images, and what helps. */
type Removal = readonly [message: string, advice: string];

function describeRemoval(survey: RemovalSurvey, node: StoredObject, added: number): Removal[] {
  const settings = kubeletSettingsOf(survey, node);
  const age = textOf(settings['imageMaximumGCAge']) ?? '0s';
  const isAged = /[1-9]/.test(age);
  const by = `its kubelet removes images that no pod uses after ${age} (imageMaximumGCAge)`;
  const { images } = survey.disks.get(node.metadata.name) ?? {};
  return [...(isAged ? [[by, advice.age] as const] : []), ...describeThresholds(images, settings, added)];
}

function describeThresholds(disk: FileSystem | undefined, settings: Fields, added: number): Removal[] {
  if (disk?.size === undefined) return [];
  const { free, size } = disk;
  const high = Number(settings['imageGCHighThresholdPercent'] ?? defaults.imageGCHighThresholdPercent);
  const least =
    textOf(fieldsOf(settings['evictionHard'])['imagefs.available']) ?? defaults.evictionHard['imagefs.available'];
  const evicts = least.endsWith('%') ? (Number.parseFloat(least) / 100) * size : (parseQuantity(least) ?? 0);
  const used = Math.round((100 * (size - free + added)) / size);
  const when = added > 0 ? 'will be used once the bundle is loaded' : 'are used';
  const removes = `its kubelet removes images above ${high} % of the disk (imageGCHighThresholdPercent), and ${used} % ${when}`;
  const frees =
    `its kubelet evicts pods and removes images below ${least} of free space (evictionHard imagefs.available), ` +
    `and ${Math.max(0, 100 - used)} % ${added > 0 ? 'stay' : 'are'} free`;
  const found = [...(used > high ? [removes] : []), ...(free - added < evicts ? [frees] : [])];
  return found.map((message) => [message, advice.disk]);
}

/** The first Kubernetes whose kubelets verify pulls by default (KubeletEnsureSecretPulledImages). */
const firstVerifying = '1.35.0-0';

const { policy: field, allowlist: list } = pullPolicyFields;

/** The images that nodes load, and what gives them to kubelets that ask for them; undefined if nothing does. */
export interface BundledImages {
  readonly images: readonly string[];
  readonly givenBy: 'mirrors' | 'agents' | undefined;
}

/**
 * Finds kubelets that refuse images that are present and that they have not pulled: the events of such pods speak of
 * failed pulls only. `loaded`: the images that are to be loaded; none of them blocks if mirrors or agents give them.
 */
export function checkPullVerification(
  survey: KubeletSurvey,
  nodes: readonly StoredObject[],
  loaded: BundledImages,
): Finding[] {
  const groups = new Map<string, { readonly finding: Finding; readonly nodes: string[] }>();
  for (const node of nodes) {
    const settings = kubeletSettingsOf(survey, node);
    const refused = listVerified(settings, loaded.images);
    if (refused.length === 0) continue;
    const finding = describeRefusal(survey, node, refused, { weight: weigh(node, loaded), givenBy: loaded.givenBy });
    const key = JSON.stringify(finding);
    const group = groups.get(key) ?? { finding, nodes: [] };
    group.nodes.push(node.metadata.name);
    groups.set(key, group);
  }
  return [...groups.values()].map(({ finding, nodes: names }) => ({
    ...finding,
    message: `${finding.message} on ${nameSome(names)}`,
  }));
}

function weigh(node: StoredObject, { givenBy }: BundledImages): Weight {
  const version = readNode(node).kubelet.replace(/^v/, '');
  const isEnforced = version !== '' && !isOlder(version, firstVerifying);
  return isEnforced && givenBy === undefined ? blocks('unverifiedImage') : { severity: 'warning' };
}

function describeRefusal(
  survey: KubeletSurvey,
  node: StoredObject,
  repositories: readonly string[],
  { weight, givenBy }: Pick<BundledImages, 'givenBy'> & { readonly weight: Weight },
): Finding {
  const policy = textOf(kubeletSettingsOf(survey, node)[field]) ?? '';
  const config = listKubeletConfigs(survey, node).findLast((each) => readSettings(each)[field] !== undefined);
  const subject: Subject = config ? subjectOf(config) : { kind: 'Node', name: node.metadata.name };
  const lacks = policy === 'AlwaysVerify' ? '' : `, and ${list} lacks ${nameSome(repositories)}`;
  const message = `has ${field} ${policy}${lacks}: kubelets of Kubernetes 1.35 and later refuse loaded images`;
  const value = `NeverVerifyAllowlistedImages with ${repositories.join(', ')} in ${list}`;
  const where = config ? `Set in its spec.kubeletConfig` : `Set in the configuration of the kubelet`;
  const change = `${where}: ${field} NeverVerifyPreloadedImages (the default), or ${value}. Nodes restart.`;
  const others = 'Or let mirrors on the control plane serve the release, which kubelets then pull.';
  const advice =
    givenBy === 'agents'
      ? 'An agent keeps the bundle on the disk of such a node, and gives its images to the kubelet, until the ' +
        `UpgradeBundle is deleted. After that, and for images that are loaded without agents: ${change} ${others}`
      : `${change} ${others}`;
  return { check: 'images', ...weight, subject, message, advice };
}

/** What a survey knows about the settings of kubelets. */
type KubeletSurvey = Pick<ClusterSurvey, 'kubelets' | 'kubeletConfigs' | 'pools' | 'poolNodes'>;

/** Returns the running configuration of the kubelet of a node, or else what the KubeletConfigs of its pool set. */
function kubeletSettingsOf(survey: KubeletSurvey, node: StoredObject): Fields {
  const running = survey.kubelets.get(node.metadata.name);
  return running ?? (Object.assign({}, ...listKubeletConfigs(survey, node).map(readSettings)) as Fields);
}

/** Returns what a KubeletConfig sets. */
function readSettings({ spec }: StoredObject): Fields {
  return fieldsAt(spec, 'kubeletConfig');
}

/**
 * Lists the KubeletConfigs of the pool of a node, the oldest first, as the machine config operator merges them: the
 * last one that sets a field counts.
 */
function listKubeletConfigs({ kubeletConfigs, pools, poolNodes }: KubeletSurvey, node: StoredObject): StoredObject[] {
  const own = poolNodes.find(({ metadata }) => metadata.name === node.metadata.name);
  const stated = textOf(fieldsAt(own?.['spec'], 'pool')['name']);
  const role = 'node-role.kubernetes.io/master' in fieldsOf(node.metadata.labels) ? 'master' : 'worker';
  const name = stated ?? role;
  const pool = pools.find(({ metadata }) => metadata.name === name);
  // The machine config operator labels its pools like this.
  const labels = { [`pools.operator.machineconfiguration.openshift.io/${name}`]: '', ...pool?.metadata.labels };
  return kubeletConfigs.filter(({ spec }) => {
    const selector = fieldsAt(spec, 'machineConfigPoolSelector');
    return Object.keys(selector).length > 0 && isSelected(labels, selector);
  });
}
