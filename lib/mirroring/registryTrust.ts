import { fieldsOf, textOf } from '../fields.ts';
import { registryAuthorityPath } from '../config/certificateAuthority.ts';
import type { ConfigManifest } from '../config/manifest.ts';
import type { Cluster } from '../cluster/client.ts';

const imageConfig = { apiVersion: 'config.openshift.io/v1', kind: 'Image', metadata: { name: 'cluster' } } as const;

/** Returns whether a manifest is the image configuration that names the ConfigMap with the CAs of registries. */
export function isImageConfig({ object }: ConfigManifest): boolean {
  return object.kind === imageConfig.kind && object.apiVersion === imageConfig.apiVersion;
}

/**
 * Makes the cluster use the CAs of registries in the manifests. Adds them to the ConfigMap that its image configuration
 * names. If it names none, adds a manifest that names ours. Without CAs, returns the manifests unchanged.
 */
export async function joinRegistryTrust(
  cluster: Cluster,
  manifests: readonly ConfigManifest[],
): Promise<readonly ConfigManifest[]> {
  const authority = manifests.find(({ path }) => path === registryAuthorityPath);
  if (!authority || !(await cluster.findKind(imageConfig.apiVersion, imageConfig.kind))) return manifests;
  const spec = fieldsOf((await cluster.read(imageConfig))?.['spec']);
  const name = textOf(fieldsOf(spec['additionalTrustedCA'])['name']) || authority.object.metadata.name;
  const { object } = authority;
  const joined = { ...authority, object: { ...object, metadata: { ...object.metadata, name } } };
  const trust = { ...imageConfig, spec: { additionalTrustedCA: { name } } };
  return [
    ...manifests.map((manifest) => (manifest === authority ? joined : manifest)),
    { path: 'config/update-service/image.yaml', object: trust },
  ];
}
