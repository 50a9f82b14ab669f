import type { Digest } from '#content/oci';
import type { Context } from '#context';
import { ignoring, PluginError } from '#errors';
import type { HostCommands } from '#node/machine';
import { releaseComponents } from '../installation/installation.ts';
import { mirrorRegistryVersion, quayVersionOf } from '../installation/versions.ts';
import { findImage, type ImageChange, type RegistryRelease } from '../releases/images.ts';
import { rollbackContainers, rollbackTags, type ReplacedImage, type UpgradeJournal } from './upgradeJournal.ts';

/**
 * Finds the IDs of the images that a change replaces. Warns of an image that podman does not have. Throws
 * `command-failed`.
 */
export async function findReplaced(
  commands: HostCommands,
  images: readonly string[],
  { log }: Context,
): Promise<ReplacedImage[]> {
  const replacedImages: ReplacedImage[] = [];
  for (const from of images) {
    const id = await findImage(commands, from);
    if (id === undefined) log('warn', `podman does not have ${from}, which a rollback needs`);
    else replacedImages.push({ name: from, id });
  }
  return replacedImages;
}

/**
 * Tags the replaced images, and creates a container of each that never runs, so that podman keeps them until the backup
 * is removed, also if all unused images are pruned. Throws `command-failed`.
 */
export async function keepReplaced(commands: HostCommands, journal: UpgradeJournal): Promise<void> {
  const [names, containers] = [rollbackTags(journal), rollbackContainers(journal)];
  for (const [index, { id }] of journal.replaced.entries()) {
    await commands.podman(['tag', id, names[index] ?? '']);
    const options = ['--replace', '--pull=never', '--network=none', '--name', containers[index] ?? ''];
    await commands.podman(['create', ...options, id, 'true']);
  }
}

/** Removes the tags and containers of `keepReplaced`. Throws `command-failed`. */
export async function releaseReplaced(commands: HostCommands, journal: UpgradeJournal): Promise<void> {
  for (const name of rollbackContainers(journal)) await commands.podman(['rm', '--force', '--ignore', name]);
  for (const name of rollbackTags(journal)) {
    // The tag may already be removed.
    await commands.podman(['untag', name, name]).catch(ignoring('command-failed'));
  }
}

/** Checks that podman has all replaced images, by ID. Throws `not-found` with all missing images. */
export async function requireReplaced(commands: HostCommands, journal: UpgradeJournal): Promise<void> {
  const missing = await listMissing(commands, journal);
  if (missing.length === 0) return;
  const names = missing.map(({ name, id }) => `${name} (ID ${id.slice(0, 12)})`).join(' and ');
  const version = versionOfReplaced(journal);
  throw new PluginError('not-found', `podman no longer has ${names}, which a rollback needs`, {
    hint:
      `Give a bundle of ${version === undefined ? 'these images' : `release ${version}`}. Or force it, with the ` +
      'present image of that name.',
    settings: ['bundle', 'force'],
  });
}

/** Returns the release of the mirror registry whose images a rollback needs; undefined if it is unknown. */
export function versionOfReplaced({ replaced }: Pick<UpgradeJournal, 'replaced'>): string | undefined {
  const versions = replaced.map(({ name }) => mirrorRegistryVersion(quayVersionOf(name) ?? ''));
  return versions.find((version) => version !== undefined);
}

/**
 * Loads the replaced images that podman no longer has from a release. Returns the journal with their IDs, which differ
 * if podman creates them (an archive of the installer). Throws `not-found` if the release does not have one, and as
 * `RegistryRelease.check` and `load`.
 */
export async function loadReplaced(
  commands: HostCommands,
  journal: UpgradeJournal,
  release: RegistryRelease,
  expected: Digest | undefined,
  context: Context,
): Promise<UpgradeJournal> {
  const missing = await listMissing(commands, journal);
  if (missing.length === 0) return journal;
  const changes = missing.map(({ name }): ImageChange => {
    const component = releaseComponents.find((each) => release.images[each].image === name);
    if (component) return { component, from: name, to: name, file: '', line: 0 };
    throw new PluginError('not-found', `${release.name} does not have ${name}, which a rollback needs`, {
      hint: `Give a bundle of release ${versionOfReplaced(journal) ?? 'that the registry had'}.`,
    });
  });
  await release.check(expected, context);
  const ids = await release.load(commands, changes, context);
  const idOf = ({ name, id }: ReplacedImage): string => {
    const component = changes.find(({ to }) => to === name)?.component;
    return (component && ids.get(component)) ?? id;
  };
  return { ...journal, replaced: journal.replaced.map((each) => ({ ...each, id: idOf(each) })) };
}

async function listMissing(commands: HostCommands, { replaced }: UpgradeJournal): Promise<ReplacedImage[]> {
  const missing: ReplacedImage[] = [];
  for (const each of replaced) if ((await findImage(commands, each.id)) === undefined) missing.push(each);
  return missing;
}

/** Restores the names of the replaced images. Throws `command-failed`. */
export async function renameReplaced(commands: HostCommands, { replaced }: UpgradeJournal): Promise<void> {
  for (const { name, id } of replaced) {
    if ((await findImage(commands, id)) === undefined) continue;
    if ((await findImage(commands, name)) !== id) await commands.podman(['tag', id, name]);
  }
}
