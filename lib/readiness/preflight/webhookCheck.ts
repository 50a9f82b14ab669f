import { evaluate } from '@marcbachmann/cel-js';
import { subjectOf, type Finding, type Weight } from '#cluster/finding';
import { isSelected, type StoredObject } from '#cluster/objects';
import { blocks } from '#cluster/version';
import { nameSome } from '#errors';
import { fieldsAt, fieldsOf, isFields, listOf, textOf, textsOf, type Fields } from '#fields';
import { shellCommand } from '#text';
import type { ClusterSurvey } from './survey.ts';

const advice = {
  none: (kind: string, name: string): string =>
    'Bring its pods up, or let the API server do without it until the update ends (failurePolicy: Ignore): ' +
    shellCommand`oc edit ${kind.toLowerCase()} ${name}`,
  one:
    'Run a second replica on another node. While that node is drained and restarted, the API server refuses ' +
    'every new pod that the webhook is for.',
};

/** The resources that the version operator and the operators of OpenShift write during an update, by API group. */
const platformResources: ReadonlyMap<string, readonly string[]> = new Map([
  [
    '',
    [
      'pods',
      'services',
      'configmaps',
      'secrets',
      'serviceaccounts',
      'endpoints',
      'namespaces',
      'nodes',
      'pods/eviction',
      'pods/binding',
      'nodes/status',
      'pods/status',
    ],
  ],
  ['apps', ['deployments', 'daemonsets', 'statefulsets', 'replicasets']],
  ['batch', ['jobs', 'cronjobs']],
  ['policy', ['poddisruptionbudgets']],
  ['rbac.authorization.k8s.io', ['roles', 'rolebindings', 'clusterroles', 'clusterrolebindings']],
  ['apiextensions.k8s.io', ['customresourcedefinitions']],
  ['apiregistration.k8s.io', ['apiservices']],
  ['scheduling.k8s.io', ['priorityclasses']],
  ['storage.k8s.io', ['storageclasses', 'csidrivers']],
  ['config.openshift.io', ['clusteroperators', 'clusterversions']],
  ['machineconfiguration.openshift.io', ['machineconfigs', 'machineconfigpools', 'controllerconfigs']],
  ['operator.openshift.io', ['kubeapiservers', 'etcds']],
]);

/** The resources without a namespace among them. The API server asks no webhook about webhook configurations. */
const clusterScoped = new Set([
  'namespaces',
  'nodes',
  'nodes/status',
  'clusterroles',
  'clusterrolebindings',
  'customresourcedefinitions',
  'apiservices',
  'priorityclasses',
  'storageclasses',
  'csidrivers',
  'clusteroperators',
  'clusterversions',
  'machineconfigs',
  'machineconfigpools',
  'controllerconfigs',
  'kubeapiservers',
  'etcds',
]);

const platformNamespaces = /^(?:openshift(?:-|$)|kube-system$)/;
/** The label of an EndpointSlice with the name of its Service (Kubernetes, discovery.k8s.io/v1). */
const serviceLabel = 'kubernetes.io/service-name';

/** The objects that decide which webhooks an update meets. */
export type WebhookSurvey = Pick<
  ClusterSurvey,
  'validatingWebhooks' | 'mutatingWebhooks' | 'endpointSlices' | 'namespaces' | 'workloads'
>;

/**
 * Finds webhooks that must answer (failurePolicy Fail), if no pod of their Service is ready. They block if they are for
 * objects that the operators of OpenShift write during an update, by their rules, selectors and conditions as the API
 * server reads them (Kubernetes, apiserver/pkg/admission/plugin/webhook). A webhook that matches nothing an update
 * changes is not reported. Also finds webhooks for new pods whose own pods are all on one node.
 */
export function checkWebhooks(survey: WebhookSurvey): Finding[] {
  return [...survey.validatingWebhooks, ...survey.mutatingWebhooks].flatMap((object) =>
    listOf(object['webhooks']).flatMap((webhook) => checkWebhook(object, webhook, survey)),
  );
}

/** Returns the namespaces of the Services of webhooks that must answer. */
export function listServiceNamespaces(configurations: readonly StoredObject[]): string[] {
  const services = configurations.flatMap((object) =>
    listOf(object['webhooks']).flatMap((each) => serviceOf(each) ?? []),
  );
  return [...new Set(services.map(({ namespace }) => namespace))];
}

/** Returns whether a webhook without a ready pod chooses among pods, so that the pods decide whether it blocks. */
export function dependsOnPods({
  validatingWebhooks,
  mutatingWebhooks,
  endpointSlices,
}: Omit<WebhookSurvey, 'workloads' | 'namespaces'>): boolean {
  const webhooks = [...validatingWebhooks, ...mutatingWebhooks].flatMap((object) => listOf(object['webhooks']));
  return webhooks.some((webhook) => {
    const service = serviceOf(webhook);
    const chooses =
      Object.keys(fieldsOf(webhook['objectSelector'])).length > 0 || listOf(webhook['matchConditions']).length > 0;
    return service !== undefined && chooses && listReady(service, endpointSlices).length === 0;
  });
}

function checkWebhook(object: StoredObject, webhook: Fields, survey: WebhookSurvey): Finding[] {
  const service = serviceOf(webhook);
  const rules = listOf(webhook['rules']);
  if (!service || rules.length === 0) return [];
  const ready = listReady(service, survey.endpointSlices);
  const find = (weight: Weight, message: string, advised: string): Finding[] => [
    { check: 'admission', ...weight, subject: subjectOf(object), message, advice: advised },
  ];
  const what = `${textOf(webhook['name']) ?? ''} (failurePolicy Fail)`;
  const where = `service ${service.name} in ${service.namespace}`;
  if (ready.length === 0) {
    const reach = reachOf(webhook, survey);
    if (reach === 'nothing') return [];
    const resources = [...new Set(rules.flatMap(({ resources: own }) => textsOf(own)))];
    const message = `${what} has no ready pod (${where}): the API server refuses to change ${nameSome(resources)}`;
    const weight = reach === 'platform' ? blocks('webhook') : ({ severity: 'warning' } as const);
    return find(weight, message, advice.none(object.kind, object.metadata.name));
  }
  const nodes = new Set(ready.map(({ nodeName }) => textOf(nodeName) ?? ''));
  const [node = ''] = nodes;
  const selected = survey.namespaces.filter((namespace) => isNamespaceSelected(webhook, namespace));
  if (nodes.size > 1 || node === '' || !rules.some(isForNewPods) || selected.length === 0) return [];
  const isForItself = selected.some(({ metadata: { name } }) => name === service.namespace);
  const own = isForItself ? ', and it is for its own pods too' : '';
  return find({ severity: 'warning' }, `${what} has all its pods on ${node} (${where})${own}`, advice.one);
}

function listReady(service: { name: string; namespace: string }, endpointSlices: readonly StoredObject[]): Fields[] {
  return endpointSlices
    .filter(
      ({ metadata }) => metadata.namespace === service.namespace && metadata.labels?.[serviceLabel] === service.name,
    )
    .flatMap((slice) => listOf(slice['endpoints']))
    .filter(({ conditions }) => fieldsOf(conditions)['ready'] !== false);
}

/**
 * Returns what of an update a webhook certainly judges: objects of the platform, only pods of others, or nothing.
 * Conditions that cannot be evaluated here count as met, but are not certain.
 */
function reachOf(webhook: Fields, survey: WebhookSurvey): 'platform' | 'others' | 'nothing' {
  let reach: 'others' | 'nothing' = 'nothing';
  for (const each of listAdmitted(webhook, survey)) {
    const isMet = isSelected(each.labels, fieldsOf(webhook['objectSelector'])) && matchesConditions(webhook, each);
    if (isMet === true && (each.namespace === undefined || platformNamespaces.test(each.namespace))) return 'platform';
    if (isMet !== false) reach = 'others';
  }
  return reach;
}

/** Lists objects that an update writes, or makes others write, and that the rules and namespaces of a webhook name. */
function* listAdmitted(webhook: Fields, survey: WebhookSurvey): Generator<AdmittedObject> {
  const rules = listOf(webhook['rules']);
  const namespaces = survey.namespaces.filter((namespace) => isNamespaceSelected(webhook, namespace));
  const names = new Set(namespaces.map(({ metadata: { name } }) => name));
  for (const [group, resources] of platformResources) {
    for (const resource of resources) {
      const operations = operationsOf(rules, group, resource);
      for (const operation of operations) {
        const about = { group, resource, operation };
        if (resource === 'namespaces')
          // The selector for namespaces is for the labels of the namespace itself.
          for (const { metadata } of namespaces) yield { ...about, name: metadata.name, labels: labelsOf(metadata) };
        else if (clusterScoped.has(resource)) yield { ...about, name: 'cluster', labels: {} };
        else if (resource === 'pods') yield* listPods(about, survey.workloads, names);
        else
          for (const namespace of names)
            // Drains evict the pods of all namespaces; the rest are objects of the platform.
            if (resource === 'pods/eviction' || platformNamespaces.test(namespace))
              yield { ...about, name: 'object', namespace, labels: {} };
      }
    }
  }
}

/** Lists the pods that a webhook sees: those of its namespaces, by the labels that their successors get too. */
function* listPods(
  about: Pick<AdmittedObject, 'group' | 'resource' | 'operation'>,
  workloads: readonly StoredObject[],
  namespaces: ReadonlySet<string>,
): Generator<AdmittedObject> {
  const pods = workloads.filter(({ kind, metadata }) => kind === 'Pod' && namespaces.has(metadata.namespace ?? ''));
  for (const object of pods) {
    const { name, namespace = '' } = object.metadata;
    yield { ...about, name, namespace, labels: labelsOf(object.metadata), object };
  }
  // A namespace of the platform whose pods were not read still has some, without labels of others.
  for (const namespace of namespaces)
    if (platformNamespaces.test(namespace)) yield { ...about, name: 'object', namespace, labels: {} };
}

function labelsOf({ labels = {} }: { readonly labels?: Fields }): Fields {
  return labels;
}

function isNamespaceSelected(webhook: Fields, { metadata: { name, labels } }: StoredObject): boolean {
  const own = { ...labels, 'kubernetes.io/metadata.name': name };
  return isSelected(own, fieldsOf(webhook['namespaceSelector']));
}

/**
 * Returns the operations of an update that rules name for a resource. Versions do not count (matchPolicy Equivalent).
 */
function operationsOf(rules: readonly Fields[], group: string, resource: string): string[] {
  const isScoped = (scope: unknown): boolean =>
    scope === undefined || scope === '*' || (scope === 'Cluster') === clusterScoped.has(resource);
  const [, part] = resource.split('/');
  const patterns = [
    resource,
    '*/*',
    ...(part === undefined ? ['*'] : [`*/${part}`]),
    `${resource.split('/')[0] ?? ''}/*`,
  ];
  const operations = rules
    .filter(({ apiGroups, resources, scope }) => {
      const isGroup = textsOf(apiGroups).some((each) => each === group || each === '*');
      return isGroup && isScoped(scope) && textsOf(resources).some((each) => patterns.includes(each));
    })
    .flatMap((rule) => textsOf(rule['operations']));
  const usual = part === 'eviction' || part === 'binding' ? ['CREATE'] : ['CREATE', 'UPDATE', 'DELETE'];
  return usual.filter((each) => operations.includes(each) || operations.includes('*'));
}

/** Returns the Service of a webhook that must answer; undefined for one that need not, and for one outside. */
function serviceOf({ failurePolicy = 'Fail', clientConfig }: Fields): { name: string; namespace: string } | undefined {
  const { name, namespace } = fieldsAt(clientConfig, 'service');
  return failurePolicy === 'Fail' && typeof name === 'string' && typeof namespace === 'string' && isFields(clientConfig)
    ? { name, namespace }
    : undefined;
}

function isForNewPods({ apiGroups, resources, operations }: Fields): boolean {
  const has = (list: unknown, ...names: string[]): boolean => textsOf(list).some((each) => names.includes(each));
  return has(apiGroups, '', '*') && has(resources, 'pods', '*', '*/*') && has(operations, 'CREATE', '*');
}

/** A write that the API server admits during an update. */
interface AdmittedObject {
  readonly group: string;
  /** The resource, with its subresource: `pods/eviction`. */
  readonly resource: string;
  readonly operation: string;
  readonly name: string;
  /** Undefined for an object without a namespace. */
  readonly namespace?: string;
  readonly labels: Fields;
  /** The whole object, if it was read. */
  readonly object?: Fields;
}

/** The accounts that write during an update: controllers make pods, and the version operator writes the rest. */
const accounts = {
  pods: 'system:serviceaccount:kube-system:replicaset-controller',
  others: 'system:serviceaccount:openshift-cluster-version:default',
};

/**
 * Returns whether a webhook’s `matchConditions` are met by a write: the API server asks the webhook only if each is
 * true (Kubernetes, KEP-3716). Undefined if one cannot be evaluated here, and none is false.
 */
function matchesConditions(webhook: Fields, admitted: AdmittedObject): boolean | undefined {
  const results = listOf(webhook['matchConditions']).map(({ expression }) => {
    const text = textOf(expression);
    return text === undefined ? undefined : evaluateCondition(text, admitted);
  });
  if (results.includes(false)) return false;
  return results.every((result) => result === true) ? true : undefined;
}

function evaluateCondition(expression: string, admitted: AdmittedObject): boolean | undefined {
  const { group, resource, operation, name, namespace, labels, object } = admitted;
  const [main = '', subResource = ''] = resource.split('/');
  const username = main === 'pods' && subResource === '' ? accounts.pods : accounts.others;
  const metadata = { name, labels, ...(namespace !== undefined && { namespace }) };
  const present = object ?? { metadata };
  const [, , serviceNamespace = ''] = username.split(':');
  const request = {
    operation,
    name,
    namespace: namespace ?? '',
    subResource,
    requestSubResource: subResource,
    dryRun: false,
    resource: { group, version: 'v1', resource: main },
    requestResource: { group, version: 'v1', resource: main },
    userInfo: {
      username,
      groups: ['system:serviceaccounts', `system:serviceaccounts:${serviceNamespace}`, 'system:authenticated'],
    },
  };
  try {
    const result: unknown = evaluate(expression, {
      object: operation === 'DELETE' ? null : present,
      oldObject: operation === 'CREATE' ? null : present,
      request,
    });
    return typeof result === 'boolean' ? result : undefined;
  } catch {
    return undefined;
  }
}
