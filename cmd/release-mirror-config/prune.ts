import { PluginError, nameSome } from '#errors';
import { parseDestination, formatPlace } from '#mirroring/mirror';
import { pruneTarget, type PruneOutcome, type EvaluatedRelease } from '#mirroring/prune';
import { formatBytes, joinParagraphs, Lines } from '#text';
import { openAccess, clusterOpener } from '../cli/access.ts';
import { defineCommand } from '../cli/command.ts';
import { formatCount, formatTable } from '../cli/format.ts';
import { clusterOptions, dryRunOf, outputOption, registryOptions, yesOption, askForYes } from '../cli/options.ts';
import { mirrorOptions } from './options.ts';
import { configFolderOf } from './request.ts';

const { to, 'to-dir': toDir, 'to-release-image': toReleaseImage, 'config-to-dir': configToDir } = mirrorOptions;
const { 'idms-file': _, ...registries } = registryOptions;

/** `prune`: removes releases from a registry or a mirror directory. */
export const command = defineCommand({
  details:
    'Shows which releases at a target would be removed, and how many bytes that frees. Removes nothing unless --yes ' +
    'is given. With a release go its images, their sigstore signatures, its graph data and its files in the config ' +
    'folder. Releases of --keep and releases in the history of the cluster stay, and so do images that the cluster ' +
    'runs or has pinned. Images that belong to no known release stay too. If the run is interrupted, run it again: ' +
    'it resumes.',
  positionals: {},
  options: {
    keep: {
      type: 'string',
      repeatable: true,
      describe: 'Release to keep, such as 4.20.3 or 4.20.3-x86_64; several with commas between them',
    },
    ...yesOption('Remove the other releases instead of only showing them'),
    ...dryRunOf('With client or server, only show the other releases, also with --yes'),
    resume: { type: 'boolean', describe: 'Resume a run of another machine that was interrupted' },
    'ignore-cluster': { type: 'boolean', describe: 'Do not ask the cluster which images it needs' },
    ...outputOption(),
    to: { ...to, describe: 'REGISTRY/REPOSITORY that releases were mirrored to, as in the mirror command' },
    'to-dir': { ...toDir, describe: 'Mirror directory that releases were mirrored to' },
    'to-release-image': { ...toReleaseImage, describe: 'Repository of the release images, if it is another one' },
    'config-to-dir': {
      ...configToDir,
      describe: 'Folder with the configuration manifests, instead of config in --to-dir',
    },
    ...registries,
    ...clusterOptions,
  },
  examples: [
    [
      '--to=registry.example.com:5000/openshift/release --keep=4.19.12,4.20.3',
      'See what would be removed from a registry',
    ],
    ['--to-dir=/media/usb/mirror --keep=4.20.3 --yes', 'Remove all other releases from a directory'],
  ],
  async run(args, { context, terminal, environment }) {
    const keep = args.keep.flatMap((each) => each.split(',')).filter((each) => each !== '');
    if (keep.length === 0)
      throw new PluginError('usage', 'no release is kept', { hint: 'Name each with --keep, such as --keep=4.20.3.' });
    if (args.to === undefined && args.toDir === undefined) {
      throw new PluginError('usage', 'nothing says where the releases are', {
        hint: 'Give --to=REGISTRY/REPOSITORY or --to-dir=FOLDER.',
      });
    }
    const outcome = await pruneTarget(
      {
        destination: parseDestination(args),
        keep,
        configFolder: configFolderOf(args),
        configRoot: args.configToDir ?? args.toDir,
        isConfirmed: args.yes && args.dryRun === 'none',
        resume: args.resume,
        ignoreCluster: args.ignoreCluster,
        isClusterNamed: [args.kubeconfig, args.context, args.cluster, args.user, args.server].some(Boolean),
      },
      {
        registries: await openAccess(args, environment),
        openCluster: clusterOpener(args, environment, context),
      },
      context,
    );
    await terminal.printResult(args.output, toPlainPruned(outcome), formatPruned(outcome));
  },
});

/** Formats what a run of `prune` removed, or would remove. */
function formatPruned(outcome: PruneOutcome): Lines {
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
function toPlainPruned(outcome: PruneOutcome): object {
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
      manifests,
      tags,
      blobs: blobs.length,
      foreign,
      needed,
      ...(undeleted.length > 0 && { undeleted }),
    })),
    files,
    bytes,
    unreadable,
    cluster: cluster?.name,
    ...(refusal && { refusal: refusal.message }),
    removed: isDone,
  };
}

function actionOf({ reason, otherTag }: EvaluatedRelease, { isDone, cluster }: PruneOutcome): string {
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
    `${isDone ? 'Removed' : 'To remove'}: ${manifests} manifests, ${attachments} of them for signatures and ` +
      `other attachments; ${formatCount(files.length, 'file')}.`,
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
          `Kept, because they belong to no known release: ${formatCount(foreign.length, 'tag')} ` +
            `(${nameSome(foreign, 3)}).`,
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
