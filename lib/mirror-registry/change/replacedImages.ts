import type { Context } from '../../context.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import type { HostCommands } from '../../machine/hostCommands.ts';
import { findImage } from '../releases/images.ts';
import { rollbackTags, type ReplacedImage, type UpgradeJournal } from './upgradeJournal.ts';

/**
 * Finds the IDs of the images that a change replaces. Warns of an image that podman does not have. Throws
 * `command-failed`.
 */
export async function findReplaced(
  commands: HostCommands,
  images: readonly string[],
  { log, signal }: Context,
): Promise<ReplacedImage[]> {
  const found: ReplacedImage[] = [];
  for (const from of images) {
    const id = await findImage(commands, from, signal);
    if (id === undefined) log('warn', `podman does not have ${from}, which a rollback needs`);
    else found.push({ name: from, id });
  }
  return found;
}

/** Tags the replaced images, so that podman keeps them until the backup is removed. Throws `command-failed`. */
export async function tagReplaced(commands: HostCommands, journal: UpgradeJournal, signal: AbortSignal): Promise<void> {
  const names = rollbackTags(journal);
  for (const [index, { id }] of journal.replaced.entries()) {
    await commands.podman(['tag', id, names[index] ?? ''], signal);
  }
}

/** Removes the tags of `tagReplaced`. */
export async function untagReplaced(
  commands: HostCommands,
  journal: UpgradeJournal,
  signal: AbortSignal,
): Promise<void> {
  for (const name of rollbackTags(journal)) {
    // The tag may already be removed.
    await commands.podman(['untag', name, name], signal).catch((error: unknown) => {
      if (!isPluginError(error, 'command-failed')) throw error;
    });
  }
}

/** Checks that podman has all replaced images, by ID. Throws `not-found` with all missing images. */
export async function requireReplaced(
  commands: HostCommands,
  { replaced }: UpgradeJournal,
  signal: AbortSignal,
): Promise<void> {
  const missing: string[] = [];
  for (const { name, id } of replaced) {
    if ((await findImage(commands, id, signal)) === undefined) missing.push(`${name} (ID ${id.slice(0, 12)})`);
  }
  if (missing.length === 0) return;
  throw new PluginError('not-found', `podman no longer has ${missing.join(' and ')}, which a rollback needs`, {
    hint: "Load the images again ('podman pull' or 'podman load'), and run 'rollback' again. Or force it, with the present image of that name.",
    settings: ['force'],
  });
}

/** Restores the names of the replaced images. Throws `command-failed`. */
export async function renameReplaced(
  commands: HostCommands,
  { replaced }: UpgradeJournal,
  signal: AbortSignal,
): Promise<void> {
  for (const { name, id } of replaced) {
    if ((await findImage(commands, id, signal)) === undefined) continue;
    if ((await findImage(commands, name, signal)) !== id) await commands.podman(['tag', id, name], signal);
  }
}
