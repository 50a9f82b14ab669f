import { createHash } from 'node:crypto';
import { markup, Markup } from './markup.ts';
import { script, style } from './reportStyle.ts';

/** The parts of a page. */
export interface PageParts {
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

/** Returns the head of a column of numbers. */
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
