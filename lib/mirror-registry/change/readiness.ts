import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { goArchitecture } from '../../release/version.ts';
import { checkSpace } from '../../files/disk.ts';
import type { HostCommands } from '../../machine/hostCommands.ts';
import type { RegistryRelease } from '../releases/images.ts';

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
export async function requireReadiness(
  { commands, release, databaseSize, backups }: UpgradeNeeds,
  { signal }: Context,
): Promise<void> {
  const format = '{{.Host.Arch}} {{.Store.GraphRoot}}';
  const [arch, store = ''] = (await commands.podman(['info', '--format', format], signal)).trim().split(' ');
  if (release?.arch !== undefined && goArchitecture(release.arch) !== arch) {
    throw new PluginError(
      'unsupported',
      `${release.name} is for ${release.arch}, but this host is ${arch ?? 'different'}`,
      {
        hint: 'Create a bundle for the architecture of this host.',
      },
    );
  }
  // This process may have no access to the storage of podman.
  const canLook = await stat(store).then(
    () => true,
    () => false,
  );
  if (release && canLook) await checkSpace(join(store, 'overlay'), release.size);
  await checkSpace(join(backups, 'database'), 2.2 * databaseSize);
}
