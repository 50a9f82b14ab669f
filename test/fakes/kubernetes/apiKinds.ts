import type { ApiSchema } from './apiSchema.ts';

/** A column of `oc get`. `jsonPath` is a plain path, such as `.status.phase`. */
export interface ApiColumn {
  readonly name: string;
  readonly type: string;
  readonly jsonPath: string;
  readonly priority?: number;
}

/** A kind of an API server. */
export interface ApiKind {
  /** '' for the core group. */
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  /** Its name in URLs. */
  readonly resource: string;
  readonly namespaced: boolean;
  /** Whether `status` is written through its own subresource. */
  readonly status?: boolean;
  /** Whether a CustomResourceDefinition defines it. Updates of such objects are stricter. */
  readonly custom?: boolean;
  /** The schema of its objects. */
  readonly schema?: ApiSchema;
  /** The columns in tables of its objects, in addition to their names. */
  readonly columns?: readonly ApiColumn[];
}

const core = { group: '', version: 'v1' } as const;
const apps = { group: 'apps', version: 'v1', namespaced: true, status: true } as const;
const batch = { group: 'batch', version: 'v1', namespaced: true, status: true } as const;
const rbac = { group: 'rbac.authorization.k8s.io', version: 'v1' } as const;
const reviews = { group: 'authorization.k8s.io', version: 'v1' } as const;
const admission = { group: 'admissionregistration.k8s.io', version: 'v1', namespaced: false } as const;
const machines = {
  group: 'machineconfiguration.openshift.io',
  version: 'v1',
  namespaced: false,
  status: true,
  custom: true,
} as const;
const config = { group: 'config.openshift.io', version: 'v1', namespaced: false, custom: true } as const;

const anything = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } as const;
const nodeDisruptionPolicy = {
  ...anything,
  properties: {
    files: { type: 'array', items: anything, 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['path'] },
  },
};
/** The part of the schema that tests need: the keys of policies. */
const machineConfiguration: ApiSchema = {
  ...anything,
  properties: { spec: { ...anything, properties: { nodeDisruptionPolicy } } },
};

/** The kinds of Kubernetes that tests need. */
export const kubernetesKinds: readonly ApiKind[] = [
  { ...core, kind: 'Namespace', resource: 'namespaces', namespaced: false, status: true },
  { ...core, kind: 'ConfigMap', resource: 'configmaps', namespaced: true },
  { ...core, kind: 'Secret', resource: 'secrets', namespaced: true },
  { ...core, kind: 'Event', resource: 'events', namespaced: true },
  { ...core, kind: 'ServiceAccount', resource: 'serviceaccounts', namespaced: true },
  { ...core, kind: 'Node', resource: 'nodes', namespaced: false, status: true },
  { ...core, kind: 'Pod', resource: 'pods', namespaced: true, status: true },
  { ...core, kind: 'ReplicationController', resource: 'replicationcontrollers', namespaced: true, status: true },
  { ...core, kind: 'Service', resource: 'services', namespaced: true, status: true },
  { ...reviews, kind: 'SelfSubjectAccessReview', resource: 'selfsubjectaccessreviews', namespaced: false },
  { ...rbac, kind: 'ClusterRole', resource: 'clusterroles', namespaced: false },
  { ...rbac, kind: 'ClusterRoleBinding', resource: 'clusterrolebindings', namespaced: false },
  { ...rbac, kind: 'Role', resource: 'roles', namespaced: true },
  { ...rbac, kind: 'RoleBinding', resource: 'rolebindings', namespaced: true },
  { group: 'networking.k8s.io', version: 'v1', kind: 'NetworkPolicy', resource: 'networkpolicies', namespaced: true },
  { group: 'coordination.k8s.io', version: 'v1', kind: 'Lease', resource: 'leases', namespaced: true },
  { ...admission, kind: 'ValidatingAdmissionPolicy', resource: 'validatingadmissionpolicies', status: true },
  { ...admission, kind: 'ValidatingAdmissionPolicyBinding', resource: 'validatingadmissionpolicybindings' },
  {
    group: 'policy',
    version: 'v1',
    kind: 'PodDisruptionBudget',
    resource: 'poddisruptionbudgets',
    namespaced: true,
    status: true,
  },
  {
    group: 'certificates.k8s.io',
    version: 'v1',
    kind: 'CertificateSigningRequest',
    resource: 'certificatesigningrequests',
    namespaced: false,
    status: true,
  },
  { ...admission, kind: 'ValidatingWebhookConfiguration', resource: 'validatingwebhookconfigurations' },
  { ...admission, kind: 'MutatingWebhookConfiguration', resource: 'mutatingwebhookconfigurations' },
  { group: 'discovery.k8s.io', version: 'v1', kind: 'EndpointSlice', resource: 'endpointslices', namespaced: true },
  { ...apps, kind: 'Deployment', resource: 'deployments' },
  { ...apps, kind: 'DaemonSet', resource: 'daemonsets' },
  { ...apps, kind: 'StatefulSet', resource: 'statefulsets' },
  { ...apps, kind: 'ReplicaSet', resource: 'replicasets' },
  { ...batch, kind: 'Job', resource: 'jobs' },
  { ...batch, kind: 'CronJob', resource: 'cronjobs' },
  {
    group: 'apiextensions.k8s.io',
    version: 'v1',
    kind: 'CustomResourceDefinition',
    resource: 'customresourcedefinitions',
    namespaced: false,
    status: true,
  },
];

/** The kind that machine-config-controller of 4.23 and 5.0 waits for. */
export const osImageStreamKind: ApiKind = { ...machines, kind: 'OSImageStream', resource: 'osimagestreams' };

/** The kind of running virtual machines, which OpenShift Virtualization adds. */
export const virtualMachineKind: ApiKind = {
  group: 'kubevirt.io',
  version: 'v1',
  kind: 'VirtualMachineInstance',
  resource: 'virtualmachineinstances',
  namespaced: true,
  custom: true,
};

/** The kind of the update service’s operator. */
export const updateServiceKind: ApiKind = {
  group: 'updateservice.operator.openshift.io',
  version: 'v1',
  kind: 'UpdateService',
  resource: 'updateservices',
  namespaced: true,
  status: true,
  custom: true,
};

/** The kinds that OpenShift adds, by version: the newer mirror sets since 4.13, and pinned images since 4.19. */
export function openshiftKinds(release: string): ApiKind[] {
  const [major = 4, own = 0] = release.split('.').map(Number);
  // 5.0 is 4.23 under another name.
  const minor = major > 4 ? 23 + own : own;
  const mirrorSets: ApiKind[] = [
    { ...config, kind: 'ImageDigestMirrorSet', resource: 'imagedigestmirrorsets', status: true },
    { ...config, kind: 'ImageTagMirrorSet', resource: 'imagetagmirrorsets', status: true },
  ];
  // v1 is served from 4.20 on.
  const policies = { ...config, version: minor >= 20 ? 'v1' : 'v1alpha1' };
  const pinning: ApiKind[] = [
    { ...machines, kind: 'PinnedImageSet', resource: 'pinnedimagesets' },
    { ...machines, kind: 'MachineConfigNode', resource: 'machineconfignodes' },
  ];
  return [
    { ...config, kind: 'ClusterVersion', resource: 'clusterversions', status: true },
    { ...config, kind: 'ClusterOperator', resource: 'clusteroperators', status: true },
    { ...config, kind: 'Infrastructure', resource: 'infrastructures', status: true },
    { ...config, kind: 'Image', resource: 'images', status: true },
    { ...config, kind: 'Proxy', resource: 'proxies', status: true },
    {
      group: 'operator.openshift.io',
      version: 'v1alpha1',
      kind: 'ImageContentSourcePolicy',
      resource: 'imagecontentsourcepolicies',
      namespaced: false,
      custom: true,
    },
    {
      group: 'operator.openshift.io',
      version: 'v1',
      kind: 'Etcd',
      resource: 'etcds',
      namespaced: false,
      status: true,
      custom: true,
    },
    { ...config, kind: 'FeatureGate', resource: 'featuregates', status: true },
    { ...policies, kind: 'ClusterImagePolicy', resource: 'clusterimagepolicies', status: true },
    { ...policies, kind: 'ImagePolicy', resource: 'imagepolicies', namespaced: true, status: true },
    { ...machines, kind: 'MachineConfigPool', resource: 'machineconfigpools' },
    { ...machines, kind: 'KubeletConfig', resource: 'kubeletconfigs' },
    { ...machines, kind: 'MachineConfig', resource: 'machineconfigs', status: false },
    { ...machines, kind: 'ControllerConfig', resource: 'controllerconfigs' },
    { ...machines, kind: 'ContainerRuntimeConfig', resource: 'containerruntimeconfigs' },
    ...(minor >= 19 ? [{ ...machines, kind: 'MachineOSConfig', resource: 'machineosconfigs' }] : []),
    {
      group: 'operator.openshift.io',
      version: 'v1',
      kind: 'MachineConfiguration',
      namespaced: false,
      resource: 'machineconfigurations',
      status: true,
      custom: true,
      schema: machineConfiguration,
    },
    {
      group: 'operators.coreos.com',
      version: 'v1alpha1',
      kind: 'CatalogSource',
      resource: 'catalogsources',
      namespaced: true,
      status: true,
      custom: true,
    },
    {
      group: 'monitoring.coreos.com',
      version: 'v1',
      kind: 'ServiceMonitor',
      resource: 'servicemonitors',
      namespaced: true,
      custom: true,
    },
    {
      group: 'machine.openshift.io',
      version: 'v1beta1',
      kind: 'MachineHealthCheck',
      resource: 'machinehealthchecks',
      namespaced: true,
      status: true,
      custom: true,
    },
    {
      group: 'autoscaling.openshift.io',
      version: 'v1',
      kind: 'ClusterAutoscaler',
      resource: 'clusterautoscalers',
      namespaced: false,
      status: true,
      custom: true,
    },
    ...(minor >= 13 ? mirrorSets : []),
    ...(minor >= 19 ? pinning : []),
  ];
}

/** `v1` or `config.openshift.io/v1`. */
export function apiVersionOf({ group, version }: Pick<ApiKind, 'group' | 'version'>): string {
  return group === '' ? version : `${group}/${version}`;
}

/** The kinds that a CustomResourceDefinition defines: one for each served version. */
export function kindsOfDefinition(definition: Readonly<Record<string, unknown>>): ApiKind[] {
  const spec = definition['spec'] as {
    group: string;
    scope: string;
    names: { kind: string; plural: string };
    versions: {
      name: string;
      served: boolean;
      subresources?: { status?: object };
      schema?: { openAPIV3Schema?: ApiSchema };
      additionalPrinterColumns?: readonly ApiColumn[];
    }[];
  };
  return spec.versions
    .filter(({ served }) => served)
    .map(({ name, subresources, schema, additionalPrinterColumns: columns }) => ({
      group: spec.group,
      version: name,
      kind: spec.names.kind,
      resource: spec.names.plural,
      namespaced: spec.scope === 'Namespaced',
      status: subresources?.status !== undefined,
      custom: true,
      ...(schema?.openAPIV3Schema && { schema: schema.openAPIV3Schema }),
      ...(columns && { columns }),
    }));
}
