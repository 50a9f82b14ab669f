import { existsSync } from 'node:fs';
import { chmod, mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { drillFile, executablePath } from '../../../lib/node/machine/host.ts';
import { requestsFile } from '../../../lib/node/runtime/drillRegistry.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import type { TestApiServer } from '../kubernetes/apiServer.ts';
import { pod } from './site.ts';

const systemctl = (root: string, state: string): string => `#!/bin/bash
case "$*" in
  *is-active*) [ -e ${state}/drill ] ;;
  *LoadState*) echo not-found ;;
  *MainPID*) cat ${state}/pid ;;
  *'restart crio'*) [ -e ${state}/stuck ] || echo $(($(cat ${state}/pid) + 1)) > ${state}/pid ;;
  reboot) touch ${state}/rebooted ;;
  stop*) rm -f ${state}/drill ${root}${drillFile} ;;
esac
`;

const systemdRun = (root: string, state: string): string => `#!/bin/bash
touch ${state}/drill
[ -e ${state}/short ] || touch ${root}${drillFile}
`;

/**
 * A node that is a folder, in which the pod of its agent runs real commands. Only systemd is a script: it starts no
 * drill and restarts no container runtime, and has their state in files.
 */
export class ScriptedNode {
  readonly name: string;
  readonly #folder: string;

  private constructor(name: string, folder: string) {
    this.name = name;
    this.#folder = folder;
  }

  /** Adds the node to a server that has its Node object, with a running agent. */
  static async start(server: TestApiServer, name: string): Promise<ScriptedNode> {
    const node = new ScriptedNode(name, await makeFolder());
    const [root, state, bin] = ['root', 'state', 'bin'].map((each) => join(node.#folder, each)) as [
      string,
      string,
      string,
    ];
    for (const path of [state, bin, dirname(node.path(drillFile)), dirname(node.path(requestsFile))]) {
      await mkdir(path, { recursive: true });
    }
    await writeFile(join(state, 'pid'), '100\n');
    const programs = {
      [join(bin, 'chroot')]: '#!/bin/bash\nshift\nexec "$@"\n',
      [join(bin, 'systemctl')]: systemctl(root, state),
      [join(bin, 'systemd-run')]: systemdRun(root, state),
      [node.path(executablePath)]: '',
    };
    for (const [path, text] of Object.entries(programs)) {
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, text);
      await chmod(path, 0o755);
    }
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
    server.put(node.agent('agent-1'));
    server.nodeRoots.set(name, root);
    server.podCommands.set(name, ['env', `PATH=${bin}:/usr/bin:/bin`]);
    return node;
  }

  /** Returns a running pod of the agent. */
  agent(name: string): ReturnType<typeof pod> {
    const spec = { nodeName: this.name, containers: [{ name: 'agent', image: 'quay.io/site/agent:1' }] };
    return pod(name, 'oc-upgrade-bundle', spec, 'DaemonSet/agent');
  }

  /** Returns the path of a file of the node on this machine. */
  path(file: string): string {
    return join(this.#folder, 'root', file);
  }

  /** Whether systemd runs a drill, and whether it was told to reboot. */
  has(state: 'drill' | 'rebooted'): boolean {
    return existsSync(join(this.#folder, 'state', state));
  }

  /** Makes drills end at once (`short`), or the container runtime not restart (`stuck`). */
  async break(how: 'short' | 'stuck'): Promise<void> {
    await writeFile(join(this.#folder, 'state', how), '');
  }

  async close(): Promise<void> {
    await removeFolder(this.#folder);
  }

  /** Removes a file of the node. */
  async remove(file: string): Promise<void> {
    await rm(this.path(file));
  }
}
