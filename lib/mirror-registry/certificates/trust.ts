import { isIP } from 'node:net';
import { registryAuthorityConfigMap } from '../../config/certificateAuthority.ts';
import { formatManifest } from '../../config/manifest.ts';
import type { Installation } from '../installation.ts';

/** What clients and clusters need in order to trust a registry. */
export interface TrustOutputs {
  /** The authorities, in PEM. */
  readonly certificates: string;
  /** Lines for install-config.yaml. */
  readonly installConfig: string;
  /** A ConfigMap in openshift-config, for `additionalTrustedCA` of `image.config.openshift.io/cluster`; none for an address of IPv6. */
  readonly configMap: string | undefined;
  /** Where podman, skopeo and CRI-O look for the authorities. */
  readonly certsFolder: string;
}

/** Makes all forms in which others want to be told of a registry’s authorities. Throws `invalid-file` for a text without any. */
export function formatTrust(certificates: string, { host, port }: Installation): TrustOutputs {
  const isIpv6 = isIP(host.value) === 6;
  const registry = `${isIpv6 ? `[${host.value}]` : host.value}:${port.value}`;
  const indented = certificates.trimEnd().replace(/^/gm, '  ');
  return {
    certificates,
    installConfig: `additionalTrustBundle: |\n${indented}\nadditionalTrustBundlePolicy: Always\n`,
    // No key of a ConfigMap can hold such an address.
    configMap: isIpv6
      ? undefined
      : formatManifest(registryAuthorityConfigMap({ certificates, registries: [registry] }).object),
    certsFolder: `/etc/containers/certs.d/${registry}/ca.crt`,
  };
}
