import { join } from 'node:path';
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
