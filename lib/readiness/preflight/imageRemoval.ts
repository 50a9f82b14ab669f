import { fieldsAt, fieldsOf, textOf, type Fields } from '../../fields.ts';
import { nameSome } from '../../failures.ts';
import type { Finding } from '../../cluster/finding.ts';
import { isSelected } from '../../cluster/labelSelector.ts';
import type { StoredObject } from '../../cluster/storedObject.ts';
import { parseQuantity } from './node.ts';
import type { FileSystem } from './nodeDisks.ts';
import type { ClusterSurvey } from './survey.ts';

/** The kubelet removes images from this part of the disk on, and evicts pods below the other (kubelet defaults). */
const defaults = { imageGCHighThresholdPercent: 85, evictionHard: { 'imagefs.available': '15%' } };

const advice = {
  age: 'Agents hold images before they load them, so nothing removes them. To load without agents, pin the bundle first, or set imageMaximumGCAge to 0s until the update ends.',
  disk: 'Make room, or raise the threshold until the update ends: images of other releases and workloads are removed, and before OpenShift 4.16 loaded images that are not pinned yet.',
};

/**
 * Finds kubelets that would remove loaded images: by age, from a part of the disk on, or because they evict pods. Reads
 * the running configuration of each kubelet, or the KubeletConfig of its pool. `added`: the bytes that an update adds to
 * the file system of the images. The limits are those of Kubernetes (pkg/kubelet/images/image_gc_manager.go,
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

type RemovalSurvey = Pick<ClusterSurvey, 'nodes' | 'disks' | 'kubelets' | 'kubeletConfigs' | 'pools' | 'poolNodes'>;

/** What a kubelet does with images, and what helps. */
type Removal = readonly [message: string, advice: string];

function describeRemoval(survey: RemovalSurvey, node: StoredObject, added: number): Removal[] {
  const settings = survey.kubelets.get(node.metadata.name) ?? configOf(survey, node);
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
  const frees = `its kubelet evicts pods and removes images below ${least} of free space (evictionHard imagefs.available), and ${Math.max(0, 100 - used)} % ${added > 0 ? 'stay' : 'are'} free`;
  const found = [...(used > high ? [removes] : []), ...(free - added < evicts ? [frees] : [])];
  return found.map((message) => [message, advice.disk]);
}

/** Merges the KubeletConfigs of the pool of a node, the oldest first, as the machine config operator does. */
function configOf({ kubeletConfigs, pools, poolNodes }: RemovalSurvey, node: StoredObject): Fields {
  const own = poolNodes.find(({ metadata }) => metadata.name === node.metadata.name);
  const stated = textOf(fieldsAt(own?.['spec'], 'pool')['name']);
  const role = 'node-role.kubernetes.io/master' in fieldsOf(node.metadata.labels) ? 'master' : 'worker';
  const name = stated ?? role;
  const pool = pools.find(({ metadata }) => metadata.name === name);
  // The machine config operator labels its pools like this.
  const labels = { [`pools.operator.machineconfiguration.openshift.io/${name}`]: '', ...pool?.metadata.labels };
  const chosen = kubeletConfigs.filter(({ spec }) => {
    const selector = fieldsAt(spec, 'machineConfigPoolSelector');
    return Object.keys(selector).length > 0 && isSelected(labels, selector);
  });
  return Object.assign({}, ...chosen.map(({ spec }) => fieldsAt(spec, 'kubeletConfig'))) as Fields;
}
