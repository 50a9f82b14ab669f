import { X509Certificate } from 'node:crypto';
import { messageOf, PluginError } from '#errors';
import type { Written, ConfigManifest, KubernetesObject } from './manifest.ts';

/** A CA, and the registries that it is trusted for. */
export interface RegistryAuthority {
  /** The certificates of the CAs as PEM. Other content of the text, such as a private key, is left out. */
  readonly certificates: string;
  /** The hosts, with their ports, of the registries whose certificates it signs. */
  readonly registries: readonly string[];
  /** The name of the ConfigMap; by default the name in `image.config.openshift.io/cluster`, if it has one. */
  readonly name?: string;
}

/** The path of the ConfigMap’s file. */
export const registryAuthorityPath = 'config/update-service/registry-ca.yaml';

/** The name of the ConfigMap if the cluster has none yet. */
export const registryAuthorityName = 'mirror-registry-ca';

/**
 * The key under which the update service looks for its registry’s CAs (cincinnati-operator, `NameCertConfigMapKey`).
 */
const updateServiceKey = 'updateservice-registry';

const certificatePattern = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+?-----END CERTIFICATE-----/g;

// The API server stores no larger objects.
const sizeLimit = 1024 * 1024;

/**
 * Returns the ConfigMap by which a cluster trusts registries; `image.config.openshift.io/cluster` names it in
 * `spec.additionalTrustedCA`. It has a key for each registry (`host..port`, because a key cannot have a colon) and one
 * for the update service. Throws `invalid-file` for a text without a valid certificate, `usage` for a host that cannot
 * be a key, and `too-large`.
 */
export function registryAuthorityConfigMap({
  certificates,
  registries,
  name = registryAuthorityName,
}: RegistryAuthority): ConfigManifest {
  const text = normalizeCertificates(certificates);
  const keys = [...new Set([updateServiceKey, ...registries.map(keyOf)])];
  if (keys.length * text.length > sizeLimit) {
    throw new PluginError('too-large', `the certificate authorities are larger than a ConfigMap may be`, {
      hint: 'Give a file with the registry’s own certificate authority only.',
    });
  }
  return {
    path: registryAuthorityPath,
    object: {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name, namespace: 'openshift-config' },
      data: Object.fromEntries(keys.map((key) => [key, text])),
    } satisfies Written<'ConfigMap'>,
  };
}

/**
 * Adds to a ConfigMap with the CAs of registries the CAs of other registries in the stored object. Returns other
 * objects unchanged.
 */
export function keepAuthorities(
  object: KubernetesObject,
  stored: Readonly<Record<string, unknown>> | undefined,
): KubernetesObject {
  const { namespace } = object.metadata;
  const data = object['data'] as Readonly<Record<string, string>> | undefined;
  if (object.kind !== 'ConfigMap' || namespace !== 'openshift-config' || data?.[updateServiceKey] === undefined) {
    return object;
  }
  return { ...object, data: { ...(stored?.['data'] as object | undefined), ...data } };
}

function keyOf(registry: string): string {
  const key = registry.replace(/:(?=\d+$)/, '..');
  if (/^[\w.-]+$/.test(key)) return key;
  const message = `a cluster cannot trust a certificate authority for ${registry}: it is not a host name`;
  const hint = 'Give the registry a name and use that.';
  throw new PluginError('usage', message, { hint });
}

function normalizeCertificates(text: string): string {
  const certificates = text.match(certificatePattern) ?? [];
  if (certificates.length === 0) {
    throw new PluginError('invalid-file', 'the certificate authority has no certificate', {
      hint: 'Give a PEM file: it has lines that say BEGIN CERTIFICATE and END CERTIFICATE.',
    });
  }
  return [...new Set(certificates.map(readCertificate))].join('');
}

function readCertificate(pem: string, index: number): string {
  try {
    return new X509Certificate(pem).toString();
  } catch (cause) {
    const which = `certificate ${index + 1} of the certificate authority`;
    throw new PluginError('invalid-file', `${which} is malformed: ${messageOf(cause)}`, { cause });
  }
}
