import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { run, runSuccessfully, type RunOptions, type RunResult } from '../../support/peers.ts';

const unitRunner = fileURLToPath(new URL('./unitRunner.ts', import.meta.url));

// The container runtime needs one hierarchy of control groups. systemd makes the folder of all of them
// read-only, for the whole machine, so it gets another one.
const groups = `
if test -d /sys/fs/cgroup/memory; then
  controllers=$(cut -d : -f 2 /proc/self/cgroup | tr , ' ')
  mount -t tmpfs tmpfs /sys/fs/cgroup
  mkdir /sys/fs/cgroup/unified /sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd systemd /sys/fs/cgroup/systemd
  for each in $controllers; do
    test "$each" != name=systemd || continue
    mkdir /sys/fs/cgroup/$each
    mount -t cgroup -o $each cgroup /sys/fs/cgroup/$each
  done
fi
`;

// crun gives its standard input to the user of a container, and with it /dev/null of the whole machine.
const ownNull = `
mknod -m 666 /run/null c 1 3
mount --bind /run/null /dev/null
`;

// Real systemd as the first process of a machine: its own control groups, its own /run, and no units of
// this machine.
const boot = `${groups}
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/systemd
${ownNull}
mount -t tmpfs tmpfs /etc/systemd/system
ip link set lo up
export SYSTEMD_PROC_CMDLINE="systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1"
export container=oci SYSTEMD_UNIT_PATH="/etc/systemd/system:$TARGETS"
exec /lib/systemd/systemd --system --log-target=null --show-status=no --unit=default.target
`;

// The control group of a machine of its own, in which systemd puts those of its units.
const enter = `
group=/sys/fs/cgroup/systemd/$NAME
test ! -d /sys/fs/cgroup/systemd || { mkdir "$group"; echo $$ >"$group/cgroup.procs"; }
exec unshare --pid --mount --net --cgroup --fork --kill-child --mount-proc sh -ec "$BOOT"
`;

const targets = [
  'default',
  'sysinit',
  'basic',
  'shutdown',
  'umount',
  'network',
  'network-online',
  'multi-user',
  'sockets',
  'timers',
  'paths',
  'slices',
  'local-fs',
];

// Without systemd: podman needs a socket for the messages of containers.
const prepare = `${groups}
ip link set lo up
mount -t tmpfs tmpfs /run/systemd
mkdir /run/systemd/journal
${ownNull.replaceAll('/run/null', '/run/systemd/null')}
exec perl -MSocket -e '
  socket(JOURNAL, AF_UNIX, SOCK_DGRAM, 0) or die $!;
  bind(JOURNAL, sockaddr_un("/run/systemd/journal/socket")) or die $!;
  syswrite(STDOUT, "ready\n");
  while (1) { recv(JOURNAL, my $said, 65536, 0) }'
`;

/**
 * A machine of its own for podman: its own processes, mounts, and network with only loopback and the networks of
 * podman, and storage in a folder. Its first process is systemd, if this machine allows that. Folders of this machine
 * can replace folders there.
 */
export class PodmanHost {
  readonly folder: string;
  /** Whether systemd runs the units; else the unit runner of the tests does. */
  readonly hasSystemd: boolean;
  readonly #holder: ChildProcess;
  readonly #pid: number;
  readonly #environment: NodeJS.ProcessEnv;

  private constructor(folder: string, holder: ChildProcess, systemd: number | undefined) {
    this.folder = folder;
    this.#holder = holder;
    this.hasSystemd = systemd !== undefined;
    this.#pid = systemd ?? holder.pid ?? 0;
    this.#environment = {
      ...process.env,
      PATH: `${join(folder, 'bin')}:${process.env['PATH'] ?? ''}`,
      CONTAINERS_CONF: join(folder, 'containers.conf'),
      CONTAINERS_STORAGE_CONF: join(folder, 'storage.conf'),
      RUN_FOLDER: join(folder, 'units'),
    };
  }

  /** Starts a host. Its `systemctl` itself runs the units. */
  static async start(): Promise<PodmanHost> {
    const folder = await mkdtemp(join(tmpdir(), 'podman-host-'));
    for (const name of ['bin', 'units', 'images', 'run', 'tmp', 'networks', 'volumes']) await mkdir(join(folder, name));
    const at = (name: string): string => JSON.stringify(join(folder, name));
    await writeFile(
      join(folder, 'containers.conf'),
      `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = ${at('tmp')}
volume_path = ${at('volumes')}
[network]
network_config_dir = ${at('networks')}
`,
    );
    await writeFile(
      join(folder, 'storage.conf'),
      `[storage]\ndriver = "overlay"\ngraphroot = ${at('images')}\nrunroot = ${at('run')}\n`,
    );
    const machine = await bootSystemd(folder);
    if (machine) {
      const host = new PodmanHost(folder, machine.holder, machine.pid);
      const names = ['CONTAINERS_CONF', 'CONTAINERS_STORAGE_CONF'].map(
        (name) => `${name}=${host.#environment[name] ?? ''}`,
      );
      await host.runSuccessfully('systemctl', ['set-environment', ...names]);
      await host.runSuccessfully('systemctl', ['start', 'systemd-journald.service']);
      await host.run('mount', ['-o', 'remount,rw', '/sys/fs/cgroup']);
      return host;
    }
    console.error(
      'SKIPPED systemd: it does not start as the first process of a namespace here; the unit runner of the ' +
        'tests replaces it',
    );
    const systemctl = `#!/bin/sh\nexec ${process.execPath} ${unitRunner} "$@"\n`;
    await writeFile(join(folder, 'bin/systemctl'), systemctl, { mode: 0o755 });
    const holder = spawn('unshare', ['-nm', 'sh', '-ec', prepare], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [ready] = (await Promise.race([once(holder.stdout, 'data'), once(holder, 'exit')])) as unknown[];
    if (!Buffer.isBuffer(ready)) throw new Error('no machine could be made for podman');
    return new PodmanHost(folder, holder, undefined);
  }

  /** Runs a command on the host to its end. */
  run(command: string, args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    return run('nsenter', this.#inside(command, args), { ...options, env: { ...this.#environment, ...options.env } });
  }

  /** Does the same as `run`, for a command that must succeed. */
  runSuccessfully(command: string, args: readonly string[], options: RunOptions = {}): Promise<string> {
    return runSuccessfully('nsenter', this.#inside(command, args), { ...options, env: this.#environment });
  }

  #inside(command: string, args: readonly string[]): string[] {
    const spaces = this.hasSystemd ? ['-n', '-m', '-p', '-C'] : ['-n', '-m'];
    return ['-t', String(this.#pid), ...spaces, command, ...args];
  }

  /** Mounts a folder of this machine over a folder of the host. */
  async mount(folder: string, place: string): Promise<void> {
    await this.runSuccessfully('mount', ['--bind', folder, place]);
  }

  /** Stops all containers, and removes everything. */
  async stop(): Promise<void> {
    await this.run('podman', ['pod', 'rm', '-fa', '-t', '0']);
    await this.run('podman', ['rm', '-fa', '-t', '0']);
    await this.run('podman', ['system', 'reset', '-f']);
    const ended = once(this.#holder, 'exit');
    this.#holder.kill('SIGKILL');
    await ended;
    const group = `/sys/fs/cgroup/systemd/${basename(this.folder)}`;
    // Its processes may take a moment to end.
    for (let tries = 0; existsSync(group) && tries < 30; tries += 1) {
      await run('find', [group, '-depth', '-type', 'd', '-delete']);
      await sleep(100);
    }
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** Starts systemd as the first process of its own namespaces; undefined if this machine does not allow that. */
async function bootSystemd(folder: string): Promise<{ holder: ChildProcess; pid: number } | undefined> {
  const units = join(folder, 'targets');
  await mkdir(units);
  for (const name of targets) await writeFile(join(units, `${name}.target`), `[Unit]\nDescription=${name}\n`);
  for (const name of ['systemd-journald.service', 'systemd-journald.socket', 'systemd-journald-dev-log.socket']) {
    await symlink(`/lib/systemd/system/${name}`, join(units, name));
  }
  const environment = { PATH: process.env['PATH'], TARGETS: units, NAME: basename(folder), BOOT: boot };
  const holder = spawn('sh', ['-ec', enter], { stdio: 'ignore', env: environment });
  for (let tries = 0; tries < 100 && holder.exitCode === null; tries += 1) {
    const children = await readFile(`/proc/${holder.pid ?? 0}/task/${holder.pid ?? 0}/children`, 'utf8').catch(
      () => '',
    );
    const pid = Number(children.trim());
    const inside = ['-t', String(pid), '-n', '-m', '-p', '-C', 'systemctl', 'is-system-running'];
    if (pid > 0 && (await run('nsenter', inside)).stdout.trim() === 'running') return { holder, pid };
    await sleep(100);
  }
  holder.kill('SIGKILL');
  return undefined;
}
