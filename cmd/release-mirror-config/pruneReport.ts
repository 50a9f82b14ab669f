import { nameSome } from '../../lib/failures.ts';
import type { JudgedRelease } from '../../lib/mirroring/prune/prunePlan.ts';
import type { PruneOutcome } from '../../lib/mirroring/prune/prune.ts';
import { formatPlace } from '../../lib/mirroring/destination.ts';
import { askForYes } from '../cli/options.ts';
import { formatCount, formatTable } from '../cli/format.ts';
import { formatBytes } from '../../lib/byteSize.ts';
import { joinParagraphs, Lines } from '../../lib/lines.ts';

/** Formats what a run of `prune` removed, or would remove. */
export function formatPruned(outcome: PruneOutcome): Lines {
  const { releases, unreadable, isDone, refusal } = outcome;
  const rows = releases.map((release) => [release.tag, String(release.images.length), actionOf(release, outcome)]);
  const broken = unreadable.map((tag) => [tag, '-', 'keep: its payload cannot be read']);
  const end = refusal ? `This target cannot be pruned: ${refusal.message}. ${refusal.hint ?? ''}`.trimEnd() : askForYes;
  const sums = isDone || hasWork(outcome) ? formatSums(outcome) : [];
  const ends = isDone ? [] : [hasWork(outcome) ? end : 'There is nothing to remove.'];
  return joinParagraphs(
    formatTable([['RELEASE', 'IMAGES', 'ACTION'], ...rows, ...broken], ['IMAGES']),
    new Lines(...sums, ...formatKept(outcome), ...ends),
  );
}

/** Returns the same as plain data. */
export function toPlainPruned(outcome: PruneOutcome): object {
  const { releases, repositories, files, bytes, unreadable, cluster, refusal, isDone } = outcome;
  return {
    releases: releases.map((release) => ({
      version: release.version,
      arch: release.arch,
      digest: release.digest,
      images: release.images.length,
      keep: release.reason !== undefined,
      ...(release.reason && { reason: release.reason }),
    })),
    repositories: repositories.map(({ repository, manifests, tags, blobs, foreign, needed, undeleted = [] }) => ({
      name: formatPlace(repository.place),
      ...{ manifests, tags, blobs: blobs.length, foreign, needed },
      ...(undeleted.length > 0 && { undeleted }),
    })),
    ...{ files, bytes, unreadable },
    cluster: cluster?.name,
    ...(refusal && { refusal: refusal.message }),
    removed: isDone,
  };
}

function actionOf({ reason, otherTag }: JudgedRelease, { isDone, cluster }: PruneOutcome): string {
  if (reason === 'named') return 'keep';
  if (reason === 'cluster') return `keep: ${cluster?.name ?? 'the cluster'} runs it, ran it or has pinned it`;
  if (reason === 'tagged') return `keep: the tag ${otherTag ?? ''} refers to it too`;
  return isDone ? 'removed' : 'remove';
}

function formatSums({ repositories, files, bytes, isDone }: PruneOutcome): string[] {
  const sum = (numberOf: (each: PruneOutcome['repositories'][number]) => number): number =>
    repositories.reduce((total, each) => total + numberOf(each), 0);
  const undeleted = sum((each) => each.undeleted?.length ?? 0);
  const manifests = sum((each) => each.manifests.length) - undeleted;
  const attachments = sum((each) => each.attachments) - undeleted;
  const isRegistry = repositories.some(({ repository }) => repository.place.kind === 'registry');
  const frees = isRegistry ? 'The registry frees' : isDone ? 'That freed' : 'That frees';
  const when = isRegistry ? ' when it collects garbage' : '';
  return [
    `${isDone ? 'Removed' : 'To remove'}: ${manifests} manifests, ${attachments} of them for signatures and other attachments; ${formatCount(files.length, 'file')}.`,
    `${frees} ${formatBytes(bytes)}${when}.`,
  ];
}

function formatKept({ repositories, cluster }: PruneOutcome): string[] {
  const [foreign, needed] = [repositories.flatMap((each) => each.foreign), repositories.flatMap((each) => each.needed)];
  return [
    ...(needed.length > 0
      ? [`Kept, because ${cluster ? `${cluster.name} or ` : ''}the configuration needs them: ${nameSome(needed, 5)}.`]
      : []),
    ...(foreign.length > 0
      ? [
          `Kept, because they belong to no known release: ${formatCount(foreign.length, 'tag')} (${nameSome(foreign, 3)}).`,
        ]
      : []),
    ...repositories.flatMap(({ repository: { place }, undeleted = [] }) =>
      undeleted.length > 0
        ? [
            `Not deleted by ${formatPlace(place)}: ${formatCount(undeleted.length, 'attachment')} without a tag. ` +
              'Quay keeps these, and the images that they are attached to.',
          ]
        : [],
    ),
    ...(cluster ? [] : ['No cluster was asked which images it needs.']),
  ];
}

function hasWork({ repositories, files }: PruneOutcome): boolean {
  return (
    files.length > 0 ||
    repositories.some(({ tags, manifests, blobs }) => tags.length + manifests.length + blobs.length > 0)
  );
}
