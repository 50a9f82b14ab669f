import { join } from 'node:path';
import { measureFree } from '../../files/disk.ts';
import type { HostCommands } from '../../machine/hostCommands.ts';
import type { HostFiles } from '../../machine/hostFiles.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import { stateFolderOf } from '../stateFolder.ts';
import { findDatabase } from './database.ts';
import { kindOf } from './databaseKind.ts';
import type { UpgradePlan } from './plan.ts';
import { UpgradeRecords } from './upgradeRecords.ts';

/** What an upgrade costs on this host. Sizes are in bytes, times in seconds. */
export interface Forecast {
  /** The size of the database that is copied while Quay is stopped; 0 if it is not copied. */
  readonly databaseSize: number;
  /** The time to copy and check it, from the measured time to read it. */
  readonly copyTime: number;
  /** The outage of the last change on this host that copied the database, or not, as this one. */
  readonly lastOutage: number | undefined;
  /** The space for the backup, and the free space there. */
  readonly backupSize: number;
  readonly free: number;
}

/** A copy is read, written, read for its digest, copied again for the check of SQLite, and checked. */
const passes = 5;

/** Measures what a plan costs on this host. Changes nothing. Throws `command-failed`, `not-readable`, `invalid-file`. */
export async function forecastUpgrade(
  { files, commands, detected }: { files: HostFiles; commands: HostCommands; detected: DetectedInstallation },
  { images }: UpgradePlan,
  signal: AbortSignal,
): Promise<Forecast> {
  const { installation } = detected;
  const copies = images.some(({ component }) => component === 'quay');
  const folder = copies ? await findDatabase(files, commands, installation, signal) : undefined;
  const isPostgres = installation.database === 'postgres';
  const databaseSize = folder === undefined ? 0 : await kindOf({ isPostgres }).size(commands, folder, signal);
  const begun = performance.now();
  if (folder !== undefined) await commands.digestOf(folder, [], signal);
  const readTime = (performance.now() - begun) / 1000;
  const { free } = await measureFree(files.locate(join(stateFolderOf(installation), 'each')));
  const ended = await new UpgradeRecords(files, installation).listEnded();
  const last = ended.findLast(({ outage, database }) => outage !== undefined && (database !== undefined) === copies);
  return {
    ...{ databaseSize, copyTime: folder === undefined ? 0 : passes * readTime, lastOutage: last?.outage },
    ...{ backupSize: 2.2 * databaseSize, free },
  };
}
