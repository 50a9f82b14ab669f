import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { checkSpace } from '#content/files';
import { parseJson } from '#content/oci';
import { PluginError } from '#errors';
import { fieldsAt, textOf } from '#fields';
import type { HostCommands, HostFiles } from '#node/machine';
import { goArchitecture, isOlder } from '#release/version';
import type { DetectedInstallation } from '../detect/detect.ts';
import { valuesOf } from '../detect/podmanCommand.ts';
import { findImage, type ImageChange, type RegistryRelease } from '../releases/images.ts';
import { findSecretProblem } from './secrets.ts';

/** The input of the readiness check. */
export interface UpgradeNeeds {
  readonly commands: HostCommands;
  readonly release: RegistryRelease | undefined;
  /** The size of the database to copy, in bytes. */
  readonly databaseSize: number;
  readonly backups: string;
}

/**
 * Checks, before anything is loaded or changed, that podman runs, that the images are for this machine, and that there
 * is enough space. The images need space, and two copies of the database: one to keep and one to check. Throws
 * `command-failed`, `unsupported` and `disk-full`.
 */
export async function requireReadiness({ commands, release, databaseSize, backups }: UpgradeNeeds): Promise<void> {
  const format = '{{.Host.Arch}} {{.Store.GraphRoot}}';
  const [arch, store = ''] = (await commands.podman(['info', '--format', format])).trim().split(' ');
  if (release?.arch !== undefined && goArchitecture(release.arch) !== arch) {
    const message = `${release.name} is for ${release.arch}, but this host is ${arch ?? 'different'}`;
    const hint = 'Create a bundle for the architecture of this host.';
    throw new PluginError('unsupported', message, { hint });
  }
  // This process may have no access to the storage of podman.
  const canLook = await stat(store).then(
    () => true,
    () => false,
  );
  if (release && canLook) await checkSpace(join(store, 'overlay'), release.size);
  await checkSpace(join(backups, 'database'), 2.2 * databaseSize);
}

/** What this program reads of `podman info`, whose form is the same in podman 4.3.1, 5.8.6 and 6.1.1. */
interface PodmanState {
  readonly version: string;
  readonly cgroups: string | undefined;
  readonly network: string | undefined;
  /** Undefined before podman 4.8, which has BoltDB only. */
  readonly database: string | undefined;
}

async function readPodman(commands: HostCommands): Promise<PodmanState> {
  const info = parseJson(await commands.podman(['info', '--format', 'json']));
  const host = fieldsAt(info, 'host');
  return {
    version: textOf(fieldsAt(info, 'version')['Version']) ?? '',
    cgroups: textOf(host['cgroupVersion']),
    network: textOf(host['networkBackend']),
    database: textOf(host['databaseBackend']),
  };
}

/**
 * Finds what podman 6 does not run any more: cgroup v1, CNI, slirp4netns, iptables and BoltDB (podman 6.0.0, release
 * notes). Before podman 6 these are warnings; with it, a unit that cannot start is a blocker.
 */
async function findPodmanNeeds(
  { files, commands }: { readonly files: HostFiles; readonly commands: HostCommands },
  { commands: units }: DetectedInstallation,
): Promise<{ blockers: string[]; warnings: string[] }> {
  const { version, cgroups, network, database = 'boltdb' } = await readPodman(commands);
  const slirp = Object.values(units).flatMap((command) =>
    ['network', 'net'].flatMap((name) =>
      valuesOf(command, name)
        .filter(({ value }) => value.startsWith('slirp4netns'))
        .map(
          ({ word }) =>
            `${command.setting.file.path}:${word.line} has slirp4netns, which podman 6 does not have: use pasta`,
        ),
    ),
  );
  if (!/^\d/.test(version) || !isOlder(version, '6.0.0')) return { blockers: slirp, warnings: [] };
  const settings = (await files.readText('/etc/containers/containers.conf')) ?? '';
  const lacks: readonly (readonly [boolean, string])[] = [
    [cgroups === 'v1', 'this host has cgroup v1, with which podman 6 does not start: boot it with cgroup v2 first'],
    [network === 'cni', 'podman has the network backend cni, which podman 6 does not have: change to netavark first'],
    [
      /^\s*firewall_driver\s*=\s*"iptables"/m.test(settings),
      'containers.conf has the firewall driver iptables, which podman 6 does not have: use nftables',
    ],
    [database === 'boltdb', 'podman keeps its state in BoltDB, which podman 6 moves to SQLite at the first boot'],
  ];
  const own = lacks.flatMap(([isLacking, words]) => (isLacking ? [words] : []));
  const found = [...own, ...slirp];
  const intro = `before podman ${version} is updated to 6`;
  return { blockers: [], warnings: found.map((words) => `${intro}: ${words}`) };
}

/** What a registry needs and its host does not have: sentences for a plan. */
export interface UnmetNeeds {
  readonly blockers: readonly string[];
  readonly warnings: readonly string[];
}

/**
 * Compares what the units name with what the host has: secrets with their values, volumes or folders, and the
 * images that do not change. Throws `command-failed`, `interrupted`, `not-readable`.
 */
export async function findUnmetNeeds(
  { files, commands }: { readonly files: HostFiles; readonly commands: HostCommands },
  detected: DetectedInstallation,
  changes: readonly ImageChange[],
): Promise<UnmetNeeds> {
  const { installation } = detected;
  const { storage, databaseStorage, images } = installation;
  const { blockers, warnings } = await findPodmanNeeds({ files, commands }, detected);
  for (const each of [storage, databaseStorage]) {
    if (!each) continue;
    const place = `${each.value} (${each.file}:${each.line})`;
    if (each.value.startsWith('/')) {
      if (await files.exists(each.value)) continue;
      blockers.push(`there is no folder ${place}: is its disk mounted?`);
    } else if (!(await commands.exists('volume', each.value))) {
      blockers.push(`podman has no volume ${place}: a restart would begin with an empty one`);
    }
  }
  const named = Object.values(detected.commands).flatMap((command) => valuesOf(command, 'secret'));
  const secrets = new Set(named.map(({ value }) => value.split(',')[0] ?? ''));
  for (const name of [...secrets, 'redis_pass']) {
    const problem = await findSecretProblem(commands, name, secrets.has(name), detected);
    if (problem !== undefined && !blockers.includes(problem)) blockers.push(problem);
  }
  const stays = Object.entries(images).filter(([name]) => !changes.some(({ component }) => component === name));
  for (const [, { value }] of stays) {
    if ((await findImage(commands, value)) === undefined) {
      warnings.push(`podman does not have ${value}, and pulls it when its unit restarts`);
    }
  }
  return { blockers, warnings };
}
