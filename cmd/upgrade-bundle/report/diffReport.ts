import type { BlobCount, ReleaseDiff } from '../../../lib/bundle/diff/diff.ts';
import { formatBytes } from '../../../lib/byteSize.ts';
import { markup, type Markup } from './markup.ts';
import { formatFacts, formatPage, drawTable } from './page.ts';

/** Formats the differences of two releases as one HTML page, which needs no other file. */
export function formatDiffPage(diff: ReleaseDiff): string {
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
