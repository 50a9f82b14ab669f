import { fieldsAt, fieldsOf, textOf, type Fields } from '../../fields.ts';
import { nameSome } from '../../failures.ts';
import type { Finding } from '../../cluster/finding.ts';
import { isSelected } from '../../cluster/labelSelector.ts';
import { parseQuantity } from './node.ts';
import type { ClusterSurvey } from './survey.ts';

/** The kubelet removes images from this part of the disk on, and evicts pods below the other (kubelet defaults). */
const defaults = { imageGCHighThresholdPercent: 85, evictionHard: { 'imagefs.available': '15%' } };

const advice = {
  age: 'Set imageMaximumGCAge to 0s until the update ends: kubelets remove images that no pod has used yet, unless they are pinned.',
  disk: 'Make room, or raise the threshold until the update ends: kubelets remove images that are loaded and not yet pinned.',
};

/** What an update adds to the file system of the images, in bytes. */
type AddedBytes = number;

/**
 * Finds kubelets that would remove loaded images: by age, from a part of the disk on, or because they evict pods. Reads
 * the running configuration of each kubelet, or the KubeletConfig of its pool. `added`: what an update loads. The limits
 * are those of Kubernetes (pkg/kubelet/images/image_gc_manager.go, pkg/kubelet/eviction).
 */
export function checkImageRemoval(survey: RemovalSurvey, added: AddedBytes): Finding[] {
  const groups = new Map<string, { readonly advice: string; readonly nodes: string[] }>();
  for (const { metadata } of survey.nodes)
    for (const [message, advised] of describeRemoval(survey, metadata.name, added)) {
      const group = groups.get(message) ?? { advice: advised, nodes: [] };
      group.nodes.push(metadata.name);
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

function describeRemoval(survey: RemovalSurvey, node: string, added: number): [message: string, advice: string][] {
  const settings = survey.kubelets.get(node) ?? configOf(survey, node);
  const age = textOf(settings['imageMaximumGCAge']) ?? '0s';
  const isAged = /[1-9]/.test(age);
  const by = `its kubelet removes images that no pod uses after ${age} (imageMaximumGCAge)`;
  return [
    ...(isAged ? [[by, advice.age] as [string, string]] : []),
    ...describeThresholds(survey, node, settings, added),
  ];
}

function describeThresholds(
  { disks }: RemovalSurvey,
  node: string,
  settings: Fields,
  added: number,
): [message: string, advice: string][] {
  const { free, size } = disks.get(node)?.images ?? { free: 0 };
  if (size === undefined) return [];
  const high = Number(settings['imageGCHighThresholdPercent'] ?? defaults.imageGCHighThresholdPercent);
  const least =
    textOf(fieldsOf(settings['evictionHard'])['imagefs.available']) ?? defaults.evictionHard['imagefs.available'];
  const evicts = least.endsWith('%') ? (Number.parseFloat(least) / 100) * size : (parseQuantity(least) ?? 0);
  const used = Math.round((100 * (size - free + added)) / size);
  const when = added > 0 ? 'will be used once the bundle is loaded' : 'are used';
  return [
    ...(used > high
      ? [
          [
            `its kubelet removes images above ${high} % of the disk (imageGCHighThresholdPercent), and ${used} % ${when}`,
            advice.disk,
          ] as [string, string],
        ]
      : []),
    ...(free - added < evicts
      ? [
          [
            `its kubelet evicts pods and removes images below ${least} of free space (evictionHard imagefs.available), and ${Math.max(0, 100 - used)} % ${added > 0 ? 'stay' : 'are'} free`,
            advice.disk,
          ] as [string, string],
        ]
      : []),
  ];
}

/** Merges the KubeletConfigs of the pool of a node, the oldest first, as the machine config operator does. */
function configOf({ kubeletConfigs, pools, poolNodes, nodes }: RemovalSurvey, node: string): Fields {
  const stated = textOf(fieldsAt(poolNodes.find(({ metadata }) => metadata.name === node)?.['spec'], 'pool')['name']);
  const labels = fieldsOf(nodes.find(({ metadata }) => metadata.name === node)?.metadata.labels);
  const role = 'node-role.kubernetes.io/master' in labels ? 'master' : 'worker';
  const name = stated ?? role;
  const pool = pools.find(({ metadata }) => metadata.name === name);
  // The machine config operator labels its pools like this.
  const own = { [`pools.operator.machineconfiguration.openshift.io/${name}`]: '', ...pool?.metadata.labels };
  const chosen = kubeletConfigs.filter(({ spec }) => {
    const selector = fieldsAt(spec, 'machineConfigPoolSelector');
    return Object.keys(selector).length > 0 && isSelected(own, selector);
  });
  return Object.assign({}, ...chosen.map(({ spec }) => fieldsAt(spec, 'kubeletConfig'))) as Fields;
}
