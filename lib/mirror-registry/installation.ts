import type { Scope } from '../machine/hostCommands.ts';

/** A value that an upgrade inherits, and where it stands. Lines count from 1; 0 is for what was said in an option. */
export interface Inherited<T> {
  readonly value: T;
  readonly file: string;
  readonly line: number;
}

/** What a release of the mirror registry consists of; `pause` is the pod’s own container. */
export const releaseComponents = ['quay', 'redis', 'pause'] as const;

/** One of them. */
export type ReleaseComponent = (typeof releaseComponents)[number];

/** What an installed registry consists of: those of before 2.0 have PostgreSQL too. */
export type Component = ReleaseComponent | 'postgres';

/** Something on a podman command line that the installer did not put there. */
export interface Addition extends Inherited<string> {
  readonly unit: string;
}

/** A mirror registry found on a host, as plain data. Paths are those of the host. */
export interface Installation {
  readonly scope: Scope;
  readonly unitFolder: string;
  /** The release of the mirror registry, told by the tag of Quay’s image; undefined for an image of somebody’s own. */
  readonly version: string | undefined;
  readonly quayVersion: string | undefined;
  readonly database: 'sqlite' | 'postgres';
  /** The folder that holds `quay-config`. */
  readonly quayRoot: Inherited<string>;
  /** Name or address, without brackets. */
  readonly host: Inherited<string>;
  readonly port: Inherited<number>;
  /** Volumes by name, or folders by absolute path: of the images’ content, and of the database. */
  readonly storage: Inherited<string>;
  readonly databaseStorage: Inherited<string> | undefined;
  readonly images: Readonly<Partial<Record<Component, Inherited<string>>>>;
  readonly additions: readonly Addition[];
  readonly dropIns: readonly string[];
  /** Clients talk TLS to a proxy in front of the registry (`EXTERNAL_TLS_TERMINATION`). */
  readonly externalTls: boolean;
  /** Quay serves TLS, on port 8443 of its container; else HTTP, on 8080. With a proxy in front it does so if it has a key. */
  readonly servesTls: boolean;
  /** What does not fit together, one sentence each. */
  readonly remarks: readonly string[];
}
