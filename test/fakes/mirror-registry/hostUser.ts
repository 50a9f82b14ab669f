import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { RunOptions, RunResult } from '../../support/peers.ts';
import type { PodmanHost } from './podmanHost.ts';

const id = 1500;
const owner = `${id}:${id}`;
const home = '/home/quay';
const runtime = `/run/user/${id}`;

const manager = `[Service]
User=${id}
Group=${id}
Environment=XDG_RUNTIME_DIR=${runtime} HOME=${home}
UnsetEnvironment=CONTAINERS_CONF CONTAINERS_STORAGE_CONF
Type=notify
ExecStart=/lib/systemd/systemd --user
Delegate=yes
`;

/**
 * A user of a host, with subordinate users and a systemd of its own, so that podman runs rootless. Only the mounts of
 * the host have the account; this machine does not change.
 */
export class HostUser {
  readonly home = home;
  readonly #host: PodmanHost;

  private constructor(host: PodmanHost) {
    this.#host = host;
  }

  /** Adds the user to a host with systemd. `folder` of this machine becomes the home folder. */
  static async add(host: PodmanHost, folder: string): Promise<HostUser> {
    const user = new HostUser(host);
    await chmod(host.folder, 0o711);
    for (const [name, line, isAdded] of [
      ['passwd', `quay:x:${owner}::${home}:/bin/sh\n`, true],
      ['group', `quay:x:${id}:\n`, true],
      ['subuid', 'quay:100000:65536\n', false],
      ['subgid', 'quay:100000:65536\n', false],
    ] as const) {
      const path = join(host.folder, name);
      await writeFile(path, (isAdded ? await readFile(`/etc/${name}`, 'utf8') : '') + line, { mode: 0o644 });
      await host.mount(path, `/etc/${name}`);
    }
    await mkdir(join(folder, '.config/containers'), { recursive: true });
    await writeFile(join(folder, '.config/containers/storage.conf'), '[storage]\ndriver = "overlay"\n');
    await writeFile(
      join(folder, '.config/containers/containers.conf'),
      `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
`,
    );
    const unit = `user@${id}.service`;
    await writeFile(join(host.folder, unit), manager);
    await host.runSuccessfully('sh', [
      '-ec',
      `mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /home
mkdir -p ${home} ${runtime}
# Every user may open it, except on minimal machines.
mknod -m 666 /run/tun c 10 200
mount --bind /run/tun /dev/net/tun
mount --bind "$0" ${home}
chown -R ${owner} ${home} ${runtime}
chmod 700 ${home} ${runtime}
cp "$1" /etc/systemd/system/
systemctl daemon-reload
systemctl start ${unit}`,
      folder,
      join(host.folder, unit),
    ]);
    return user;
  }

  /** Runs a command as the user to its end. */
  run(command: string, args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    return this.#host.run('setpriv', this.#words(command, args), options);
  }

  /** Does the same as `run`, for a command that must succeed. */
  runSuccessfully(command: string, args: readonly string[]): Promise<string> {
    return this.#host.runSuccessfully('setpriv', this.#words(command, args));
  }

  #words(command: string, args: readonly string[]): string[] {
    const environment = [`HOME=${home}`, `PATH=${process.env['PATH'] ?? ''}`, `XDG_RUNTIME_DIR=${runtime}`];
    return [
      `--reuid=${id}`,
      `--regid=${id}`,
      '--clear-groups',
      'env',
      '-i',
      '-C',
      '/',
      ...environment,
      command,
      ...args,
    ];
  }
}
