import { join } from 'node:path';
import { detectInstallation } from '../detect/detect.ts';
import { removeFile } from '../fileChange.ts';
import { kindOf } from './databaseKind.ts';
import type { OpenRegistry } from './openRegistry.ts';
import { releaseReplaced } from './replacedImages.ts';
import { disableUnits } from './restart.ts';
import { removeSecrets } from './secrets.ts';
import type { RetiredUnits, UpgradeJournal } from './upgradeJournal.ts';

/**
 * Removes the backup of a change, with the names of its images, and with the units and secrets that only a rollback
 * would need. Keeps the data of PostgreSQL. An interrupted run is completed by the next one. Throws `command-failed`,
 * `not-writable`.
 */
export async function dropBackup(registry: OpenRegistry, journal: UpgradeJournal): Promise<void> {
  const { commands, records } = registry;
  if (journal.retired) await removeRetired(registry, journal.retired);
  await releaseReplaced(commands, journal);
  await kindOf(journal).removeCopy(commands, await records.folderOf(journal));
  await records.drop(journal);
}

async function removeRetired(registry: OpenRegistry, { units, secrets }: RetiredUnits): Promise<void> {
  const { files, commands, detect, context } = registry;
  const { installation, units: present } = await detectInstallation(files, detect);
  // Another program may use PostgreSQL again.
  if (installation.database === 'postgres') return;
  const { unitFolder: within } = installation;
  // An interrupted run may have removed them.
  await disableUnits(
    commands,
    units.filter((unit) => present.has(unit)),
  );
  for (const unit of units) {
    const name = join(within, `${unit}.service`);
    const parts = (present.get(unit)?.files ?? []).map(({ path }) => path);
    for (const path of [...parts.filter((each) => each !== name), name]) await removeFile(files, { path, within });
    context.log('info', `removed ${name}. Its data is kept: see podman volume ls`);
  }
  await commands.systemctl(['daemon-reload']);
  await removeSecrets(commands, secrets);
}
