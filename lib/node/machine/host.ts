import { join } from 'node:path';

/**
 * A machine whose image store and configuration are used: this machine, or one whose file system is mounted below a
 * folder.
 */
export interface Host {
  /** The root of its file system: `/`, or `/host` in a container that mounts it there. */
  readonly root: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** Converts a path of the host to a path of this process. */
export function pathOnHost(host: Host, path: string): string {
  return join(host.root, path);
}

/** Returns the name of a host for messages. */
export function describeHost(host: Host): string {
  return host.root === '/' ? 'this machine' : `the machine at ${host.root}`;
}
