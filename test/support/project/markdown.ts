import { globSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { posix } from 'node:path';

/** The texts of pages by their path in the project. */
export type Pages = ReadonlyMap<string, string>;

/** Returns every hand-written page of the project. */
export async function readPages(root: string): Promise<Map<string, string>> {
  const paths = globSync('{*.md,docs/**/*.md}', { cwd: root }).map((path) => path.replaceAll('\\', '/'));
  return new Map(
    await Promise.all(paths.sort().map(async (path) => [path, await readFile(`${root}/${path}`, 'utf8')] as const)),
  );
}

/** Returns the texts of the headings of a page, with its title. */
export function headingsOf(text: string): string[] {
  return [...withoutBlocks(text).matchAll(/^#+ +(.+?) *$/gm)].map(([, words = '']) => words);
}

/**
 * Returns the broken links as `page: target`: to a missing page or heading, or to an unencrypted URL. Does not request
 * other URLs. `isThere` returns whether a file that is not a page exists.
 */
export function brokenLinks(pages: Pages, isThere: (path: string) => boolean = () => false): string[] {
  return [...pages].flatMap(([path, text]) =>
    linksOf(text)
      .filter((target) => !leadsSomewhere(path, target, pages, isThere))
      .map((target) => `${path}: ${target}`),
  );
}

/** Returns the pages that can be reached from one page by links, with that page. */
export function pagesFrom(start: string, pages: Pages): Set<string> {
  const reached = new Set([start]);
  // Iterating over a set includes entries that are added meanwhile.
  for (const path of reached) {
    for (const target of linksOf(pages.get(path) ?? '')) {
      const page = pageOf(path, target);
      if (pages.has(page)) reached.add(page);
    }
  }
  return reached;
}

function leadsSomewhere(path: string, target: string, pages: Pages, isThere: (path: string) => boolean): boolean {
  if (/^[a-z]+:/.test(target)) return target.startsWith('https://');
  const page = pageOf(path, target);
  const [, anchor] = target.split('#');
  const text = pages.get(page);
  if (text === undefined) return anchor === undefined && isThere(page);
  return anchor === undefined || headingsOf(text).map(slugOf).includes(anchor);
}

function pageOf(path: string, target: string): string {
  const [file = ''] = target.split('#');
  return file === '' ? path : posix.join(posix.dirname(path), file);
}

function linksOf(text: string): string[] {
  const prose = withoutBlocks(text).replace(/`[^`]*`/g, (code) => code.replace(/[[\]()]/g, ' '));
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target);
}

function withoutBlocks(text: string): string {
  return text.replace(/^```.*?^```$/gms, '');
}

/** Returns the anchor that a forge creates for a heading. */
function slugOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(' ', '-');
}
