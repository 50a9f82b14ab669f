import type { Context } from '../../lib/context.ts';
import { isPluginError } from '../../lib/errors.ts';
import type { HostFiles } from '../../lib/machine/hostFiles.ts';
import type { Installation } from '../../lib/mirror-registry/installation.ts';
import { timeOf } from '../../lib/mirror-registry/change/upgradeJournal.ts';
import { UpgradeRecords } from '../../lib/mirror-registry/change/upgradeRecords.ts';

/** An upgrade, renewal or rollback that was interrupted. */
export interface Unfinished {
  /** The title, as the subject of a sentence. */
  readonly title: string;
  readonly phase: string;
  /** The start time, ISO 8601. */
  readonly begun: string;
}

/**
 * Reads the unfinished change of a registry, for commands that change nothing. Warns of a journal that cannot be
 * trusted or read, and returns undefined. Throws `invalid-file`.
 */
export async function findUnfinished(
  { files, installation }: { readonly files: HostFiles; readonly installation: Installation },
  { log }: Context,
): Promise<Unfinished | undefined> {
  try {
    const journal = await new UpgradeRecords(files, installation).current();
    return journal && { title: journal.title, phase: journal.phase, begun: timeOf(journal) };
  } catch (error) {
    if (!isPluginError(error, 'not-readable')) throw error;
    log('warn', error.message);
    return undefined;
  }
}

/** Describes an unfinished change, and what to do. */
export function describeUnfinished({ title, phase }: Unfinished): string {
  return `${title} is unfinished (${phase}): run the same command again to resume it, or 'rollback', or 'rollback --abandon'`;
}
