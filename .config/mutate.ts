/**
 * Applies each mutation of mutationList.ts to a copy of the repository, and runs its test there, which must fail.
 * Arguments: parts of paths, which select mutations. Exits with 1 if a test passes with a mutation.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { mutations, type Mutation } from './mutationList.ts';

const run = promisify(execFile);
const root = resolve(import.meta.dirname, '..');
const selected = process.argv.slice(2);
const copy = await mkdtemp(join(tmpdir(), 'mutate-'));
const passing = new Map<string, Promise<boolean>>();
const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
let survivors = 0;
try {
  const { stdout } = await run('git', ['ls-files', '-z'], { cwd: root, maxBuffer: 2 ** 26 });
  for (const path of stdout.split('\0').filter((each) => each !== '')) await cp(join(root, path), join(copy, path));
  await symlink(join(root, 'node_modules'), join(copy, 'node_modules'));
  for (const mutation of mutations) {
    const { file, text, test } = mutation;
    if (selected.length > 0 && !selected.some((part) => file.includes(part) || test.includes(part))) continue;
    const result = await judge(mutation);
    if (result !== 'killed') survivors++;
    console.log(`${result.padEnd(8)}  ${file}  ${JSON.stringify(text.trim().slice(0, 60))}  ${test}`);
  }
} finally {
  await rm(copy, { recursive: true });
}
console.log(survivors === 0 ? 'no mutation survived' : `${survivors} mutations survived`);
process.exitCode = survivors === 0 ? 0 : 1;

/**
 * Returns the state of a mutation. `invalid`: the text is not in the file exactly once, or the test fails without it.
 */
async function judge({ file, text, replacement, test }: Mutation): Promise<'killed' | 'survived' | 'invalid'> {
  const path = join(copy, file);
  const original = await readFile(path, 'utf8');
  if (original.split(text).length !== 2) return 'invalid';
  if (!passing.has(test)) passing.set(test, passes(test));
  if (!(await passing.get(test))) return 'invalid';
  await writeFile(
    path,
    original.replace(text, () => replacement),
  );
  try {
    return (await passes(test)) ? 'survived' : 'killed';
  } finally {
    await writeFile(path, original);
  }
}

/**
 * Runs a file of tests up to its first failure, in a process group of its own, of which no process is left afterwards.
 * A mutation may cause an endless loop, also in a program that a test starts.
 */
async function passes(test: string): Promise<boolean> {
  const mocha = join(root, 'node_modules/mocha/bin/mocha.js');
  const child = spawn(process.execPath, [mocha, '--bail', test], { cwd: copy, stdio: 'ignore', detached: true });
  const endGroup = (): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    } catch {
      // All its processes have ended.
    }
  };
  let stopped: NodeJS.Signals | undefined;
  // The terminal sends Ctrl-C to the group of this process only.
  const stop = (signal: NodeJS.Signals): void => {
    stopped = signal;
    endGroup();
  };
  const timer = setTimeout(endGroup, 180_000);
  for (const signal of stopSignals) process.on(signal, stop);
  try {
    const [code] = (await once(child, 'exit')) as [number | null];
    if (stopped) throw new Error(`stopped by ${stopped}`);
    return code === 0;
  } finally {
    clearTimeout(timer);
    for (const signal of stopSignals) process.off(signal, stop);
    endGroup();
  }
}
