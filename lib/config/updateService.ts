import { parseReference, parseRepository } from '#content/oci';
import { PluginError } from '#errors';
import { registryAuthorityConfigMap, registryAuthorityName } from './certificateAuthority.ts';
import type { WrittenAs, ConfigManifest } from './manifest.ts';

/** The content of an update service in a cluster, and the CAs that it trusts. */
export interface UpdateServiceOptions {
  /** The repository, with its registry, that has the release images by tag. */
  readonly releases: string;
  /** The graph-data image by digest. */
  readonly graphDataImage: string;
  /** The certificates of the registries’ CAs in PEM. */
  readonly certificateAuthority?: string;
  /**
   * The name of the ConfigMap for them; by default the name that `image.config.openshift.io/cluster` already has, if
   * any.
   */
  readonly certificateAuthorityName?: string;
  readonly name?: string;
  readonly namespace?: string;
}

/** The default name and namespace of the update service. The namespace is the operator’s default. */
const updateServiceDefaults = { name: 'update-service', namespace: 'openshift-update-service' } as const;

/** What is written of an UpdateService (openshift/cincinnati-operator, api/v1, UpdateServiceSpec). */
type UpdateService = WrittenAs<
  'updateservice.operator.openshift.io/v1',
  'UpdateService',
  { readonly spec: { readonly replicas: number; readonly releases: string; readonly graphDataImage: string } }
>;

const hostLabelLimit = 63;

/**
 * Returns the UpdateService and, if a CA is given, the ConfigMap with it. The operator (cincinnati-operator) creates
 * the rest. Throws `usage` if the host name of its route would be too long, `invalid-reference`, and the errors of
 * `registryAuthorityConfigMap`.
 */
export function updateServiceManifests(options: UpdateServiceOptions): ConfigManifest[] {
  const { releases, graphDataImage, certificateAuthority, certificateAuthorityName } = options;
  const { name = updateServiceDefaults.name, namespace = updateServiceDefaults.namespace } = options;
  const repository = parseRepository(releases);
  const graphData = parseReference(graphDataImage);
  if (graphData.digest === undefined) {
    throw new PluginError('invalid-reference', `the graph-data image ${graphDataImage} is not named by digest`);
  }
  checkName(name, namespace);
  const updateService: ConfigManifest = {
    path: 'config/update-service/updateservice.yaml',
    object: {
      apiVersion: 'updateservice.operator.openshift.io/v1',
      kind: 'UpdateService',
      metadata: { name, namespace },
      // Two replicas, so that one keeps running while a node is drained. The operator creates a
      // disruption budget for two or more.
      spec: { replicas: 2, releases: `${repository.registry}/${repository.repository}`, graphDataImage },
    } satisfies UpdateService,
  };
  if (certificateAuthority === undefined) return [updateService];
  const authority = registryAuthorityConfigMap({
    certificates: certificateAuthority,
    registries: [repository.registry, graphData.registry],
    name: certificateAuthorityName,
  });
  return [updateService, authority];
}

/**
 * Formats the commands that make a cluster trust the CAs of the registries. They add to the ConfigMap that the cluster
 * already names. Empty without CAs.
 */
export function formatTrustInstructions({ certificateAuthority }: UpdateServiceOptions): string {
  if (certificateAuthority === undefined) return '';
  const data = `"$(oc -n openshift-config get configmap ${registryAuthorityName} -o jsonpath='{.data}')"`;
  return [
    'To make the cluster trust the registry, when the configuration is applied:',
    '',
    `    name="$(oc get image.config.openshift.io cluster -o jsonpath='{.spec.additionalTrustedCA.name}')"`,
    `    oc -n openshift-config patch configmap "\${name:=${registryAuthorityName}}" --type=merge -p ` +
      `'{"data":'${data}'}'`,
    '    oc patch image.config.openshift.io cluster --type=merge -p ' +
      `'{"spec":{"additionalTrustedCA":{"name":"'"$name"'"}}}'`,
  ].join('\n');
}

/**
 * Formats the commands that make a cluster use the update service. They change objects of the cluster, and need values
 * that are only known when the service runs.
 */
export function formatUpdateServiceInstructions(options: UpdateServiceOptions): string {
  const { name = updateServiceDefaults.name, namespace = updateServiceDefaults.namespace } = options;
  const address = (field: string): string =>
    `"$(oc -n ${namespace} get updateservice ${name} -o jsonpath='{.status.${field}}')"`;
  return [
    'To make the cluster ask the update service for updates, when it runs:',
    '',
    `    uri=${address('policyEngineURI')}`,
    `    oc patch clusterversion version --type=merge -p '{"spec":{"upstream":"'"$uri"'/api/upgrades_info/v1/graph"}}'`,
    '',
    'To make the cluster look for release signatures there, if the versions of both support it:',
    '',
    `    uri=${address('metadataURI')}`,
    '    oc patch clusterversion version --type=merge -p ' +
      `'{"spec":{"signatureStores":[{"url":"'"$uri"'/api/upgrades_info/signatures"}]}}'`,
  ].join('\n');
}

/**
 * Checks the name of an update service. The first label of its route’s host has the name of the route and the
 * namespace. NAME-policy-engine-route is the longest name of a route in any version of the operator.
 */
function checkName(name: string, namespace: string): void {
  const longest = hostLabelLimit - `-policy-engine-route-${namespace}`.length;
  if (/^[a-z](?:[a-z0-9-]*[a-z0-9])?$/.test(name) && name.length <= longest) return;
  throw new PluginError('usage', `“${name}” cannot be the name of an update service in ${namespace}`, {
    hint:
      `Take at most ${longest} lower-case letters, digits and dashes, a letter first: it becomes part of a host ` +
      'name.',
  });
}
