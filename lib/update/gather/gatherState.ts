import type { Cluster } from '#cluster/client';
import type { StoredObject } from '#cluster/objects';
import { digestOf } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { asFailure } from '#errors';
import { fieldsAt, fieldsOf, listOf, textsOf } from '#fields';
import { toLine } from '#text';
import { agentNamespace, reportNamespace, upgradeBundleKind } from '../record/upgradeBundle.ts';
import type { Redactor } from './redaction.ts';

/** A file of the state of an update, without secrets. */
export interface GatheredFile {
  /** A relative path with slashes. */
  readonly path: string;
  readonly content: string;
}

const machineConfigNamespace = 'openshift-machine-config-operator';
/** The namespaces whose pods and logs tell about an update. */
const podNamespaces = [agentNamespace, machineConfigNamespace, 'openshift-cluster-version'];
const config = 'config.openshift.io/v1';
const machines = 'machineconfiguration.openshift.io/v1';

/** The kinds to read, with their namespaces. None of them has secrets by itself. */
const kinds: readonly (readonly [apiVersion: string, kind: string, namespaces?: readonly string[]])[] = [
  [upgradeBundleKind.apiVersion, upgradeBundleKind.kind],
  [config, 'ClusterVersion'],
  [config, 'ClusterOperator'],
  [config, 'Infrastructure'],
  [config, 'Proxy'],
  [config, 'ImageDigestMirrorSet'],
  ['v1', 'Node'],
  [machines, 'MachineConfigPool'],
  [machines, 'MachineConfigNode'],
  [machines, 'PinnedImageSet'],
  [machines, 'OSImageStream'],
  ['operator.openshift.io/v1', 'Etcd'],
  ['policy/v1', 'PodDisruptionBudget'],
  ['certificates.k8s.io/v1', 'CertificateSigningRequest'],
  ['coordination.k8s.io/v1', 'Lease', [agentNamespace, reportNamespace, machineConfigNamespace]],
  ['apps/v1', 'DaemonSet', [agentNamespace]],
  ['v1', 'Pod', podNamespaces],
  ['v1', 'Event', [...podNamespaces, 'openshift-etcd', 'default']],
];

/** The longest name of a file in characters, without its ending and the digest of a name that is cut. */
const longestPart = 180;
/** The number of lines from the end of each log. */
const tailLines = 5000;

/**
 * Reads the state of an update for a person who cannot reach the cluster: records, reports, events, image lists
 * and logs. `redactor` leaves out secrets, and counts them. The last file, `failures.txt`, has what could not be read.
 * Throws `interrupted`.
 */
export async function* gatherState(
  cluster: Cluster,
  redactor: Redactor,
  context: Context,
): AsyncGenerator<GatheredFile> {
  const failures: string[] = [];
  const attempt = async <T>(what: string, read: () => Promise<T>): Promise<T | undefined> => {
    checkInterrupted(context.signal);
    try {
      return await read();
    } catch (error) {
      failures.push(`${what}: ${asFailure(error).message}`);
      return undefined;
    }
  };
  const pods: StoredObject[] = [];
  for (const [apiVersion, kind, namespaces = [undefined]] of kinds) {
    if (!(await attempt(kind, () => cluster.findKind(apiVersion, kind)))) continue;
    for (const namespace of namespaces) {
      const place = namespace === undefined ? '' : `-${namespace}`;
      const read = () => cluster.list(apiVersion, kind, namespace === undefined ? {} : { namespace });
      const objects = await attempt(`${kind}${place}`, read);
      if (!objects) continue;
      if (kind === 'Pod') pods.push(...objects);
      if (kind === 'Node') yield* listImages(objects, redactor);
      const list = kind === 'Node' ? objects.map(withoutImages) : objects;
      yield {
        path: `objects/${kind.toLowerCase()}${place}.json`,
        content: `${JSON.stringify(redactor.object(list), undefined, 2)}\n`,
      };
    }
  }
  for (const { metadata, spec, status } of pods) {
    const { name, namespace = '' } = metadata;
    for (const container of listOf(fieldsOf(spec)['containers']).map((each) => String(each['name']))) {
      const own = listOf(fieldsOf(status)['containerStatuses']).find((each) => each['name'] === container);
      for (const previous of Number(own?.['restartCount'] ?? 0) > 0 ? [false, true] : [false]) {
        const place = [namespace, name, container].map(pathPart).join('/');
        const path = `logs/${place}${previous ? '.previous' : ''}.log`;
        const log = await attempt(path, () => cluster.readLog({ name, namespace }, { container, tailLines, previous }));
        if (log !== undefined) yield { path, content: redactor.text(log) };
      }
    }
  }
  yield { path: 'failures.txt', content: failures.map((line) => `${redactor.text(toLine(line))}\n`).join('') };
}

function listImages(nodes: readonly StoredObject[], redactor: Redactor): GatheredFile[] {
  return nodes.map(({ metadata, status }) => ({
    path: `nodes/${pathPart(metadata.name)}-images.txt`,
    content: redactor.text(
      listOf(fieldsOf(status)['images'])
        .map(({ names, sizeBytes }) => `${String(sizeBytes)} ${textsOf(names).join(' ')}\n`)
        .join(''),
    ),
  }));
}

function withoutImages({ status, ...node }: StoredObject): StoredObject {
  return { ...node, status: { ...fieldsAt({ status }, 'status'), images: undefined } };
}

/**
 * Returns a name of the cluster as a part of a path. Encodes all characters but letters, digits, `_`, `-` and `.` as in
 * URLs, and a dot at the beginning too. Cuts a long name.
 */
function pathPart(name: string): string {
  const encoded = Array.from(name, (character, index) => {
    if (/^[\w-]$/.test(character) || (character === '.' && index > 0)) return character;
    return [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
  });
  const part = encoded.join('');
  return part.length <= longestPart ? part : `${part.slice(0, longestPart)}%${digestOf(part).slice(-12)}`;
}
