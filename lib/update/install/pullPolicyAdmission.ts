import type { V1NamedRuleWithOperations } from '@kubernetes/client-node';
import type { Json, Written } from '#config/manifest';
import { containerLists, pullAlwaysExpression, volumePullsAlwaysExpression } from '#readiness/lint';
import { probeName } from '#readiness/preflight';

/**
 * The reaction of the cluster to workloads that pull at every start: a warning to the user who creates one, or a
 * refusal.
 */
export type AdmissionMode = 'warn' | 'deny';

/** A policy, or its binding. */
export type AdmissionObject = Written<'ValidatingAdmissionPolicy' | 'ValidatingAdmissionPolicyBinding'>;

const name = 'oc-upgrade-bundle-pull-policy';

/** The policy and its binding, which an installation without them removes; the binding comes first. */
export const pullPolicyReferences = ['ValidatingAdmissionPolicyBinding', 'ValidatingAdmissionPolicy'].map((kind) => ({
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind,
  metadata: { name },
}));

const resources: readonly Json<V1NamedRuleWithOperations>[] = [
  { apiGroups: [''], apiVersions: ['v1'], resources: ['pods', 'pods/ephemeralcontainers', 'replicationcontrollers'] },
  { apiGroups: ['apps'], apiVersions: ['v1'], resources: ['deployments', 'daemonsets', 'statefulsets', 'replicasets'] },
  { apiGroups: ['batch'], apiVersions: ['v1'], resources: ['jobs', 'cronjobs'] },
];

/**
 * Returns the policy (ValidatingAdmissionPolicy, Kubernetes 1.30 and OpenShift 4.17) against containers that pull at
 * every start, and its binding. It skips objects that a controller owns, because the owner’s template has to change. So
 * running workloads can restart. It skips unchanged containers and, if it denies, OpenShift’s own namespaces. If it
 * fails, it refuses nothing.
 */
export function pullPolicyAdmission(mode: AdmissionMode): AdmissionObject[] {
  const policy: AdmissionObject = {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'ValidatingAdmissionPolicy',
    metadata: { name },
    spec: {
      failurePolicy: 'Ignore',
      matchConstraints: { resourceRules: resources.map(writesOf) },
      matchConditions: [
        {
          name: 'no-controller-made-it',
          expression:
            '!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o, ' +
            'has(o.controller) && o.controller)',
        },
        {
          name: 'not-the-probe-of-preflight',
          expression: `!has(request.dryRun) || !request.dryRun || object.metadata.name != '${probeName}'`,
        },
        ...(mode === 'deny' ? [{ name: 'not-openshift-itself', expression: notPlatform }] : []),
      ],
      variables: [
        { name: 'pod', expression: podOf('object') },
        { name: 'oldPod', expression: `oldObject == null ? {} : (${podOf('oldObject')})` },
        { name: 'always', expression: alwaysIn('variables.pod') },
        { name: 'before', expression: alwaysIn('variables.oldPod') },
        {
          name: 'news',
          expression: 'variables.always.filter(c, !variables.before.exists(o, o.name == c.name && o.image == c.image))',
        },
      ],
      validations: [
        {
          expression: 'size(variables.news) == 0',
          messageExpression:
            "'pulls from a registry at every start, and this cluster has no registry: ' + " +
            "variables.news.map(c, (has(c.imagePullPolicy) ? 'container ' : 'image volume ') + c.name).join(', " +
            "') + '; set IfNotPresent as the pull policy'",
          reason: 'Invalid',
        },
      ],
    },
  };
  const binding: AdmissionObject = {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'ValidatingAdmissionPolicyBinding',
    metadata: { name },
    spec: { policyName: name, validationActions: mode === 'deny' ? ['Deny'] : ['Warn', 'Audit'] },
  };
  return [policy, binding];
}

function writesOf(resources: Json<V1NamedRuleWithOperations>): Json<V1NamedRuleWithOperations> {
  return { ...resources, operations: ['CREATE', 'UPDATE'] };
}

const notPlatform = "!request.namespace.startsWith('openshift-') && !request.namespace.startsWith('kube-')";

function podOf(object: string): string {
  const template = `${object}.spec.jobTemplate.spec.template.spec : ${object}.spec.template.spec`;
  return `${object}.kind == 'Pod' ? ${object}.spec : ${object}.kind == 'CronJob' ? ${template}`;
}

function alwaysIn(pod: string): string {
  const all = containerLists.map(([list]) => `(has(${pod}.${list}) ? ${pod}.${list} : [])`).join(' + ');
  const volumes = `(has(${pod}.volumes) ? ${pod}.volumes : []).filter(v, ${volumePullsAlwaysExpression('v')})`;
  return `(${all}).filter(c, ${pullAlwaysExpression('c')}) + ${volumes}`;
}
