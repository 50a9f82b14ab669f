import type { MirrorOutcome } from '../../lib/mirroring/mirroring.ts';
import { formatTarget, releaseName } from '../../lib/mirroring/destination.ts';
import type { MirrorResult } from '../../lib/mirroring/plan.ts';
import type { MirrorImage } from '../../lib/mirroring/mirrorGroup.ts';
import type { Release } from '../../lib/release/release.ts';
import { releaseTag } from '../../lib/release/version.ts';
import { shellCommand, shellWord } from '../../lib/shellWord.ts';
import { trustWords } from './carriedOptions.ts';
import type { MirrorArguments } from './request.ts';
import { Lines } from '../../lib/lines.ts';

/** Formats the commands that copy the images of releases from a directory to a registry; empty if there are none. */
export function formatUpload(outcomes: readonly MirrorOutcome[], args: MirrorArguments): string | Lines {
  const { toDir = '.' } = args;
  const from = `--from-dir=${shellWord(toDir)}`;
  const groups = outcomes.flatMap(({ signed: { release }, images, result }) => {
    const local = images.filter(({ target }) => target.place.kind === 'directory');
    return result && local.length > 0 ? [{ release, local, result }] : [];
  });
  if (groups.length === 0) return '';
  const commands = groups.flatMap(({ release, local, result }) => ocCommands(local, release, result, from));
  const unique = [...new Set(commands)].map((command) => `    ${command}`);
  const own = groups.flatMap(({ local }) => local.find(({ name }) => name === releaseName) ?? []);
  const names = own.map(({ target, digest }) => formatTarget(target, target.tag ? undefined : digest));
  // Without the release image, the images of the release in the directory are unknown.
  if (names.length < groups.length) return new Lines('To upload local images to a registry, run:', '', ...unique);
  return new Lines(
    'To upload local images to a registry, run:',
    '',
    `    oc adm-release-mirror-config ${from} ${shellWord(names.join(','))} --to=REGISTRY/REPOSITORY${trustWords(args)}`,
    '',
    'or, with oc alone:',
    '',
    ...unique,
  );
}

function ocCommands(local: readonly MirrorImage[], release: Release, result: MirrorResult, from: string): string[] {
  // Without this option, oc takes only the image for its own platform from a manifest list, and drops the list.
  const copy = `oc image mirror ${from}${result.hasLists ? ' --keep-manifest-list' : ''}`;
  const groups = Map.groupBy(local, ({ target }) => target.place.repository);
  return [...groups].flatMap(([repository, images]) => {
    const to = shellCommand`REGISTRY/${groups.size === 1 ? 'REPOSITORY' : repository}`;
    const tags = images.flatMap(({ target: { tag } }) => (tag === undefined ? [] : [tag]));
    const untagged = images.filter(({ target }) => target.tag === undefined);
    const prefix = prefixOf(tags, releaseTag(release.version, release.arch));
    const hasOthers = images.some((image) => result.attached.has(image)) && prefix !== '';
    return [
      ...(tags.length > 0 ? [`${copy} ${shellWord(`file://${repository}:${prefix}*`)} ${to}`] : []),
      ...untagged.map(({ digest }) => `${copy} ${shellWord(`file://${repository}@${digest}`)} ${to}`),
      ...(hasOthers ? [`${copy} ${shellWord(`file://${repository}:sha256-*`)} ${to}`] : []),
    ];
  });
}

/** Returns the common prefix of all tags: the release’s own tag, or the shortest tag; else nothing. */
function prefixOf(tags: readonly string[], own: string): string {
  const shortest = tags.toSorted((a, b) => a.length - b.length)[0] ?? '';
  return [own, shortest].find((prefix) => tags.every((tag) => tag.startsWith(prefix))) ?? '';
}
