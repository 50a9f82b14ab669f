import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';

/** The cost of a command with its children: seconds, and the bytes of its largest process. */
export interface Measurement {
  readonly wall: number;
  readonly cpu: number;
  readonly peak: number;
}

/** Runs a command under time(1) and returns its cost. Throws if it fails. */
export async function measure(command: readonly string[]): Promise<Measurement> {
  const folder = mkdtempSync(join(tmpdir(), 'measure-'));
  try {
    const report = join(folder, 'time');
    const child = spawn('time', ['-o', report, '-f', '%e %U %S %M', ...command], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let errors = '';
    child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
    const code = await new Promise<number | null>((resolve, reject) =>
      child.once('close', resolve).once('error', reject),
    );
    if (code !== 0) throw new Error(`${command.slice(0, 4).join(' ')} failed: ${errors}`);
    const [wall = 0, user = 0, system = 0, peak = 0] = (await readFile(report, 'utf8')).trim().split(' ').map(Number);
    return { wall, cpu: user + system, peak: peak * 1024 };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/**
 * Measures a command that writes into an empty folder, after earlier files are removed and written to disk. A virtual
 * machine gets memory that it returned to its host only slowly, so memory is touched before each command.
 */
export async function measureInto(folder: string, command: readonly string[]): Promise<Measurement> {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  execFileSync('sync');
  const filler = `${folder}.filler`;
  execFileSync('sh', ['-c', 'head -c 2G /dev/zero > "$0"; rm "$0"', filler]);
  return measure(command);
}

/** What one comparison showed: a line of the table of `npm run bench`. */
export interface Row {
  readonly job: string;
  readonly own: string;
  readonly peer: string;
  /** The cost of this program divided by that of the peer: the median of the ratios of the runs. */
  readonly wall: string;
  readonly cpu: string;
}

/** Prints a line, and passes it to the process that collects the table, if there is one. */
export function addRow(row: Row): void {
  const ratio = row.peer === '' ? '' : `; of ${row.peer}: ${row.wall} in wall time, ${row.cpu} in CPU time`;
  console.log(`${row.job}: ${row.own}${ratio}`);
  process.send?.(row);
}

/**
 * Measures programs in turns, the first of which is ours, and reports a row for each other one. The first run of each
 * warms the page cache, and does not count.
 */
export async function race(
  job: string,
  contenders: Readonly<Record<string, () => Promise<Measurement>>>,
  runs: number,
): Promise<void> {
  const results = new Map<string, Measurement[]>(Object.keys(contenders).map((name) => [name, []]));
  for (let run = 0; run <= runs; run++) {
    for (const [name, contend] of Object.entries(contenders)) {
      const measurement = await contend();
      if (run > 0) results.get(name)?.push(measurement);
    }
  }
  const figures = (all: readonly Measurement[]): string => {
    const of = (read: (each: Measurement) => number): number => median(all.map(read));
    const seconds = `${of(({ wall }) => wall).toFixed(2)} s, ${of(({ cpu }) => cpu).toFixed(2)} CPU s`;
    return `${seconds}, ${of(({ peak }) => peak / 1e6).toFixed(0)} MB`;
  };
  const [[, own] = ['', []], ...others] = results;
  if (others.length === 0) addRow({ job, own: figures(own), peer: '', wall: '', cpu: '' });
  for (const [name, all] of others) {
    const ratio = (of: (each: Measurement) => number): string =>
      median(own.map((mine, run) => of(mine) / of(all[run] ?? mine))).toFixed(2);
    const peer = `${name} (${figures(all)})`;
    addRow({ job, own: figures(own), peer, wall: ratio(({ wall }) => wall), cpu: ratio(({ cpu }) => cpu) });
  }
}

/** Returns the median of some numbers. */
export function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? NaN;
}

/** Returns the load of this machine over 1, 5 and 15 minutes. */
export function formatLoad(): string {
  return loadavg()
    .map((value) => value.toFixed(2))
    .join(' ');
}
