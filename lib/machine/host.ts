import { join } from 'node:path';

/** A machine whose image store and configuration are used: this one, or one whose file system is mounted below a folder. */
export interface Host {
  /** Where its file system begins: `/`, or `/host` in a container that has it there. */
  readonly root: string;
  /** The environment of its programs. */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** Returns a path of the host as this process has it. */
export function pathOnHost(host: Host, path: string): string {
  return join(host.root, path);
}

/** Names a host in a message. */
export function describeHost(host: Host): string {
  return host.root === '/' ? 'this machine' : `the machine at ${host.root}`;
}
