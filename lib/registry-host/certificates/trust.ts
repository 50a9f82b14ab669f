import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { registryAuthorityConfigMap } from '../../config/certificateAuthority.ts';
import { formatManifest } from '../../config/manifest.ts';
import type { Installation } from '../installation.ts';

/** The CAs of a registry in the forms that clients and clusters need. */
export interface TrustOutputs {
  /** The CAs, in PEM. */
  readonly certificates: string;
  /** Lines for install-config.yaml. */
  readonly installConfig: string;
  /**
   * A ConfigMap in openshift-config, for `additionalTrustedCA` of `image.config.openshift.io/cluster`; undefined for an
   * IPv6 address.
   */
  readonly configMap: string | undefined;
  /** The path at which podman, skopeo and CRI-O expect the CAs. */
  readonly certsFolder: string;
}

/**
 * Formats the CAs of a registry for clusters and hosts, without any text between the certificates, which may be from
 * Quay’s user. Throws `invalid-file` for a text without a certificate.
 */
export function formatTrust(text: string, { host, port }: Installation): TrustOutputs {
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  const certificates = blocks.map((block) => new X509Certificate(block).toString()).join('');
  const isIpv6 = isIP(host.value) === 6;
  const registry = `${isIpv6 ? `[${host.value}]` : host.value}:${port.value}`;
  const indented = certificates.trimEnd().replace(/^/gm, '  ');
  return {
    certificates,
    installConfig: `additionalTrustBundle: |\n${indented}\nadditionalTrustBundlePolicy: Always\n`,
    // Keys of a ConfigMap cannot have colons.
    configMap: isIpv6
      ? undefined
      : formatManifest(registryAuthorityConfigMap({ certificates, registries: [registry] }).object),
    certsFolder: `/etc/containers/certs.d/${registry}/ca.crt`,
  };
}
