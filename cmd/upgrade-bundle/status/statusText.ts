import { formatBytes, Lines } from '#text';
import { phaseOf, type NodeProgress, type UpgradeBundle } from '#update/record';
import { breakHanging, formatBar, formatCount, formatFields, formatTable } from '../../cli/format.ts';
import type { Accents } from '../../cli/terminal.ts';
import {
  phaseAccents,
  accentOf,
  describeImages,
  formatTitle,
  problemsOf,
  viewStatus,
  type ClusterStatus,
  type StatusRow,
} from './statusView.ts';

/** The width of a bar in characters, short because names of nodes are long, and shorter on a narrow terminal. */
const barWidth = 10;
const narrowBarWidth = 5;
/** The fewest characters for messages in a table. With fewer, each message is below its row. */
const narrowest = 40;

/** A status as it is printed: its text, and the words of it that have a color. */
export interface StatusText {
  readonly text: string | Lines;
  readonly accents: Accents;
}

/** Formats the title of an update. `elapsed` is the time of the version operator in seconds. */
export function formatTitleText(bundle: UpgradeBundle, elapsed?: number): StatusText {
  const [problem] = problemsOf(bundle);
  const phase = phaseOf(bundle);
  const words = problem === undefined ? phase : `${phase}, ${problem}`;
  const accent = problem === undefined ? accentOf(phase) : 'bad';
  return { text: formatTitle(bundle, elapsed), accents: accent === undefined ? {} : { [words]: accent } };
}

/**
 * Formats the whole status as text and tables; without an update, the mirrors alone. `width` is that of the terminal,
 * in characters. With fewer `rows` than that takes, leaves out facts, good conditions, mirrors and the last nodes, and
 * says how many nodes. `isWide` adds the disks of the nodes.
 */
export function formatStatus(
  status: ClusterStatus,
  { width, rows, isWide }: { readonly width: number; readonly rows: number; readonly isWide?: boolean },
): StatusText {
  const { bundle, elapsed } = status;
  const view = viewStatus(status);
  const mirrors = formatMirrors(view.mirrors, width);
  if (!bundle) return { text: new Lines(...mirrors.slice(1)), accents: {} };
  const title = formatTitleText(bundle, elapsed);
  const conditions = formatConditions(view.conditions, width);
  const head = [...breakHanging(formatTitle(bundle, elapsed), width), ...formatFields(view.problem, width).lines];
  const full = [
    ...head,
    ...formatFields(view.facts, width).lines,
    ...conditions.lines,
    ...formatNodes(view.nodes, width, isWide),
    ...mirrors,
  ];
  const accents = {
    ...title.accents,
    ...conditions.accents,
    ...phaseAccents,
    Problem: 'bad',
    Stalled: 'bad',
    Decision: 'bad',
  } as const;
  if (full.length < rows) return { text: new Lines(...full), accents };
  // Problems say what the conditions say.
  const open = view.conditions.filter(({ accent }) => accent !== 'good' && view.problem.length === 0);
  const above = [...head, ...formatConditions(open, width).lines];
  return { text: new Lines(...above, ...fitNodes(view.nodes, width, rows - 1 - above.length)), accents };
}

function formatMirrors(mirrors: readonly StatusRow[], width: number): string[] {
  const rows = mirrors.map(({ cells }) => cells);
  return formatRows(['MIRROR', 'SERVES', 'IMAGES GIVEN', 'MESSAGE'], rows, ['IMAGES GIVEN'], width);
}

/** Returns the lines of as many nodes as fit into a number of lines, and the number of the others. */
function fitNodes(nodes: readonly NodeProgress[], width: number, lines: number): string[] {
  for (let count = nodes.length; count > 0; count -= 1) {
    const hiddenCount = nodes.length - count;
    const more = hiddenCount === 0 ? [] : [`… and ${formatCount(hiddenCount, 'more node')}`];
    const shown = [...formatNodes(nodes.slice(0, count), width), ...more];
    if (shown.length <= lines) return shown;
  }
  return nodes.length === 0 ? [] : ['', formatCount(nodes.length, 'node')];
}

function formatConditions(conditions: readonly StatusRow[], width: number): { lines: string[]; accents: Accents } {
  const lines = formatRows(
    ['CONDITION', 'STATUS', 'REASON', 'MESSAGE'],
    conditions.map(({ cells }) => cells),
    [],
    width,
  );
  // Nodes have phases of the same names, so the color is that of the type with its status.
  const accents = conditions.flatMap(({ cells: [type = '', status = ''], accent }) => {
    const [words] = lines.flatMap(
      (line) => new RegExp(`^${RegExp.escape(type)} +${RegExp.escape(status)}(?=  |$)`).exec(line) ?? [],
    );
    return words === undefined ? [] : [[words, accent] as const];
  });
  return { lines, accents: Object.fromEntries(accents) };
}

function formatNodes(nodes: readonly NodeProgress[], width: number, isWide = false): string[] {
  const sizeOf = (bytes: number | undefined): string => (bytes === undefined ? '-' : formatBytes(bytes));
  const rows = nodes.map((node) => {
    const { name, phase, imagesLoaded, imagesTotal, bytes, message = '' } = node;
    const bar = formatBar(imagesTotal === 0 ? 0 : imagesLoaded / imagesTotal, width < 60 ? narrowBarWidth : barWidth);
    const disks = isWide ? [sizeOf(node.free), sizeOf(node.size), sizeOf(node.database)] : [];
    return [name, phase, bar, describeImages(node), formatBytes(bytes), ...disks, message];
  });
  const sizes = ['BLOBS', ...(isWide ? ['FREE', 'DISK', 'ETCD'] : [])];
  return formatRows(['NODE', 'PHASE', 'IMAGES', '', ...sizes, 'MESSAGE'], rows, sizes, width);
}

/** Formats rows below an empty line: as a table, or with each message below its row if the table is too wide. */
function formatRows(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  right: readonly string[],
  width: number,
): string[] {
  if (rows.length === 0) return [];
  const table = formatTable([header, ...rows], right, width).lines;
  const indent = table[0]?.indexOf(header.at(-1) ?? '') ?? 0;
  if (width - indent >= narrowest) return ['', ...table];
  // Not wrapped, because each row needs its own line.
  const format = (from: number): readonly string[] => formatTable(rows.map((row) => row.slice(from, -1))).lines;
  // A long name gets a line of its own.
  const isLong = format(0).some((line) => line.length > width);
  const short = format(isLong ? 1 : 0);
  const blocks = rows.map((row, index) => [
    ...(isLong ? [row[0] ?? '', `  ${short[index] ?? ''}`] : [short[index] ?? '']),
    ...breakHanging(row.at(-1) ?? '', width - 4).map((line) => `    ${line}`.trimEnd()),
  ]);
  return ['', ...blocks.flat().filter((line) => line !== '')];
}
