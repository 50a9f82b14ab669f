import { fieldsAt, fieldsOf, listOf, textOf, textsOf, type Fields } from '../../fields.ts';
import { nameSome } from '../../failures.ts';
import { asFailure, ignoreFailure } from '../../errors.ts';
import type { Cluster } from '../../cluster/client.ts';
import type { StoredObject } from '../../cluster/fields.ts';
import { subjectOf, type Finding, type Severity } from '../../cluster/finding.ts';
import { problemOf } from '../lint/rule.ts';
import { forcesPulls } from '../lint/rules.ts';
import { isSelected } from './pinnedImageSets.ts';
import type { ClusterSurvey } from './survey.ts';

const advice = {
  always:
    'Take AlwaysPullImages out of enable-admission-plugins (oc get kubeapiserver cluster -o yaml), or see which mutating webhook does it ' +
    '(oc get mutatingwebhookconfigurations).',
  rewritten:
    'Exclude OpenShift’s namespaces, or these images, from the webhook or policy that does it (oc get mutatingwebhookconfigurations,mutatingadmissionpolicies): nodes have the images under their own names only.',
  unknown: 'Make sure that the admission plugin AlwaysPullImages is off: with it no pod starts without a registry.',
};

/**
 * Checks whether the cluster makes every pod pull its images, as the admission plugin AlwaysPullImages does. Creates a
 * pod in a dry run, which keeps nothing, and compares its pull policy. So the check finds every admission plugin, and
 * needs no right to read its configuration. Also finds webhooks and policies that change the images of pods.
 */
export async function checkPullAdmission(cluster: Cluster): Promise<Finding[]> {
  const subject = { kind: 'Pod', name: '*' };
  try {
    const { spec } = await cluster.create(probe, { dryRun: true });
    const [container = {}] = listOf(fieldsOf(spec)['containers']);
    const { check, severity } = forcesPulls;
    const always = `the cluster ${problemOf(forcesPulls, 'AlwaysPullImages, or a webhook')}`;
    return [
      ...(container['imagePullPolicy'] === 'Always'
        ? [{ check, severity, subject, message: always, advice: advice.always }]
        : []),
      ...findRewritten(container['image'], 'warning', probe.metadata.namespace),
      ...(await probePlatform(cluster)),
    ];
  } catch (error) {
    const message = `whether the cluster makes every pod pull its images cannot be told: ${asFailure(error).message}`;
    return [{ check: 'pull-policy', severity: 'info', subject, message, advice: advice.unknown }];
  }
}

function findRewritten(image: unknown, severity: Severity, namespace: string): Finding[] {
  if (image === probeImage) return [];
  const message = `the cluster changes the images of new pods in ${namespace}: ${probeImage} becomes ${String(image)}`;
  return [
    { check: 'admission', severity, subject: { kind: 'Pod', name: '*', namespace }, message, advice: advice.rewritten },
  ];
}

/** Creates the pod in a dry run where the pods of OpenShift are; finds nothing if that is not allowed. */
async function probePlatform(cluster: Cluster): Promise<Finding[]> {
  const namespace = 'openshift-machine-config-operator';
  const own = { ...probe, metadata: { ...probe.metadata, namespace } };
  const made = await cluster.create(own, { dryRun: true }).catch(ignoreFailure);
  return made ? findRewritten(listOf(fieldsOf(made['spec'])['containers'])[0]?.['image'], 'blocker', namespace) : [];
}

/** The name of the pod that preflight creates in a dry run. Our own policies ignore it. */
export const probeName = 'oc-disconnected-preflight';

const probeImage = `quay.io/openshift-release-dev/ocp-release@sha256:${'0'.repeat(64)}`;

const probe = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: probeName, namespace: 'default' },
  spec: {
    restartPolicy: 'Never',
    // Meets the strictest pod security standard.
    securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
    containers: [
      {
        name: 'probe',
        image: probeImage,
        imagePullPolicy: 'IfNotPresent',
        securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
      },
    ],
  },
};

const webhookAdvice = {
  none: (kind: string, name: string): string =>
    `Bring its pods up, or let the API server do without it until the update ends (failurePolicy: Ignore): oc edit ${kind.toLowerCase()} ${name}`,
  one: 'Run a second replica on another node. While that node is drained and restarted, the API server refuses every new pod that the webhook is for.',
};

/** The API groups whose objects the version operator and the operators of OpenShift write during an update. */
const platformGroups =
  /^(?:|\*|apps|batch|policy|(?:rbac\.authorization|apiextensions|admissionregistration|apiregistration|scheduling|storage)\.k8s\.io|.*\.openshift\.io)$/;
const platformNamespaces = /^(?:openshift-|kube-system$)/;
/** The label of an EndpointSlice with the name of its Service (Kubernetes, discovery.k8s.io/v1). */
const serviceLabel = 'kubernetes.io/service-name';

/**
 * Finds webhooks that must answer (failurePolicy Fail), if no pod of their Service is ready. They block if they are for
 * objects that the operators of OpenShift write during an update. Also finds webhooks for new pods whose own pods are
 * all on one node.
 */
export function checkWebhooks(
  survey: Pick<ClusterSurvey, 'validatingWebhooks' | 'mutatingWebhooks' | 'endpointSlices' | 'namespaces'>,
): Finding[] {
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

function checkWebhook(
  object: StoredObject,
  webhook: Fields,
  { endpointSlices, namespaces }: Pick<ClusterSurvey, 'endpointSlices' | 'namespaces'>,
): Finding[] {
  const service = serviceOf(webhook);
  const rules = listOf(webhook['rules']);
  if (!service || rules.length === 0) return [];
  const endpoints = endpointSlices
    .filter(
      ({ metadata }) => metadata.namespace === service.namespace && metadata.labels?.[serviceLabel] === service.name,
    )
    .flatMap((slice) => listOf(slice['endpoints']));
  const ready = endpoints.filter(({ conditions }) => fieldsOf(conditions)['ready'] !== false);
  const nodes = new Set(ready.map(({ nodeName }) => textOf(nodeName) ?? ''));
  const selected = namespaces.flatMap(({ metadata: { name, labels } }) =>
    isSelected({ ...labels, 'kubernetes.io/metadata.name': name }, fieldsOf(webhook['namespaceSelector']))
      ? [name]
      : [],
  );
  const isForPlatform =
    rules.some(({ apiGroups }) => textsOf(apiGroups).some((group) => platformGroups.test(group))) &&
    selected.some((name) => platformNamespaces.test(name));
  const find = (severity: Finding['severity'], message: string, advised: string): Finding[] => [
    { check: 'admission', severity, subject: subjectOf(object), message, advice: advised },
  ];
  const what = `${textOf(webhook['name']) ?? ''} (failurePolicy Fail)`;
  const where = `service ${service.name} in ${service.namespace}`;
  if (ready.length === 0) {
    const resources = [...new Set(rules.flatMap(({ resources: own }) => textsOf(own)))];
    const message = `${what} has no ready pod (${where}): the API server refuses to change ${nameSome(resources)}`;
    return find(isForPlatform ? 'blocker' : 'warning', message, webhookAdvice.none(object.kind, object.metadata.name));
  }
  const [node = ''] = nodes;
  if (nodes.size > 1 || node === '' || !rules.some(isForNewPods) || selected.length === 0) return [];
  const own = selected.includes(service.namespace) ? ', and it is for its own pods too' : '';
  return find('warning', `${what} has all its pods on ${node} (${where})${own}`, webhookAdvice.one);
}

/** Returns the Service of a webhook that must answer; undefined for one that need not, and for one outside. */
function serviceOf({ failurePolicy = 'Fail', clientConfig }: Fields): { name: string; namespace: string } | undefined {
  const { name, namespace } = fieldsAt(clientConfig, 'service');
  return failurePolicy === 'Fail' && typeof name === 'string' && typeof namespace === 'string'
    ? { name, namespace }
    : undefined;
}

function isForNewPods({ apiGroups, resources, operations }: Fields): boolean {
  const has = (list: unknown, ...names: string[]): boolean => textsOf(list).some((each) => names.includes(each));
  return has(apiGroups, '', '*') && has(resources, 'pods', '*', '*/*') && has(operations, 'CREATE', '*');
}
