import type { OSImageStreams } from '../../../lib/release/osImageStreams.ts';
import { formatBytes } from '../../../lib/byteSize.ts';

/** Returns a row for each release that needs its operating system streams described in the cluster, and its problems. */
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
