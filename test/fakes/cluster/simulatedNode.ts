import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { screenFile } from '../../../lib/node/machine/host.ts';
import { Drives } from '../../support/loopDevice.ts';
import { runSuccessfully } from '../../support/peers.ts';
import { compileCache, executableOf } from '../../support/program/executables.ts';
import { writeBackupPrograms } from './backupPrograms.ts';

/** The information about the cluster that the pod of a node has. */
export interface NodePlace {
  readonly name: string;
  /** The address of its pod. */
  readonly address: string;
  readonly port: number;
  /** `127.0.0.1:PORT` of the API server. */
  readonly api: string;
  /** The CA of its certificate, in PEM. */
  readonly authority: string;
  /** The accounts of its pods: `agent`, and on the control plane `controller`. Their tokens are `<account> <node>`. */
  readonly accounts: readonly string[];
  /** The shared secret of the agents. */
  readonly token: string;
  /** The files of its pod, by path. */
  readonly files: ReadonlyMap<string, string>;
  /** Additional options for the agent. */
  readonly options: readonly string[];
  /** Whether its storage.conf has an additional store. */
  readonly additionalStore: boolean;
}

/**
 * A simulated node on this machine: a mount namespace with its own /var, /home, /run and changes of /etc. The agent is
 * a real process of the executable, and loads into a real image store. The node has its own USB drives.
 */
export class SimulatedNode {
  readonly name: string;
  readonly drives: Drives;
  readonly #folder: string;
  readonly #place: NodePlace;
  #child: ChildProcess | undefined;
  #controller: ChildProcess | undefined;
  #output = '';

  private constructor(place: NodePlace, folder: string, drives: Drives) {
    this.name = place.name;
    this.drives = drives;
    this.#place = place;
    this.#folder = folder;
  }

  /** Creates the node’s file system in a new folder. Starts nothing. */
  static async make(place: NodePlace, folder: string): Promise<SimulatedNode> {
    const secrets = join(folder, 'secrets-agent');
    await mkdir(join(folder, 'var/lib'), { recursive: true });
    await mkdir(join(folder, 'var/tmp'));
    await mkdir(join(folder, 'media'));
    await mkdir(join(folder, 'home'));
    await symlink('/run', join(folder, 'var/run'));
    for (const account of place.accounts) {
      const own = [
        ['kubernetes.io/serviceaccount/token', `${account} ${place.name}`],
        ['kubernetes.io/serviceaccount/ca.crt', place.authority],
        ...[...place.files].map(([path, content]) => [relative('/run/secrets', path), content]),
      ] as [string, string][];
      for (const [path, content] of own) {
        const file = join(folder, `secrets-${account}`, path);
        await mkdir(dirname(file), { recursive: true });
        await writeFile(file, content);
      }
    }
    await mkdir(join(secrets, 'oc-upgrade-bundle'));
    await writeFile(join(secrets, 'oc-upgrade-bundle/token'), `${place.token}\n`);
    const drives = join(folder, 'drives');
    await mkdir(drives);
    await mkdir(join(folder, 'etc.work'));
    await mkdir(join(folder, 'etc/containers'), { recursive: true });
    // By default, the podman of all nodes has its locks in /dev/shm of this machine.
    await writeFile(join(folder, 'etc/containers/containers.conf'), '[engine]\nlock_type = "file"\n');
    if (place.additionalStore) await addStore(folder);
    const node = new SimulatedNode(place, folder, await Drives.open(drives));
    const systemctl = join(drives, 'bin/systemctl');
    await writeFile(systemctl, `#!/bin/sh\necho "$@" >> '${join(folder, 'systemctl')}'\n`);
    await chmod(systemctl, 0o755);
    const agetty = join(drives, 'bin/agetty');
    const record = `{ cat '${screenFile}' 2>/dev/null; printf '\\0'; } >> '${join(folder, 'screens')}'`;
    await writeFile(agetty, `#!/bin/sh\n[ "$*" = --reload ] && ${record}\n`);
    await chmod(agetty, 0o755);
    await writeBackupPrograms(join(drives, 'bin'));
    return node;
  }

  /** The output of its agents so far. */
  get output(): string {
    return this.#output;
  }

  /** Whether its agent is running. */
  get runs(): boolean {
    return this.#child?.exitCode === null && this.#child.signalCode === null;
  }

  /** The path of the node’s image store on this machine. */
  get store(): string {
    return join(this.#folder, 'var/lib/containers/storage');
  }

  /** Returns a path of the node on this machine: a file in /var, or a file that was written to /etc. */
  pathOf(path: string): string {
    return join(this.#folder, path);
  }

  /** Returns the calls of systemctl. */
  async systemctl(): Promise<string[]> {
    const text = await readFile(join(this.#folder, 'systemctl'), 'utf8').catch(() => '');
    return text.split('\n').filter((line) => line !== '');
  }

  /** Returns what its login screen has said, one text after the other; empty while it said nothing. */
  async screens(): Promise<string[]> {
    const text = await readFile(join(this.#folder, 'screens'), 'utf8').catch(() => '');
    return text
      .split('\0')
      .slice(0, -1)
      .map((each) => each.trim());
  }

  /**
   * Runs a program on the node, with its file system and without a network. Returns its output. The agent must be
   * running.
   */
  async run(program: string, ...args: string[]): Promise<string> {
    const pid = String(this.#child?.pid);
    // The variables of tests name files of this machine.
    const env = { PATH: process.env['PATH'], HOME: this.#folder };
    return runSuccessfully('unshare', ['-n', 'nsenter', '--mount', '--target', pid, program, ...args], { env });
  }

  /** The folder of the agent’s copies. */
  get state(): string {
    return join(this.#folder, 'var/lib/oc-upgrade-bundle');
  }

  /** Boots the node: starts the agent in its own mount namespace. */
  start(): void {
    const { address, port, accounts, options } = this.#place;
    const media = `--media-folder=${join(this.#folder, 'media')}`;
    this.#child = this.#spawn('agent', [
      `--listen=${address.includes(':') ? `[${address}]` : address}:${port}`,
      media,
      ...options,
    ]);
    const isTrust = (option: string): boolean =>
      /^--(signature-keyring|trust-fingerprint|allow-unsigned|reports)/.test(option);
    if (accounts.includes('controller')) this.#controller = this.#spawn('controller', options.filter(isTrust));
  }

  #spawn(account: string, options: readonly string[]): ChildProcess {
    const { name, api } = this.#place;
    const [host = '', apiPort = ''] = api.split(':');
    const program = [process.execPath, executableOf('oc-adm_upgrade_bundle'), account, '--interval=1', ...options];
    // Only one process can mount the changes of /etc. The controller does not need them.
    const etc = `lowerdir=/etc,upperdir=${this.#folder}/etc,workdir=${this.#folder}/etc.work`;
    const script = [
      'set -e',
      `mount --bind '${this.#folder}/var' /var`,
      `mount --bind '${this.#folder}/home' /home`,
      ...(account === 'agent' ? [`mount -t overlay overlay -o '${etc}' /etc`] : []),
      'mount -t tmpfs tmpfs /run',
      'mkdir -p /run/secrets',
      `cp -r '${this.#folder}/secrets-${account}/.' /run/secrets`,
      `exec "$@"`,
    ];
    const child = spawn(
      'unshare',
      ['--mount', '--propagation=private', 'sh', '-c', script.join('\n'), 'sh', ...program],
      {
        stdio: ['ignore', 'pipe', 'pipe'],
        // A process group, so that its children can be killed too, as in a power failure.
        detached: true,
        env: {
          PATH: this.drives.path,
          HOME: this.#folder,
          NODE_COMPILE_CACHE: compileCache,
          NODE_NAME: name,
          KUBERNETES_SERVICE_HOST: host,
          KUBERNETES_SERVICE_PORT: apiPort,
        },
      },
    );
    const collect = (chunk: Buffer): void => void (this.#output += chunk.toString());
    child.stdout.on('data', collect);
    child.stderr.on('data', collect);
    return child;
  }

  /**
   * Kills the agent, and the controller if the node has one; with `everything` also their children, as a power failure
   * does.
   */
  async kill(what: 'agent' | 'everything' = 'agent'): Promise<void> {
    for (const child of [this.#controller, this.#child]) {
      if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) continue;
      const closed = once(child, 'exit');
      process.kill(what === 'agent' ? child.pid : -child.pid, 'SIGKILL');
      await closed;
    }
    this.#output += '\n--- killed\n';
  }

  /** Stops the agent with a signal, and returns its exit code. */
  async stop(): Promise<number | null> {
    const child = this.#child;
    if (!child || !this.runs) return child?.exitCode ?? null;
    const closed = once(child, 'exit');
    child.kill('SIGTERM');
    await closed;
    return child.exitCode;
  }

  /** Copies a bundle into the folder that the agent searches in addition to USB drives. */
  async putFile(path: string, name: string): Promise<void> {
    await cp(path, join(this.#folder, 'media', name));
  }

  /** Stops everything on the node. */
  async close(): Promise<void> {
    await this.kill('everything');
    await this.drives.close();
  }
}

/** The additional store of a node. */
export const additionalStorePath = '/var/lib/shared/images';

/** Adds an additional store to a node. */
async function addStore(folder: string): Promise<void> {
  const lines = [
    '[storage]',
    'driver = "overlay"',
    'graphroot = "/var/lib/containers/storage"',
    'runroot = "/run/containers/storage"',
    '[storage.options]',
    `additionalimagestores = ["${additionalStorePath}"]`,
    '',
  ];
  await writeFile(join(folder, 'etc/containers/storage.conf'), lines.join('\n'));
  const store = join(folder, additionalStorePath);
  await mkdir(store, { recursive: true });
}
