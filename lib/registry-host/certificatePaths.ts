import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import type { HostFiles } from '../node/machine/hostFiles.ts';
import type { Reference } from '../content/oci/reference.ts';
import type { Installation } from './installation.ts';

/** The paths of a registry’s certificates, as paths of the host. */
export interface CertificatePaths {
  readonly server: string;
  readonly serverKey: string;
  readonly authority: string;
  readonly authorityKey: string;
  readonly next: string;
  readonly nextKey: string;
}

/** Returns the paths of a registry’s certificates. */
export function certificatePathsOf({ quayRoot: { value: root } }: Pick<Installation, 'quayRoot'>): CertificatePaths {
  return {
    server: join(root, 'quay-config/ssl.cert'),
    serverKey: join(root, 'quay-config/ssl.key'),
    authority: join(root, 'quay-rootCA/rootCA.pem'),
    authorityKey: join(root, 'quay-rootCA/rootCA.key'),
    next: join(root, 'quay-rootCA/next/rootCA.pem'),
    nextKey: join(root, 'quay-rootCA/next/rootCA.key'),
  };
}

/**
 * Returns the CA of the registry itself if `reference` is in it, because the host may not trust it; undefined for other
 * registries.
 */
export async function ownAuthority(
  { files, installation }: { readonly files: HostFiles; readonly installation: Installation },
  { registry }: Reference,
): Promise<string | undefined> {
  const { host, port } = installation;
  const name = isIPv6(host.value) ? `[${host.value}]` : host.value;
  if (registry !== `${name}:${port.value}` && !(registry === name && port.value === 443)) return undefined;
  const { authority } = certificatePathsOf(installation);
  return (await files.exists(authority)) ? files.locate(await files.resolve(authority)) : undefined;
}
