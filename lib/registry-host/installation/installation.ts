import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import type { Reference } from '#content/oci';
import type { HostCommands, Scope, HostFiles } from '#node/machine';

/** The files and the programs of a host. */
export interface HostAccess {
  readonly files: HostFiles;
  readonly commands: HostCommands;
}

/** A setting and its source. Lines count from 1; 0 stands for an option. */
export interface Inherited<T> {
  readonly value: T;
  readonly file: string;
  readonly line: number;
}

/** The images of a release; `pause` is the container of the pod. */
export const releaseComponents = ['quay', 'redis', 'pause'] as const;

/** The volume for the database, as installers since 2.0 create it. */
export const defaultSqliteStorage = 'sqlite-storage';

/** An image of a release. */
export type ReleaseComponent = (typeof releaseComponents)[number];

/** The containers of an installation; releases before 2.0 have PostgreSQL too. */
export type Component = ReleaseComponent | 'postgres';

/** An addition to a podman command line of the installer. */
export interface Addition extends Inherited<string> {
  readonly unit: string;
}

/** A mirror registry of a host, as plain data. Paths are paths of the host. */
export interface Installation {
  readonly scope: Scope;
  readonly unitFolder: string;
  /** The release of the mirror registry, from the tag of Quay’s image; undefined for other images. */
  readonly version: string | undefined;
  readonly quayVersion: string | undefined;
  readonly database: 'sqlite' | 'postgres';
  /** The folder with `quay-config`. */
  readonly quayRoot: Inherited<string>;
  /** The host name or address, without brackets. */
  readonly host: Inherited<string>;
  readonly port: Inherited<number>;
  /** The volumes by name, or the folders by absolute path, with the images and the database. */
  readonly storage: Inherited<string>;
  readonly databaseStorage: Inherited<string> | undefined;
  readonly images: Readonly<Partial<Record<Component, Inherited<string>>>>;
  readonly additions: readonly Addition[];
  readonly dropIns: readonly string[];
  /** Whether a proxy in front of the registry terminates TLS (`EXTERNAL_TLS_TERMINATION`). */
  readonly externalTls: boolean;
  /**
   * Whether Quay serves TLS on port 8443 of its container; else HTTP on 8080. Behind a proxy, it serves TLS if it has a
   * key.
   */
  readonly servesTls: boolean;
  /** The inconsistencies, one sentence each. */
  readonly remarks: readonly string[];
}

/** The paths of the certificates and keys of a registry on its host, in PEM. `next` is the CA that replaces it. */
export interface CertificatePaths {
  readonly server: string;
  readonly serverKey: string;
  readonly authority: string;
  readonly authorityKey: string;
  readonly next: string;
  readonly nextKey: string;
}

/** Returns where the installer keeps the certificates of a registry, below its root folder. */
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
