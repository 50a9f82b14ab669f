import { globSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { posix } from 'node:path';

/** Texts of pages by their path in the project. */
export type Pages = ReadonlyMap<string, string>;

/** Every written page of the project. */
export async function readPages(root: string): Promise<Map<string, string>> {
  const paths = globSync('{*.md,docs/**/*.md}', { cwd: root }).map((path) => path.replaceAll('\\', '/'));
  return new Map(
    await Promise.all(paths.sort().map(async (path) => [path, await readFile(`${root}/${path}`, 'utf8')] as const)),
  );
}

/** The words of the headings of a page, from the title on. */
export function headingsOf(text: string): string[] {
  return [...withoutBlocks(text).matchAll(/^#+ +(.+?) *$/gm)].map(([, words = '']) => words);
}

/**
 * Links that lead nowhere, as `page: target`: to a page or heading that is not there, or over an address that is not encrypted. Other
 * addresses are not asked. Files that are no pages are taken for there when `isThere` says so.
 */
export function brokenLinks(pages: Pages, isThere: (path: string) => boolean = () => false): string[] {
  return [...pages].flatMap(([path, text]) =>
    linksOf(text)
      .filter((target) => !leadsSomewhere(path, target, pages, isThere))
      .map((target) => `${path}: ${target}`),
  );
}

/** The pages that can be reached from one by links, itself among them. */
export function pagesFrom(start: string, pages: Pages): Set<string> {
  const reached = new Set([start]);
  // A set that grows is iterated to its new end.
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

/** What a forge makes of a heading for its address. */
function slugOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(' ', '-');
}
