/** A kind as an API server serves it. */
export interface ApiKind {
  /** '' for the core group. */
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  /** Its name in URLs. */
  readonly resource: string;
  readonly namespaced: boolean;
  /** Whether `status` is written through a subresource of its own. */
  readonly status?: boolean;
  /** Whether it came by a CustomResourceDefinition, whose objects are stricter about updates. */
  readonly custom?: boolean;
}

const core = { group: '', version: 'v1' } as const;
const config = { group: 'config.openshift.io', version: 'v1', namespaced: false, custom: true } as const;

/** The kinds of any Kubernetes cluster that tests need. */
export const kubernetesKinds: readonly ApiKind[] = [
  { ...core, kind: 'Namespace', resource: 'namespaces', namespaced: false, status: true },
  { ...core, kind: 'ConfigMap', resource: 'configmaps', namespaced: true },
  { ...core, kind: 'Secret', resource: 'secrets', namespaced: true },
  { ...core, kind: 'ServiceAccount', resource: 'serviceaccounts', namespaced: true },
  { ...core, kind: 'Node', resource: 'nodes', namespaced: false, status: true },
  {
    group: 'apiextensions.k8s.io',
    version: 'v1',
    kind: 'CustomResourceDefinition',
    resource: 'customresourcedefinitions',
    namespaced: false,
    status: true,
  },
];

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

/** The kinds that OpenShift adds, as of a version: the newer mirror sets came with 4.13. */
export function openshiftKinds(minor: number): ApiKind[] {
  const mirrorSets: ApiKind[] = [
    { ...config, kind: 'ImageDigestMirrorSet', resource: 'imagedigestmirrorsets', status: true },
    { ...config, kind: 'ImageTagMirrorSet', resource: 'imagetagmirrorsets', status: true },
  ];
  return [
    { ...config, kind: 'ClusterVersion', resource: 'clusterversions', status: true },
    { ...config, kind: 'ClusterOperator', resource: 'clusteroperators', status: true },
    { ...config, kind: 'Image', resource: 'images', status: true },
    {
      group: 'operator.openshift.io',
      version: 'v1alpha1',
      kind: 'ImageContentSourcePolicy',
      resource: 'imagecontentsourcepolicies',
      namespaced: false,
      custom: true,
    },
    ...(minor >= 13 ? mirrorSets : []),
  ];
}

/** `v1` or `config.openshift.io/v1`. */
export function apiVersionOf({ group, version }: Pick<ApiKind, 'group' | 'version'>): string {
  return group === '' ? version : `${group}/${version}`;
}

/** The kinds that a CustomResourceDefinition defines, one for each version that it serves. */
export function kindsOfDefinition(definition: Readonly<Record<string, unknown>>): ApiKind[] {
  const spec = definition['spec'] as {
    group: string;
    scope: string;
    names: { kind: string; plural: string };
    versions: { name: string; served: boolean; subresources?: { status?: object } }[];
  };
  return spec.versions
    .filter(({ served }) => served)
    .map(({ name, subresources }) => ({
      group: spec.group,
      version: name,
      kind: spec.names.kind,
      resource: spec.names.plural,
      namespaced: spec.scope === 'Namespaced',
      status: subresources?.status !== undefined,
      custom: true,
    }));
}
