import { createHash } from 'node:crypto';
import { PluginError } from '../errors.ts';
import type { SiteOperator, SiteReport } from './siteTypes.ts';

const title = 'oc-disconnected site 1';

/**
 * Formats the facts of a report that plan a bundle as short lines, which can be typed: version, architecture, channel,
 * free space and operators. Each line ends with a check of four hex digits, and the last one checks them all.
 */
export function formatSiteText({ version, arch, channel, created, nodes, operators }: SiteReport): string {
  const free = nodes.flatMap((node) => node.free ?? []);
  const lines = [
    title,
    `created ${created}`,
    `cluster ${version} ${arch} ${channel === '' ? '-' : channel}`,
    `nodes ${nodes.length} free ${free.length === 0 ? '-' : Math.floor(Math.min(...free) / 2 ** 30)}`,
    ...operators.map(({ name, channel: of, version: installed, catalog, maxOpenShiftVersion: max }) =>
      [
        'operator',
        name,
        ...[of, installed, catalog, max].map((word) => (word === undefined || word === '' ? '-' : word)),
      ].join(' '),
    ),
  ];
  const all = [...lines, `end ${lines.length}`];
  return all.map((line, index) => `${line} #${checkOf(index === lines.length ? lines.join('\n') : line)}\n`).join('');
}

/**
 * Parses the text form of a report. Ignores blank lines and the number of blanks between words. Throws `invalid-file`
 * with the line that is mistyped or missing.
 */
export function parseSiteText(text: string, where: string): SiteReport {
  const typed = text.split('\n').map((line) => line.trim().split(/\s+/).join(' '));
  const lines: string[] = [];
  let end: string | undefined;
  for (const [index, line] of typed.entries()) {
    if (line === '') continue;
    const [, content = '', check] = /^(.*) #([0-9a-f]{4})$/.exec(line) ?? [];
    const isEnd = content.startsWith('end ');
    if (check !== checkOf(isEnd ? lines.join('\n') : content)) {
      const why = isEnd ? 'lines before it are missing or in another order' : 'it is mistyped';
      throw invalid(where, `line ${index + 1}: ${why}`);
    }
    if (isEnd) end = content;
    else lines.push(content);
  }
  const [first, ...rest] = lines;
  if (first !== title) throw invalid(where, `it does not begin with “${title}”`);
  if (end !== `end ${lines.length}`) throw invalid(where, 'its last line is missing');
  const words = rest.map((line) => line.split(' ').map((word) => (word === '-' ? '' : word)));
  const wordsOf = (kind: string): readonly string[] => words.find(([word]) => word === kind) ?? [];
  const [, version = '', arch = '', channel = ''] = wordsOf('cluster');
  const [, count = '0', , free = ''] = wordsOf('nodes');
  const nodes = Array.from({ length: Math.min(Number(count), 10_000) }, (_, index) => ({
    ...{ name: `node ${index + 1}`, architecture: '' },
    ...(free !== '' && { free: Number(free) * 2 ** 30 }),
  }));
  const operators = words.flatMap(([kind, ...fields]) => (kind === 'operator' ? [readOperator(fields)] : []));
  const [, created = ''] = wordsOf('created');
  return {
    formatVersion: 1,
    created,
    tool: title,
    version,
    arch,
    channel,
    history: [],
    nodes,
    operators,
    findings: [],
  };
}

function readOperator([
  name = '',
  channel = '',
  version = '',
  catalog = '',
  max = '',
]: readonly string[]): SiteOperator {
  return { name, channel, version, catalog, ...(max !== '' && { maxOpenShiftVersion: max }) };
}

function checkOf(line: string): string {
  return createHash('sha256').update(line).digest('hex').slice(0, 4);
}

function invalid(where: string, why: string): PluginError {
  return new PluginError('invalid-file', `${where} is not the report of a site: ${why}`, {
    hint: 'Compare the line with the original. Each line ends with # and four digits that check it.',
  });
}
