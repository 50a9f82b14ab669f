interface Line {
  readonly mark: ' ' | '-' | '+';
  readonly text: string;
}

const context = 3;

/**
 * The difference of two texts in the unified format, as diff(1) and patch(1) have it; empty where there is none. For texts of some
 * hundred lines, as units and configurations are. Values of environment variables on podman’s command lines are left out: they may be secrets.
 */
export function formatUnifiedDiff(path: string, before: string, after: string): string {
  if (before === after) return '';
  const lines = compare(linesOf(before), linesOf(after));
  const changed = lines.flatMap(({ mark }, index) => (mark === ' ' ? [] : [index]));
  const hunks: { from: number; to: number }[] = [];
  for (const index of changed) {
    const last = hunks.at(-1);
    const to = Math.min(lines.length, index + context + 1);
    if (last && index - context <= last.to) last.to = to;
    else hunks.push({ from: Math.max(0, index - context), to });
  }
  const body = hunks.flatMap(({ from, to }) => {
    const count = (part: readonly Line[], mark: '-' | '+'): number =>
      part.filter((line) => line.mark === ' ' || line.mark === mark).length;
    const [earlier, hunk] = [lines.slice(0, from), lines.slice(from, to)];
    const range = (mark: '-' | '+'): string => `${mark}${count(earlier, mark) + 1},${count(hunk, mark)}`;
    return [`@@ ${range('-')} ${range('+')} @@`, ...hunk.map(({ mark, text }) => mark + hideValues(text))];
  });
  return [`--- ${path}`, `+++ ${path}`, ...body, ''].join('\n');
}

function linesOf(text: string): string[] {
  return text.replace(/\n$/, '').split('\n');
}

/** The lines of both, those in common once: by the longest common subsequence. */
function compare(before: readonly string[], after: readonly string[]): Line[] {
  const lengths = Array.from({ length: before.length + 1 }, () => new Array<number>(after.length + 1).fill(0));
  const at = (row: number, column: number): number => lengths[row]?.[column] ?? 0;
  for (let row = before.length - 1; row >= 0; row -= 1) {
    for (let column = after.length - 1; column >= 0; column -= 1) {
      const longest =
        before[row] === after[column]
          ? at(row + 1, column + 1) + 1
          : Math.max(at(row + 1, column), at(row, column + 1));
      (lengths[row] ?? [])[column] = longest;
    }
  }
  const lines: Line[] = [];
  let [row, column] = [0, 0];
  while (row < before.length || column < after.length) {
    const [old, fresh] = [before[row], after[column]];
    if (old !== undefined && old === fresh) {
      lines.push({ mark: ' ', text: old });
      [row, column] = [row + 1, column + 1];
    } else if (old !== undefined && (fresh === undefined || at(row + 1, column) >= at(row, column + 1))) {
      lines.push({ mark: '-', text: old });
      row += 1;
    } else {
      lines.push({ mark: '+', text: fresh ?? '' });
      column += 1;
    }
  }
  return lines;
}

const harmless = /^(?:WORKER_COUNT|WORKER_COUNT_UNSUPPORTED_MINIMUM|PYTHONUSERBASE_SITE_PACKAGE|DEBUGLOG)$/;

function hideValues(line: string): string {
  return line.replace(/((?:-e|--env)(?:\s+|=)?["']?)(\w+)=[^\s"']+/g, (all, start: string, name: string) =>
    harmless.test(name) ? all : `${start}${name}=…`,
  );
}
