import { diffReleases, type BlobCount, type ImageDiff, type ReleaseDiff } from '#bundle/diff';
import { parseArchitecture, usualRepository } from '#release/version';
import { formatBytes, Lines } from '#text';
import { openRegistries } from '../cli/access.ts';
import { defineCommand } from '../cli/command.ts';
import { formatFields, formatTable } from '../cli/format.ts';
import { outputOption, registryOptions, releaseOptions } from '../cli/options.ts';
import { markup, type Markup, formatFacts, formatPage, drawTable } from './report/page.ts';

const side = {
  type: 'string',
  required: true,
  suggest: 'bundles',
} as const;

/** `diff`: shows what changed between two bundles or releases. */
export const command = defineCommand({
  details:
    'Compares the components of two releases, their sizes and source commits, and counts the blobs that both have. ' +
    'Of a bundle with several releases the last one counts, and each is compared with the one before it too. Reads ' +
    'only payloads and manifests, so it takes seconds for bundles of any size. Leaves out operators and other extra ' +
    'images. Checks no signature, and changes nothing: the verify command checks them.',
  positionals: {
    from: { ...side, describe: 'Earlier bundle, device, mirror directory, version or release image' },
    to: { ...side, describe: 'Later one' },
  },
  options: {
    'exit-code': { type: 'boolean', describe: 'Exit with code 1 if the two differ, as git diff does' },
    ...outputOption('html'),
    arch: { ...releaseOptions.arch, describe: 'Architecture of a release named by its version (default: x86_64)' },
    'release-repository': {
      ...releaseOptions['release-repository'],
      describe: `Repository to look up versions in (default: ${usualRepository})`,
    },
    ...registryOptions,
  },
  examples: [
    ['upgrade-4.20.2-x86_64.tar upgrade-4.20.3-x86_64.tar', 'Show what an update changes'],
    ['4.20.2 4.20.3 -a pull-secret.json', 'Compare two releases in their registry'],
    ['4.20.2 upgrade-4.20.3-x86_64.tar -o html > changes.html', 'Write a page for a change request'],
  ],
  async run(args, { context, terminal, environment, setExitCode }) {
    await using registries = await openRegistries(args, environment, context);
    const access = {
      arch: parseArchitecture(args.arch ?? 'x86_64'),
      repository: args.releaseRepository ?? usualRepository,
      sourceOf: registries.sourceOf.bind(registries),
    };
    const diff = await diffReleases([args.from, args.to], access, context);
    await terminal.printResult(args.output, diff, {
      words: () => toWords(diff),
      html: () => Lines.split(formatDiffPage(diff)),
    });
    const isSame = diff.images.length === 0 && diff.versions.every(({ from, to }) => from === to);
    if (args.exitCode && !isSame) setExitCode(1);
  },
});

function toWords(diff: ReleaseDiff): Lines {
  const { from, to, versions, images, unchanged, shared, added, removed } = diff;
  const kinds = Map.groupBy(images, ({ kind }) => kind);
  const counts = [...kinds].map(([kind, all]) => `${all.length} ${kind}`);
  const rows = [
    ['From', `${from.version} ${from.arch}, ${formatBytes(from.bytes)} (${from.name})`],
    ['To', `${to.version} ${to.arch}, ${formatBytes(to.bytes)} (${to.name})`],
    ...versions.map(({ part, from: before = 'none', to: after = 'none' }) => [part, `${before} → ${after}`]),
    ['Components', [...counts, `${unchanged} unchanged`].join(', ')],
    ['Shared', formatCount(shared)],
    ['New', formatCount(added)],
    ['Removed', formatCount(removed)],
    ...(diff.steps ?? []).map((step, index) => [index === 0 ? 'Updates' : '', describeStep(step)]),
  ];
  const cells = images
    .toSorted((a, b) => b.newSize - a.newSize || (a.name < b.name ? -1 : 1))
    .map((image) => [image.name, image.kind, formatBytes(image.newSize), ...sizesOf(image), commitsOf(image)]);
  const table = formatTable([['COMPONENT', 'CHANGE', 'NEW', 'FROM', 'TO', 'COMMIT'], ...cells], ['NEW', 'FROM', 'TO']);
  return new Lines(formatFields(rows), ...(cells.length > 0 ? ['', table] : []));
}

/** Describes the update to one of several releases. */
function describeStep({ from, to, images, added }: ReleaseDiff): string {
  return `${from.version} → ${to.version}: ${images.length} components differ, ${formatCount(added)} are new`;
}

function formatCount({ blobs, bytes }: BlobCount): string {
  return `${formatBytes(bytes)} in ${blobs} blobs`;
}

function sizesOf({ fromSize, toSize }: ImageDiff): string[] {
  return [fromSize, toSize].map((size) => (size === undefined ? '-' : formatBytes(size)));
}

function commitsOf({ from, to }: ImageDiff): string {
  const [before, after] = [from?.commit?.slice(0, 12), to?.commit?.slice(0, 12)];
  if (before === after) return before ?? '-';
  return [before, after].filter((commit) => commit !== undefined).join(' → ');
}

/** Formats the differences of two releases as one HTML page, which needs no other file. */
function formatDiffPage(diff: ReleaseDiff): string {
  const { from, to, versions, images, unchanged } = diff;
  const title = `OpenShift ${from.version} to ${to.version} for ${to.arch}`;
  const count = ({ blobs, bytes }: BlobCount): string => `${formatBytes(bytes)} in ${blobs} blobs`;
  const facts = [
    ['From', markup`<code>${from.release}</code>`],
    ['To', markup`<code>${to.release}</code>`],
    ['Size', `${formatBytes(from.bytes)}, then ${formatBytes(to.bytes)}`],
    ...versions.map(({ part, from: before = 'none', to: after = 'none' }) => [part, `${before} → ${after}`] as const),
    ['Shared', count(diff.shared)],
    ['New', count(diff.added)],
    ['Removed', count(diff.removed)],
    ...(diff.steps ?? []).map(
      (step) => [`${step.from.version} → ${step.to.version}`, `${count(step.added)} are new`] as const,
    ),
  ] as const;
  const size = (bytes: number | undefined): Markup =>
    markup`<td class="number" data-value="${bytes ?? 0}">${bytes === undefined ? '' : formatBytes(bytes)}</td>`;
  const heads = ['Component', 'Change', 'New', 'From', 'To', 'Commit before', 'Commit'];
  const rows = images.map(
    ({ name, kind, newSize, fromSize, toSize, from: before, to: after }) =>
      markup`<tr>
        <th scope="row">${name}</th>
        <td>${kind}</td>
        ${size(newSize)} ${size(fromSize)} ${size(toSize)}
        <td class="digest">${before?.commit ?? ''}</td>
        <td class="digest">${after?.commit ?? ''}</td>
      </tr>`,
  );
  return formatPage({
    title,
    header: markup`<p class="eyebrow">Changes between two releases</p>
      <h1>${title}</h1>
      <p class="notice"><strong>Not verified.</strong> This page shows what the releases say.</p>`,
    main: markup`${formatFacts(facts)}
      <h2>${images.length} of ${images.length + unchanged} components differ</h2>
      ${images.length > 0 && drawTable('sortable stacked', heads, rows)}`,
    footer: `${from.name} and ${to.name}`,
  });
}
