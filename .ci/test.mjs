// Runs test files from one queue, the longest first, in three processes more than there are processors, because many
// tests only wait. Those of whole systems wait longer, so they have two more. worker.mjs is such a process.
// `node .ci/test.mjs` runs all except test/system, `node .ci/test.mjs system` only those, and
// `node .ci/test.mjs FILE...` some. Files that use loop devices run in the first two processes only: they take the
// longest together, so the others are nicer. With `--shuffle`, files, suites and tests run in random order, which
// TEST_SEED repeats. The last line is the total: `N passed, N failed, N skipped`.
import { fork, spawnSync } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, existsSync, globSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { rmSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism, freemem, setPriority, tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const root = fileURLToPath(new URL('..', import.meta.url));
const cache = join(root, 'node_modules/.cache');
/** The duration of the last run of each file, in milliseconds. */
const timesFile = join(cache, 'test-times.json');
/** The durations of the longest files, for a machine without an earlier run. */
const usualTimes = fileURLToPath(new URL('times.json', import.meta.url));
const workerFile = fileURLToPath(new URL('worker.mjs', import.meta.url));
/**
 * The time limit of a file, in milliseconds. Mocha ends each test that takes too long, unless it blocks the process.
 */
const limit = Number(process.env.TEST_LIMIT ?? 45 * 60_000);

process.chdir(root);
const { values, positionals } = parseArgs({ allowPositionals: true, options: { shuffle: { type: 'boolean' } } });
const isSystem = positionals[0] === 'system';
/** The number of processes. */
const places = Number(process.env.TEST_PROCESSES ?? availableParallelism() + (isSystem ? 5 : 3));
/** The seed of a random order. The reporter of the tests takes it from the environment too. */
const seed = values.shuffle ? (process.env.TEST_SEED ?? String(Date.now())) : undefined;
const environment = {
  ...process.env,
  // Scripts that tests start run on this Node.js too.
  PATH: [dirname(process.execPath), process.env.PATH ?? ''].join(delimiter),
  NODE_COMPILE_CACHE: join(cache, 'compile'),
  ...(seed && { TEST_SEED: seed }),
  // Tests start the built executables, which takes half the time of starting their sources.
  ...buildExecutables(),
};
const times = { ...readTimes(usualTimes), ...readTimes(timesFile) };
/** The folder for temporary files, which other users may enter. */
const temporary = mkdtempSync(join(tmpdir(), 'tests-'));
chmodSync(temporary, 0o1777);
const isMounted = mountMemory(temporary);
const queue = plan(listFiles(positionals));
const sum = { passed: 0, failed: 0, skipped: [] };

const started = Date.now();
await Promise.all(Array.from({ length: places }, (_, place) => runQueue(place < 2)));
finish();

/** Builds the executables, and returns the variable with their folder. If that fails, test/build.test.ts tells why. */
function buildExecutables() {
  if (!existsSync('.config/executables.ts')) return {};
  const { status, stdout } = spawnSync(process.execPath, ['.config/executables.ts'], { encoding: 'utf8' });
  return status === 0 ? { TEST_EXECUTABLES: join(stdout.trim(), 'bin') } : {};
}

/**
 * Mounts a file system in memory if root runs the tests and there is enough memory: they use at most 2 GB of it, and a
 * fifth less CPU time. Nodes of simulated clusters need a file system with 20 GiB. Returns whether it did.
 */
function mountMemory(folder) {
  if (process.getuid?.() !== 0 || freemem() < 8 * 2 ** 30) return false;
  return spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64g,mode=1777', 'tests', folder]).status === 0;
}

function listFiles(words) {
  if (words.length > 0 && !isSystem) return words;
  const files = globSync('test/**/*.test.ts').map((path) => path.replaceAll('\\', '/'));
  return files.filter((path) => path.startsWith('test/system/') === isSystem).sort();
}

/**
 * Returns the files in the order of their start, and whether each uses loop devices. At most two such files run at a
 * time.
 */
function plan(files) {
  const jobs = files.map((path) => {
    const usesLoops = /support\/loopDevice\.ts|losetup/.test(readFileSync(path, 'utf8'));
    return { path, usesLoops, rank: rank(path) };
  });
  return jobs.sort((a, b) => b.rank - a.rank);
}

/** Orders files: the longest first, by the last run or by size; or in random order. */
function rank(path) {
  if (seed) return parseInt(hash('sha256', seed + path).slice(0, 12), 16);
  return times[path] ?? statSync(path).size / 4;
}

/**
 * Runs files in one process, and in another one after a file that ended it. The first two processes begin with files
 * that use loop devices.
 */
async function runQueue(hasLoops) {
  let worker;
  for (;;) {
    const withLoops = hasLoops ? queue.findIndex(({ usesLoops }) => usesLoops) : -1;
    const index = withLoops < 0 ? queue.findIndex(({ usesLoops }) => !usesLoops) : withLoops;
    if (index < 0) break;
    const [{ path }] = queue.splice(index, 1);
    if (!worker?.process.connected) worker = await startWorker();
    if (!hasLoops) setPriority(worker.process.pid, 5);
    await run(worker, path);
  }
  if (worker?.process.connected) worker.process.disconnect();
  await worker?.exit;
}

/** Starts a process, and returns it with the promise of its exit code and signal. */
async function startWorker() {
  const env = { ...environment, TMPDIR: temporary };
  // With more space for new objects, the garbage collector takes half the time.
  const execArgv = ['--max-semi-space-size=64'];
  const worker = fork(workerFile, { env, execArgv, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const exit = once(worker, 'exit');
  await Promise.race([once(worker, 'message'), exit]);
  return { process: worker, exit };
}

/** Runs a file, and prints and adds up what its process answers. */
async function run(worker, path) {
  // The paths of podman in whole-system tests have no space for a folder of each file.
  const folder = path.startsWith('test/system/') ? undefined : mkdtempSync(join(temporary, '-'));
  if (folder) chmodSync(folder, 0o1777);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = worker.process.kill('SIGKILL');
  }, limit);
  worker.process.send({ path, folder });
  const [answer, signal] = await Promise.race([once(worker.process, 'message'), worker.exit]);
  clearTimeout(timer);
  if (answer?.output === undefined) {
    sum.failed += 1;
    console.log(`  FAILED  ${path} ${isLate ? `did not end in ${limit / 1000} s` : `ended with ${signal ?? answer}`}`);
    return;
  }
  process.stdout.write(answer.output);
  sum.passed += answer.passed;
  sum.failed += answer.failed;
  sum.skipped.push(...answer.skipped);
  times[path] = answer.time;
  // The process removes at its end what all its files share.
  const left = folder ? readdirSync(folder).filter((name) => !name.startsWith('shared-')) : [];
  if (left.length > 0) console.log(`  LEFT  ${left.join(' ')} in the temporary folder, by ${path}`);
}

function finish() {
  mkdirSync(cache, { recursive: true });
  writeFileSync(timesFile, JSON.stringify(times, undefined, 1));
  if (isMounted) spawnSync('umount', ['--lazy', temporary]);
  rmSync(temporary, { recursive: true, force: true });
  if (sum.skipped.length > 0) console.log(`\n  SKIPPED (${String(sum.skipped.length)}):`);
  for (const title of sum.skipped) console.log(`    - ${title}`);
  const order = seed ? `, in the order of TEST_SEED=${seed}` : '';
  console.log(`\n  ${String(Math.round((Date.now() - started) / 1000))} s${order}`);
  console.log(`\n${String(sum.passed)} passed, ${String(sum.failed)} failed, ${String(sum.skipped.length)} skipped`);
  process.exitCode = sum.failed > 0 ? 1 : 0;
}

function readTimes(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return {};
  }
}
