import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run, runSuccessfully, type RunOptions, type RunResult } from '../../support/peers.ts';

const unitRunner = fileURLToPath(new URL('./unitRunner.ts', import.meta.url));

// The container runtime needs one hierarchy of control groups, and podman needs a socket for the
// messages of containers.
const prepare = `
ip link set lo up
test ! -d /sys/fs/cgroup/memory || umount /sys/fs/cgroup/unified || true
mount -t tmpfs tmpfs /run/systemd
mkdir /run/systemd/journal
exec perl -MSocket -e '
  socket(JOURNAL, AF_UNIX, SOCK_DGRAM, 0) or die $!;
  bind(JOURNAL, sockaddr_un("/run/systemd/journal/socket")) or die $!;
  syswrite(STDOUT, "ready\n");
  while (1) { recv(JOURNAL, my $said, 65536, 0) }'
`;

/**
 * A machine of its own for podman: its own mounts, its own network with only loopback and the networks of podman, and
 * storage in a folder. Folders of this machine can replace folders there.
 */
export class PodmanHost {
  readonly folder: string;
  readonly #holder: ChildProcess;
  readonly #environment: NodeJS.ProcessEnv;

  private constructor(folder: string, holder: ChildProcess) {
    this.folder = folder;
    this.#holder = holder;
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
    const systemctl = `#!/bin/sh\nexec ${process.execPath} ${unitRunner} "$@"\n`;
    await writeFile(join(folder, 'bin/systemctl'), systemctl, { mode: 0o755 });
    const holder = spawn('unshare', ['-nm', 'sh', '-ec', prepare], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [ready] = (await Promise.race([once(holder.stdout, 'data'), once(holder, 'exit')])) as unknown[];
    if (!Buffer.isBuffer(ready)) throw new Error('no machine could be made for podman');
    return new PodmanHost(folder, holder);
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
    return ['-t', String(this.#holder.pid), '-n', '-m', command, ...args];
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
    this.#holder.kill('SIGKILL');
    await rm(this.folder, { recursive: true, force: true });
  }
}
