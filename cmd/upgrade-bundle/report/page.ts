import { createHash } from 'node:crypto';
import type { ReleaseInspection } from '#bundle/inspect';
import type { Provenance } from '#release/release';

/** The parts of a page. */
interface PageParts {
  readonly title: string;
  readonly header: Markup;
  readonly main: Markup;
  readonly footer: string;
  /** The script of a page that reads data from its own server, in place of the script for tables. */
  readonly liveScript?: string;
}

/** Returns the content security policy of a page: it runs only its own script, and loads no file. */
export function policyOf({ liveScript }: Pick<PageParts, 'liveScript'>): string {
  return [
    "default-src 'none'",
    `style-src '${hashOf(style)}'`,
    `script-src '${hashOf(liveScript ?? script)}'`,
    ...(liveScript === undefined ? [] : ["connect-src 'self'"]),
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
}

/** Formats a page that needs no other file and cannot load one. */
export function formatPage(parts: PageParts): string {
  const { title, header, main, footer, liveScript = script } = parts;
  return markup`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta http-equiv="Content-Security-Policy" content="${new Markup(policyOf(parts))}" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="referrer" content="no-referrer" />
        <title>${title}</title>
        <style>${new Markup(style)}</style>
      </head>
      <body>
        <header>${header}</header>
        <main>${main}</main>
        <footer>${footer}</footer>
        <script>${new Markup(liveScript)}</script>
      </body>
    </html>
`.text;
}

/** Formats facts as a list of terms and values. */
export function formatFacts(rows: readonly (readonly [term: string, value: string | Markup])[]): Markup {
  return markup`<dl>
    ${rows.map(
      ([term, value]) =>
        markup`<dt>${term}</dt>
          <dd>${value}</dd>`,
    )}
  </dl>`;
}

/** Formats a table that can be sorted and searched. Columns of digests are wide. */
export function listTable(
  title: string,
  heads: readonly string[],
  rows: readonly (readonly (string | Markup)[])[],
): Markup {
  const cell = (value: string | Markup | undefined, column: number): Markup => {
    const isLong = typeof value === 'string' && /[0-9a-f]{32}/i.test(value);
    return markup`<td class="${isLong ? 'digest' : ''}" data-label="${heads[column] ?? ''}">${value}</td>`;
  };
  const lines = rows.map(
    ([first, ...others]) =>
      markup`<tr>
        <th scope="row">${first}</th>
        ${others.map((value, index) => cell(value, index + 1))}
      </tr>`,
  );
  return markup`<h2>${title}</h2>
    ${drawTable('sortable stacked searchable', heads, lines)}`;
}

/**
 * Draws a table with rows in markup. A head is a name, or the markup of its cell. The body has an `id` if a script
 * fills it.
 */
export function drawTable(
  kind: string,
  heads: readonly (string | Markup)[],
  rows: readonly Markup[],
  id?: string,
): Markup {
  return markup`<div class="scroll">
    <table class="${kind}">
      <thead>
        <tr>
          ${heads.map((head) => (typeof head === 'string' ? markup`<th scope="col">${head}</th>` : head))}
        </tr>
      </thead>
      <tbody${id !== undefined && markup` id="${id}"`}>
        ${rows}
      </tbody>
    </table>
  </div>`;
}

/** Returns the `<th>` of a column whose cells are numbers. */
export function numberHead(name: string): Markup {
  return markup`<th scope="col" class="number">${name}</th>`;
}

/** Returns a link to an address, which has been checked, with the address as its text. */
export function linkTo(address: string): Markup {
  return markup`<a href="${address}">${address}</a>`;
}

/** Returns a commit, or a range of commits, as a link to its page on GitHub; without a link for other repositories. */
export function linkToCommits(repository: string | undefined, page: string, text: string): Markup {
  const [address] =
    /^https:\/\/github\.com\/[\w-][\w.-]*\/[\w-][\w.-]*?(?=(?:\.git)?\/?$)/.exec(repository ?? '') ?? [];
  const code = markup`<code>${text}</code>`;
  return address === undefined ? code : markup`<a href="${address}/${page}">${code}</a>`;
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}

/** The style sheet of a report, for light and dark screens, narrow screens, and paper. */
const style = `
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f5f6f8; --line: #d9dde3; --text: #1b1f24; --quiet: #5b6470; --accent: #b3261e;
  --notice: #fff6e0; --notice-line: #e0b040; --good: #e6f4ea; --good-line: #3c8d53; --bad: #fde8e6; --bad-line: #b3261e;
  --release: #f2b8b5; --operating-system: #c9b6ec; --operator: #a9cdf5; --component: #b4dfc4; --extra: #f6d69a;
  --shared: #d3d8df; --shared-2: #e4e8ed;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --panel: #1d2127; --line: #353b44; --text: #e7eaee; --quiet: #9aa4b1; --accent: #ff8a80;
    --notice: #332a12; --notice-line: #8a6d1f; --good: #16301f; --good-line: #3c8d53; --bad: #3a1917;
    --bad-line: #ff8a80;
    --release: #7d3531; --operating-system: #54427d; --operator: #2c5485; --component: #2b6343; --extra: #75581b;
    --shared: #3a414b; --shared-2: #4a525e;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 76rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { margin: 0; font-size: 2rem; line-height: 1.2; letter-spacing: -0.01em; }
h2 { margin: 2.75rem 0 0.75rem; font-size: 1.2rem; }
p { margin: 0.5rem 0; max-width: 60rem; }
.eyebrow { margin: 0 0 0.25rem; color: var(--accent); font-weight: 600; }
.quiet, figcaption { color: var(--quiet); }
code, pre, .digest {
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: 0.85em;
}
code, .digest, dd { overflow-wrap: anywhere; }
pre {
  margin: 0.5rem 0 1rem; padding: 0.75rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere;
  background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
}
.notice {
  margin: 1.25rem 0; max-width: none; padding: 0.7rem 1rem; background: var(--notice);
  border-left: 4px solid var(--notice-line); border-radius: 4px;
}
.notice.good { background: var(--good); border-left-color: var(--good-line); }
.notice.bad { background: var(--bad); border-left-color: var(--bad-line); }
.notice strong { font-weight: 600; }
.notice ul { margin: 0.25rem 0 0; padding-left: 1.25rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); gap: 0.75rem; margin: 1.5rem 0; }
.figures div { padding: 0.8rem 1rem; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; }
.figures b { display: block; font-size: 1.5rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.figures span { color: var(--quiet); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.35rem 1.5rem; margin: 1rem 0; }
dt { color: var(--quiet); }
dd { margin: 0; }
figure { margin: 0; }
.treemap { display: block; width: 100%; height: auto; border-radius: 6px; }
.treemap rect { stroke: var(--page); stroke-width: 1.5; }
.treemap text { fill: var(--text); font-size: 12px; pointer-events: none; }
.treemap .amount { fill-opacity: 0.75; }
.treemap g:hover > rect { stroke: var(--text); }
.release { fill: var(--release); background: var(--release); }
.operating-system { fill: var(--operating-system); background: var(--operating-system); }
.operator { fill: var(--operator); background: var(--operator); }
.component { fill: var(--component); background: var(--component); }
.extra { fill: var(--extra); background: var(--extra); }
.shared { fill: var(--shared); background: var(--shared); }
.shared-blob { fill: var(--shared-2); }
.bars { display: none; margin: 0; padding: 0; list-style: none; }
.bars li { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; padding: 0.3rem 0; }
.bars span { flex: 1; overflow-wrap: anywhere; }
.bars b { font-weight: 400; color: var(--quiet); font-variant-numeric: tabular-nums; }
.bars svg { flex-basis: 100%; height: 0.5rem; border-radius: 3px; background: var(--panel); }
a { color: inherit; }
[hidden] { display: none !important; }
.nodes { margin: 1rem 0; padding: 0; list-style: none; }
.nodes li {
  display: grid; grid-template-columns: 1fr max-content; gap: 0.1rem 1rem; padding: 0.6rem 0;
  border-bottom: 1px solid var(--line);
}
.nodes :is(progress, .message) { grid-column: 1 / -1; }
.nodes span:nth-of-type(odd) { justify-self: end; }
.nodes .message { color: var(--quiet); overflow-wrap: anywhere; }
progress { width: 100%; height: 0.6rem; accent-color: #2f74c0; }
progress.good { accent-color: #2e8540; }
progress.bad { accent-color: #b3261e; }
progress.doubtful { accent-color: #a06a00; }
.good { color: #2e8540; }
.bad { color: var(--accent); }
.busy { color: #2f74c0; }
.doubtful { color: #a06a00; }
.legend {
  display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; margin: 0.75rem 0 0.25rem; padding: 0;
  list-style: none;
}
.legend i {
  display: inline-block; width: 0.85em; height: 0.85em; margin-right: 0.45em; border-radius: 2px;
  vertical-align: -0.05em;
}
input[type=search] {
  width: 100%; max-width: 24rem; margin: 0.25rem 0 0.75rem; padding: 0.5rem 0.75rem; font: inherit; color: inherit;
  background: var(--page); border: 1px solid var(--line); border-radius: 6px;
}
output { margin-left: 0.75rem; color: var(--quiet); }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td {
  padding: 0.35rem 0.75rem 0.35rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top;
}
thead th { color: var(--quiet); font-weight: 600; white-space: nowrap; border-bottom-width: 2px; }
thead button { all: unset; cursor: pointer; }
thead button:hover, thead button:focus-visible { color: var(--text); text-decoration: underline; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
tbody th { font-weight: 600; overflow-wrap: anywhere; min-width: 9rem; }
.kind { white-space: nowrap; }
tbody th small { font-weight: 400; color: var(--quiet); }
.number { text-align: right; white-space: nowrap; }
td { overflow-wrap: anywhere; min-width: 6rem; }
td.digest { min-width: 15rem; color: var(--quiet); }
td.number { overflow-wrap: normal; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--quiet); }
@media (max-width: 40rem) {
  body { padding: 1.25rem 1rem 3rem; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 0.5rem; }
  h1 { font-size: 1.6rem; }
  input[type=search] { max-width: none; font-size: 16px; }
  output { display: block; margin: 0 0 0.5rem; }
  .treemap { display: none; }
  .bars { display: block; }
  .stacked thead { display: none; }
  .stacked tr:not([hidden]) { display: block; padding: 0.6rem 0; border-bottom: 1px solid var(--line); }
  .stacked :is(th, td) {
    display: inline-block; min-width: 0; padding: 0 0.9rem 0 0; border: 0; text-align: left;
    white-space: normal;
  }
  .stacked :is(th, .digest) { display: block; padding: 0; }
  .stacked td:empty { display: none; }
  .stacked td.digest:first-child { color: var(--text); font-weight: 600; }
  .stacked td[data-label]:not(.digest:first-child)::before {
    content: attr(data-label) " "; color: var(--quiet); font-family: system-ui, sans-serif;
  }
}
@media print {
  @page { margin: 15mm; }
  :root {
    color-scheme: light;
    --page: #fff; --panel: #f5f6f8; --line: #ccc; --text: #000; --quiet: #444; --accent: #b3261e;
    --notice: #fff6e0; --notice-line: #e0b040; --good: #e6f4ea; --good-line: #3c8d53; --bad: #fde8e6;
    --bad-line: #b3261e;
    --release: #f2b8b5; --operating-system: #c9b6ec; --operator: #a9cdf5; --component: #b4dfc4; --extra: #f6d69a;
    --shared: #d3d8df; --shared-2: #e4e8ed;
  }
  body { padding: 0; max-width: none; font-size: 9.5pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  h2 { break-after: avoid; }
  thead { display: table-header-group; }
  tr, figure, pre, .notice, .figures div { break-inside: avoid; }
  .scroll { overflow: visible; }
  .treemap { display: block; }
  .bars, input[type=search], output { display: none; }
  table { font-size: 8pt; }
  th, td { padding: 0.2rem 0.5rem 0.2rem 0; }
  td.digest { min-width: 34mm; font-size: 6.5pt; }
  thead button::after { content: none !important; }
}
`;

/**
 * The script of a report: a click on the name of a column sorts its table, and a field above a table searches it. The
 * page is readable without it.
 */
const script = `
for (const table of document.querySelectorAll('table.sortable')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const body = table.tBodies[0];
      const numeric = head.classList.contains('number');
      const before = head.getAttribute('aria-sort');
      const down = before ? before === 'ascending' : numeric;
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = numeric ? (a, b) => key(a) - key(b) : (a, b) => key(a).localeCompare(key(b), 'en');
      for (const other of heads) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      body.append(...[...body.rows].sort((a, b) => (down ? compare(b, a) : compare(a, b))));
    });
  });
}
for (const table of document.querySelectorAll('table.searchable')) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 10) continue;
  const field = Object.assign(document.createElement('input'), { type: 'search', placeholder: 'Search' });
  field.setAttribute('aria-label', 'Search this table');
  const count = document.createElement('output');
  field.addEventListener('input', () => {
    const words = field.value.toLowerCase().split(' ');
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    count.textContent = field.value && rows.filter((row) => !row.hidden).length + ' of ' + rows.length;
  });
  table.parentElement.before(field, count);
}
`;

/** HTML or SVG in which all external content is escaped. */
export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** The values in a template: text, which is escaped, and markup, which is not. */
type MarkupValue = string | number | Markup | false | undefined | readonly MarkupValue[];

/** A template for markup. Escapes all values except markup of this function. */
export function markup(parts: TemplateStringsArray, ...values: readonly MarkupValue[]): Markup {
  return new Markup(parts.map((part, index) => part + render(values[index])).join(''));
}

function render(value: MarkupValue): string {
  if (value === undefined || value === false) return '';
  if (value instanceof Markup) return value.text;
  if (typeof value === 'object') return value.map(render).join('');
  return (
    String(value)
      .replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)
      // Invisible characters, also characters that change the direction of text.
      .replace(/[\p{Cc}\p{Cf}]/gu, '\u{fffd}')
  );
}

/** The names of parts that administrators know. */
const partNames = new Map([
  ['kubernetes', 'Kubernetes'],
  ['machine-os', 'RHCOS'],
]);

/** Returns the parts of a release with their versions, by the names that administrators know. */
export function listVersions({ versions }: Pick<Provenance, 'versions'>): [part: string, version: string][] {
  return Object.entries(versions).map(([part, version]) => [partNames.get(part) ?? part, version]);
}

/** Returns facts about the origin of the releases of a bundle: the versions of their parts and the advisories. */
export function describeProvenance(inspection: Pick<ReleaseInspection, 'versions' | 'errata'>): [string, string][] {
  return [...listVersions(inspection), ...inspection.errata.map((url): [string, string] => ['Errata', url])];
}
