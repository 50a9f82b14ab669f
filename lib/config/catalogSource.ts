import type { WrittenAs, ConfigManifest } from './manifest.ts';

/** What is written of a CatalogSource (operator-framework/api, operators/v1alpha1, CatalogSourceSpec). */
interface CatalogSourceContent {
  readonly spec: {
    readonly sourceType: 'grpc';
    readonly image: string;
    readonly displayName: string;
    readonly grpcPodConfig: { readonly securityContextConfig: 'restricted' };
  };
}

/** What is written of a ClusterCatalog (operator-framework/operator-controller, api/v1, ClusterCatalogSpec). */
interface ClusterCatalogContent {
  readonly spec: {
    readonly availabilityMode: 'Available';
    readonly source: { readonly type: 'Image'; readonly image: { readonly ref: string } };
  };
}

// With the name of a default catalog that OperatorHub disables, the cluster's Subscriptions continue to work
// (operator-framework/operator-marketplace, defaults/).
const defaultNames: Readonly<Record<string, string>> = {
  'redhat-operator-index': 'redhat-operators',
  'certified-operator-index': 'certified-operators',
  'community-operator-index': 'community-operators',
  'redhat-marketplace-index': 'redhat-marketplace',
};

/**
 * Returns the name of the CatalogSource of a repository: that of OpenShift's default catalog, or the repository's own.
 */
export function catalogName(repository: string): string {
  const base = repository.split('/').at(-1) ?? '';
  return (
    defaultNames[base] ??
    (base
      .toLowerCase()
      .replace(/[^a-z0-9-]+/g, '-')
      .replace(/^-+|-+$/g, '')
      .slice(0, 63) ||
      'catalog')
  );
}

/**
 * Makes the CatalogSource of a catalog image by digest. Its pod never asks a registry on a node that has the image,
 * because OLM pulls an image by digest only if it is absent. There is no polling.
 */
export function catalogSourceManifest(name: string, image: string): ConfigManifest {
  return {
    path: `config/catalogs/catalogsource-${name}.yaml`,
    object: {
      apiVersion: 'operators.coreos.com/v1alpha1',
      kind: 'CatalogSource',
      metadata: { name, namespace: 'openshift-marketplace' },
      spec: { sourceType: 'grpc', image, displayName: name, grpcPodConfig: { securityContextConfig: 'restricted' } },
    } satisfies WrittenAs<'operators.coreos.com/v1alpha1', 'CatalogSource', CatalogSourceContent>,
  };
}

/** The kind of catalogs of OLM v1. */
export const clusterCatalogKind = { apiVersion: 'olm.operatorframework.io/v1', kind: 'ClusterCatalog' } as const;

/**
 * Makes the ClusterCatalog of a catalog image by digest, for OLM v1. It pulls the image from a registry, so it needs a
 * mirror. There is no polling.
 */
export function clusterCatalogManifest(name: string, image: string): ConfigManifest {
  return {
    path: `config/catalogs/clustercatalog-${name}.yaml`,
    object: {
      ...clusterCatalogKind,
      metadata: { name },
      spec: { availabilityMode: 'Available', source: { type: 'Image', image: { ref: image } } },
    } satisfies WrittenAs<'olm.operatorframework.io/v1', 'ClusterCatalog', ClusterCatalogContent>,
  };
}
