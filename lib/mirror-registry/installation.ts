import type { Scope } from '../machine/hostCommands.ts';

/** A setting and its source. Lines count from 1; 0 means an option. */
export interface Inherited<T> {
  readonly value: T;
  readonly file: string;
  readonly line: number;
}

/** The images of a release; `pause` is the container of the pod. */
export const releaseComponents = ['quay', 'redis', 'pause'] as const;

/** One of them. */
export type ReleaseComponent = (typeof releaseComponents)[number];

/** The containers of an installation; releases before 2.0 have PostgreSQL too. */
export type Component = ReleaseComponent | 'postgres';

/** An addition to a podman command line of the installer. */
export interface Addition extends Inherited<string> {
  readonly unit: string;
}

/** A mirror registry of a host, as plain data. Paths of the host. */
export interface Installation {
  readonly scope: Scope;
  readonly unitFolder: string;
  /** The release of the mirror registry, from the tag of Quay’s image; undefined for other images. */
  readonly version: string | undefined;
  readonly quayVersion: string | undefined;
  readonly database: 'sqlite' | 'postgres';
  /** The folder that contains `quay-config`. */
  readonly quayRoot: Inherited<string>;
  /** Name or address, without brackets. */
  readonly host: Inherited<string>;
  readonly port: Inherited<number>;
  /** Volumes by name, or folders by absolute path, with the images and the database. */
  readonly storage: Inherited<string>;
  readonly databaseStorage: Inherited<string> | undefined;
  readonly images: Readonly<Partial<Record<Component, Inherited<string>>>>;
  readonly additions: readonly Addition[];
  readonly dropIns: readonly string[];
  /** A proxy in front of the registry terminates TLS (`EXTERNAL_TLS_TERMINATION`). */
  readonly externalTls: boolean;
  /**
   * Quay serves TLS on port 8443 of its container, else HTTP on 8080. Behind a proxy, it serves TLS if it has a key.
   */
  readonly servesTls: boolean;
  /** Inconsistencies, one sentence each. */
  readonly remarks: readonly string[];
}
