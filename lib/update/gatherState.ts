import { checkInterrupted, type Context } from '../context.ts';
import { asFailure } from '../errors.ts';
import { fieldsAt, fieldsOf, listOf, textsOf, isFields } from '../fields.ts';
import type { Cluster } from '../cluster/client.ts';
import type { StoredObject } from '../cluster/fields.ts';
import { agentNamespace, reportNamespace, upgradeBundleKind } from './upgradeBundle.ts';

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

/** The number of lines from the end of each log. */
const tailLines = 5000;

/**
 * Reads the state of an update for a person who cannot reach the cluster: records, reports, events, image lists
 * and logs. Leaves out secrets. The last file, `failures.txt`, has what could not be read. Throws `interrupted`.
 */
export async function* gatherState(cluster: Cluster, context: Context): AsyncGenerator<GatheredFile> {
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
      if (kind === 'Node') yield* listImages(objects);
      const list = kind === 'Node' ? objects.map(withoutImages) : objects;
      yield {
        path: `objects/${kind.toLowerCase()}${place}.json`,
        content: `${JSON.stringify(list.map(redactObject), undefined, 2)}\n`,
      };
    }
  }
  for (const { metadata, spec, status } of pods) {
    const { name, namespace = '' } = metadata;
    for (const container of listOf(fieldsOf(spec)['containers']).map((each) => String(each['name']))) {
      const own = listOf(fieldsOf(status)['containerStatuses']).find((each) => each['name'] === container);
      for (const previous of Number(own?.['restartCount'] ?? 0) > 0 ? [false, true] : [false]) {
        const path = `logs/${namespace}/${name}/${container}${previous ? '.previous' : ''}.log`;
        const log = await attempt(path, () => cluster.readLog({ name, namespace }, { container, tailLines, previous }));
        if (log !== undefined) yield { path, content: redactText(log) };
      }
    }
  }
  yield { path: 'failures.txt', content: failures.map((line) => `${redactText(line)}\n`).join('') };
}

function listImages(nodes: readonly StoredObject[]): GatheredFile[] {
  return nodes.map(({ metadata, status }) => ({
    path: `nodes/${metadata.name}-images.txt`,
    content: listOf(fieldsOf(status)['images'])
      .map(({ names, sizeBytes }) => `${String(sizeBytes)} ${textsOf(names).join(' ')}\n`)
      .join(''),
  }));
}

function withoutImages({ status, ...node }: StoredObject): StoredObject {
  return { ...node, status: { ...fieldsAt({ status }, 'status'), images: undefined } };
}

const redacted = 'REDACTED';

/** Patterns of secrets in logs and objects, and what replaces each. */
const secrets: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----/g, redacted],
  // Tokens of accounts (JWT).
  [/\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g, redacted],
  [/\b(Bearer|Basic)\s+(?!REDACTED)[\w+/=.~-]{6,}/gi, `$1 ${redacted}`],
  // Users and passwords in URLs, such as those of proxies.
  [/(\b[a-z][\w+.-]*:\/\/)[^\s/"'@]+@/gi, `$1${redacted}@`],
  [
    /((?:password|passwd|token|secret|auth|credential|api[-_]?key)\\?["']?\s*[:=]\s*\\?["']?)[^\s"'\\,;{}[\]]{4,}/gi,
    `$1${redacted}`,
  ],
];

/** Names of settings whose values are secret. */
const secretName = /password|passwd|token|secret|credential|(?:^|[_-])auth$|[_-]key$/i;

/** Returns a text without secrets: private keys, tokens, passwords, and credentials in URLs. */
export function redactText(text: string): string {
  return secrets.reduce((all, [pattern, replacement]) => all.replace(pattern, replacement), text);
}

/**
 * Returns an object of a cluster without secrets: without values of variables with a secret name, without data of
 * Secrets, and without the copies that clients keep of it.
 */
export function redactObject(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(redactObject);
  if (typeof value === 'string') return redactText(value);
  if (!isFields(value)) return value;
  const isSecret = value['kind'] === 'Secret';
  const isSecretVariable = typeof value['name'] === 'string' && secretName.test(value['name']);
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, each]) => {
      if (key === 'managedFields' || key === 'kubectl.kubernetes.io/last-applied-configuration') return [];
      if (isSecret && (key === 'data' || key === 'stringData')) return [];
      if (isSecretVariable && key === 'value') return [[key, redacted]];
      return [
        [key, typeof each === 'string' && secretName.test(key) && !/name$/i.test(key) ? redacted : redactObject(each)],
      ];
    }),
  );
}
