import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import { chmod, cp, lstat, mkdir, readFile, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { executablePath } from '../../../lib/node/machine/host.ts';
import { run, runSuccessfully } from '../../support/peers.ts';
import { compileCache, executableOf } from '../../support/program/executables.ts';

const project = fileURLToPath(new URL('../../..', import.meta.url));

/**
 * Where a node has the project and the folder of Node.js. Units may not see those of this machine, below /home or /tmp.
 */
const places = { project: '/srv/project', node: '/srv/node' };

/** The units of a node: a container runtime that asks for images when it starts, by the real library of registries. */
const units = {
  'crio.service': [
    '[Service]',
    'Type=notify',
    'NotifyAccess=all',
    'ExecStart=/usr/local/bin/crio',
    'ExecReload=/bin/kill -HUP $MAINPID',
    'TimeoutStopSec=5',
    '',
  ].join('\n'),
  'multi-user.target': '[Unit]\nAllowIsolate=yes\n',
};

/**
 * Each start and reload is a line in /var/log/crio, with the images that it could not get. Starts while /etc/crio-slow
 * exists.
 */
const runtime = `#!/bin/bash
[ "$1" = status ] && { echo 'storage graph root: /var/lib/containers/storage'; exit; }
say() { echo "$1 $([ -e /etc/containers/registries.conf.d/9999-oc-upgrade-bundle-drill.conf ] && echo redirected || echo free)" >> /var/log/crio; }
trap 'say reloaded' HUP
say started
# Without a drill, there may be no network.
limit=3; [ -e /etc/containers/registries.conf.d/9999-oc-upgrade-bundle-drill.conf ] && limit=60
for image in $(cat /etc/crio-pulls 2>/dev/null); do
  timeout $limit skopeo inspect "docker://$image" >> /var/log/pulls 2>&1
done
# The pods of the node, as a pull policy and an image each, in the real image store.
while read -r policy image; do
  podman create --quiet --replace --name pod --pull=$policy --network=none "$image" /true > /dev/null 2>> /var/log/crio-pods && echo "created $image" >> /var/log/crio-pods
done < <(cat /etc/crio-pods 2>/dev/null)
while [ -e /etc/crio-slow ]; do sleep 0.1; done
systemd-notify --ready
while :; do sleep 1 & wait $!; done
`;

/**
 * A node with systemd as its first process: in namespaces of its own, on an overlay of this machine’s file system that
 * survives power cuts. Only for root.
 */
export class SystemdNode {
  readonly name: string;
  /** The path of its file system in its own mount namespace, and of what it changed on this machine. */
  readonly root: string;
  readonly #upper: string;
  /** The cgroups of the node in the hierarchies of systemd, so that nodes do not share one. */
  readonly #groups: readonly string[];
  readonly #folder: string;
  readonly #isAlone: boolean;
  #child: ChildProcess | undefined;
  #init = 0;

  private constructor(name: string, folder: string, isAlone: boolean) {
    this.name = name;
    this.#isAlone = isAlone;
    this.#folder = folder;
    this.root = join(folder, 'root');
    this.#upper = join(folder, 'changes');
    this.#groups = ['/sys/fs/cgroup', '/sys/fs/cgroup/systemd']
      .filter((hierarchy) => existsSync(join(hierarchy, 'cgroup.procs')))
      .map((hierarchy) => join(hierarchy, `node-${basename(dirname(folder))}`));
  }

  /**
   * Creates a node in a folder. `files` are further files by their paths. If it is `isAlone`, it has no network but its
   * own loopback interface; else it has that of this machine.
   */
  static async make(
    name: string,
    folder: string,
    files: Readonly<Record<string, string>>,
    isAlone = false,
  ): Promise<SystemdNode> {
    const node = new SystemdNode(name, folder, isAlone);
    for (const each of ['root', 'changes', 'work', 'images', 'temporary']) await mkdir(join(folder, each));
    const executable = join(places.project, relative(project, executableOf('oc-adm_upgrade_bundle')));
    const program =
      `#!/bin/sh\nNODE_COMPILE_CACHE='${join(places.project, relative(project, compileCache))}' exec ` +
      `'${join(places.node, basename(process.execPath))}' '${executable}' "$@"\n`;
    const all = {
      ...files,
      ...Object.fromEntries(Object.entries(units).map(([unit, text]) => [`/etc/systemd/system/${unit}`, text])),
      '/usr/local/bin/crio': runtime,
      [executablePath]: program,
    };
    for (const [path, text] of Object.entries(all)) {
      await mkdir(dirname(join(node.#upper, path)), { recursive: true });
      await writeFile(join(node.#upper, path), text);
    }
    for (const path of ['/usr/local/bin/crio', executablePath]) await chmod(join(node.#upper, path), 0o755);
    return node;
  }

  /** Whether it runs. */
  get isUp(): boolean {
    return this.#child?.exitCode === null && this.#child.signalCode === null;
  }

  /** The command before each program that a privileged pod with the process namespace of the node runs. */
  get podCommand(): readonly string[] {
    return ['nsenter', `--target=${this.#init}`, '--mount', '--pid', '--'];
  }

  /** Boots, and waits until systemd has started everything. */
  async boot(): Promise<void> {
    const { root } = this;
    const own = `/sys/fs/cgroup`;
    const script = [
      'set -e',
      ...(this.#isAlone ? ['ip link set lo up'] : []),
      `mount -t overlay overlay -o 'lowerdir=/,upperdir=${this.#upper},workdir=${this.#folder}/work' '${root}'`,
      `cd '${root}'`,
      'mkdir -p var/lib/containers',
      // Image stores need a file system that is no overlay.
      `mount --bind '${this.#folder}/images' var/lib/containers`,
      'mount -t proc proc proc',
      'mount -t sysfs -o ro sysfs sys',
      'mount -t tmpfs tmpfs run',
      'mount -t tmpfs tmpfs tmp',
      // Other tests load images on this machine meanwhile, and have their locks there.
      `mount --bind '${this.#folder}/temporary' var/tmp`,
      // Without the sticky bit, in which a /dev/null of another owner could not be opened as a new file.
      'mount -t tmpfs -o mode=755 tmpfs dev',
      `mkdir -p '.${places.project}' '.${places.node}'`,
      `mount --rbind '${project}' '.${places.project}'`,
      `mount --rbind '${dirname(process.execPath)}' '.${places.node}'`,
      'for each in null zero full random urandom tty; do : > dev/$each; mount --bind /dev/$each dev/$each; done',
      // Units with PrivateDevices= do not start without them.
      'mkdir dev/pts; mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts; ln -s pts/ptmx dev/ptmx',
      `if [ -e ${own}/cgroup.procs ]; then mount -t cgroup2 cgroup2 .${own}; else`,
      `  mount -t tmpfs tmpfs .${own}; mkdir .${own}/systemd`,
      `  mount -t cgroup -o none,name=systemd cgroup .${own}/systemd`,
      // Otherwise systemd mounts hierarchies that all nodes share, and ends units of other nodes.
      `  mount -o remount,ro .${own}; fi`,
      // Nothing of this machine’s own services.
      'rm -rf lib/systemd/system/*.wants usr/lib/systemd/system/*.wants lib/systemd/system-generators ' +
        'usr/lib/systemd/system-generators',
      'for each in etc/systemd/system/*; do case $each in ' +
        '*oc-upgrade-bundle*|*.wants|*/crio.service|*/multi-user.target) ;; *) rm -rf "$each" ;; esac; done',
      'mkdir -p etc/systemd/system/multi-user.target.wants',
      'for each in etc/systemd/system/*.wants/*; do case $each in *oc-upgrade-bundle*) ;; *) rm -f "$each" ;; ' +
        'esac; done',
      'ln -sf ../crio.service etc/systemd/system/multi-user.target.wants/crio.service',
      'exec env -i container=test PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot . ' +
        '/lib/systemd/systemd --system --unit=multi-user.target --log-target=console --log-level=info ' +
        '--show-status=0',
    ].join('\n');
    for (const group of this.#groups) await mkdir(group, { recursive: true });
    const cgroup = [
      // Only builtins: a program that this shell starts would be taken for the first process of the node.
      ...this.#groups.map((group) => `echo $$ > '${group}/cgroup.procs'`),
      'exec unshare --fork --kill-child --pid --mount --uts --ipc --cgroup ' +
        `${this.#isAlone ? '--net ' : ''}--propagation=private sh -c "$1"`,
    ].join('\n');
    const log = openSync(join(this.#folder, 'console'), 'a');
    this.#child = spawn('sh', ['-c', cgroup, 'sh', script], { stdio: ['ignore', log, log] });
    closeSync(log);
    const pid = String(this.#child.pid);
    this.#init = 0;
    await this.#until(async () => {
      // Its power may be cut while it boots.
      if (!this.isUp) return true;
      if (this.#init === 0) this.#init = Number((await run('pgrep', ['-P', pid])).stdout.trim());
      if (this.#init === 0) return false;
      return /^(running|degraded)$/.test((await this.tryRun('systemctl', 'is-system-running', '--wait')).trim());
    });
  }

  /** Runs a program on the node, and returns its output; empty if it cannot run. */
  async tryRun(...command: readonly string[]): Promise<string> {
    const enter = [`--target=${this.#init}`, '--mount', '--pid', '--net', '--root', '--wd', '--', ...command];
    // The variables of tests name files of this machine.
    return (await run('nsenter', enter, { env: { PATH: process.env['PATH'] } })).stdout;
  }

  /** Cuts its power: nothing on it runs any more, and nothing was warned. */
  async cutPower(): Promise<void> {
    if (!this.#child || !this.isUp) return;
    const ended = once(this.#child, 'exit');
    process.kill(this.#init, 'SIGKILL');
    await ended;
  }

  /** Reads a file that the node has changed; undefined if it has none. */
  async read(path: string): Promise<string | undefined> {
    return readFile(join(this.#upper, path), 'utf8').catch(() => undefined);
  }

  /** Returns whether the node has a file of its own. */
  async has(path: string): Promise<boolean> {
    return lstat(join(this.#upper, path)).then(
      // What was deleted from the file system below is a device.
      (found) => !found.isCharacterDevice(),
      () => false,
    );
  }

  /** Copies a file to the node, which must not run a program that reads its folder. */
  async copy(from: string, to: string): Promise<void> {
    await cp(from, join(this.#upper, to));
  }

  /** The output of systemd. */
  get console(): Promise<string> {
    return readFile(join(this.#folder, 'console'), 'utf8').catch(() => '');
  }

  async #until(holds: () => Promise<boolean>): Promise<void> {
    const end = Date.now() + 240_000;
    while (!(await holds())) {
      if (Date.now() > end) throw new Error(`${this.name} does not get there: ${await this.console}`);
      await sleep(50);
    }
  }

  /** Removes everything. */
  async close(): Promise<void> {
    await this.cutPower();
    await run('find', [...this.#groups, '-depth', '-type', 'd', '-delete']);
    await runSuccessfully('rm', ['-rf', this.#folder]);
  }
}
