import { type SkippedImage, splitReleases, type BundleMetadata } from '#bundle/metadata';
import { describeExtraImages } from '#bundle/open';
import type { Context } from '#context';
import { describeRisk } from '#release/graph';
import type { OSImageStreams } from '#release/payload';
import { listBelow, formatBytes, shellWord } from '#text';
import type { Terminal } from './terminal.ts';

/** The number of images that are listed. */
const shown = 20;

/** Warns of the images that the release signature does not cover. */
export function warnOfExtraImages(images: readonly string[], { log }: Pick<Terminal, 'log'>): void {
  const words = describeExtraImages(images);
  if (words === undefined) return;
  const more = images.length > shown ? [`and ${images.length - shown} more`] : [];
  log('warn', listBelow(`${words}:`, [...images.slice(0, shown), ...more]));
}

/** Returns rows of a result that list the images that the release signature does not cover; none if it covers all. */
export function listExtraImages(images: readonly string[]): string[][] {
  const words = describeExtraImages(images);
  if (words === undefined) return [];
  const more = images.length - shown;
  const rest = more > 0 ? [['', `… and ${more} more: -o json lists them all`]] : [];
  return [['Not signed', words], ...images.slice(0, shown).map((image) => ['', image]), ...rest];
}

/** Returns rows of a result that list the images of operators that the bundle lacks; none if there are none. */
export function listSkippedImages(images: readonly SkippedImage[] = []): string[][] {
  return images.map(({ image, operators }, index) => [
    index === 0 ? 'Skipped' : '',
    `${image}, which ${operators.join(', ')} needs`,
  ]);
}

/**
 * Returns a row for each release that needs its operating system streams described in the cluster, and its problems.
 */
export function describeStreams(releases: readonly OSImageStreams[] = []): [string, string][] {
  return releases.flatMap(({ version, availableStreams, commit, commitSource, problems }): [string, string][] => {
    const names = availableStreams.map(({ name }) => name).join(', ') || 'none';
    const by = commit === undefined ? '' : `; commit ${commit.slice(0, 12)} by its ${commitSource}`;
    const needs = 'needs its operating system streams described in the cluster';
    return [
      ['Streams', `${version} ${needs}: ${names}${by}`],
      ...problems.map((problem): [string, string] => ['', `not possible without a mirror: ${problem}`]),
    ];
  });
}

/** Returns a row for each stream that says what its images add to a bundle; none if a release has one stream only. */
export function describeStreamSizes(
  releases: readonly {
    readonly availableStreams: readonly { readonly name: string; readonly unique: number }[];
  }[] = [],
): [string, string][] {
  return releases.flatMap(({ availableStreams }) =>
    availableStreams.length < 2
      ? []
      : availableStreams.map(({ name, unique }): [string, string] => [
          '',
          `${name} has ${formatBytes(unique)} of its own, which a site without ${name} nodes does not need`,
        ]),
  );
}

/**
 * Warns of the known risks that a bundle claims. `accepted`: the names that the UpgradeBundle accepts; undefined if
 * there is none.
 */
export function warnOfClaimedRisks(
  releases: readonly Pick<BundleMetadata, 'version' | 'risks'>[],
  accepted: readonly string[] | undefined,
  context: Context,
): void {
  for (const { version, risks = [] } of releases)
    for (const risk of risks) {
      const isAccepted = accepted?.includes(risk.name) === true;
      const option = `--accept-risk=${shellWord(risk.name)}`;
      const how = isAccepted ? 'it is accepted' : `to accept it, ${accepted ? 'add' : 'give apply'} ${option}`;
      const claim = `the bundle says, not covered by its signature: ${describeRisk(risk, version)}`;
      context.log(isAccepted ? 'info' : 'warn', `${claim}; ${how}`);
    }
}

/** Warns of the known risks that metadata.json claims, for a command that accepts none. */
export function warnOfRisksIn(metadata: BundleMetadata, context: Context): void {
  warnOfClaimedRisks(splitReleases(metadata), undefined, context);
}
