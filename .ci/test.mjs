// Runs test files from one queue, the longest first, in three processes more than there are processors,
// because many tests only wait. `node .ci/test.mjs` runs all except test/system, `node .ci/test.mjs
// system` only those, and `node .ci/test.mjs FILE...` some. Files that use loop devices run one
// after the other. With `--shuffle`, files, suites and tests run in random order, which TEST_SEED
// repeats. The last line is the total: `N passed, N failed, N skipped`.
import { spawn, spawnSync } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, existsSync, globSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { rmSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const root = fileURLToPath(new URL('..', import.meta.url));
const cache = join(root, 'node_modules/.cache');
/** The duration of the last run of each file, in milliseconds. */
const timesFile = join(cache, 'test-times.json');
/** The durations of the longest files, for a machine without an earlier run. */
const usualTimes = fileURLToPath(new URL('times.json', import.meta.url));
const mocha = join(root, 'node_modules/mocha/bin/mocha.js');
/** The number of processes at a time. */
const places = availableParallelism() + 3;
/**
 * The least and the most time of a process with several files, in milliseconds. Files share a process, because loading
 * the sources takes half a second of CPU time, and code that has run for a while is faster. The last processes are
 * short, so that all end at almost the same time.
 */
const [shortest, longest] = [5_000, 40_000];
/**
 * The time limit of a process, in milliseconds. Mocha ends each test that takes too long, unless it blocks the process.
 */
const limit = Number(process.env.TEST_LIMIT ?? 15 * 60_000);

process.chdir(root);
const { values, positionals } = parseArgs({ allowPositionals: true, options: { shuffle: { type: 'boolean' } } });
/** The paths of podman in whole-system tests have no space for a longer folder for temporary files. */
const isSystem = positionals[0] === 'system';
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
/** A folder for reports and temporary files, which other users may enter. */
const reports = mkdtempSync(join(tmpdir(), 'tests-'));
chmodSync(reports, 0o711);
const queue = plan(listFiles(positionals));
const sum = { passed: 0, failed: 0, skipped: [] };
let isSerialRunning = false;
let wake = Promise.withResolvers();

const started = Date.now();
await Promise.all(Array.from({ length: places }, runNext));
finish();

/** Builds the executables, and returns the variable with their folder. If that fails, test/build.test.ts tells why. */
function buildExecutables() {
  if (!existsSync('.config/build.ts')) return {};
  const folder = join(cache, 'executables');
  const { status } = spawnSync(process.execPath, ['.config/build.ts', folder], { stdio: 'ignore' });
  return status === 0 ? { TEST_EXECUTABLES: join(folder, 'bin') } : {};
}

function listFiles(words) {
  if (words.length > 0 && !isSystem) return words;
  const files = globSync('test/**/*.test.ts').map((path) => path.replaceAll('\\', '/'));
  return files.filter((path) => path.startsWith('test/system/') === isSystem).sort();
}

/** Returns the jobs for processes: the files, whether they must run alone among their kind, and the expected time. */
function plan(files) {
  const jobs = [];
  let batch;
  let most;
  const sorted = files.map((path) => ({ path, time: estimate(path) })).sort((a, b) => rank(a) - rank(b));
  let rest = sorted.reduce((sum, { time }) => sum + time, 0);
  for (const { path, time } of sorted) {
    const serial = /support\/(loopDevice|simulatedCluster)\.ts|losetup/.test(readFileSync(path, 'utf8'));
    if (serial) {
      jobs.push({ paths: [path], time, serial });
    } else {
      if (!batch || batch.time + time > most) {
        jobs.push((batch = { paths: [], time: 0, serial }));
        most = Math.max(shortest, Math.min(longest, rest / places / 2));
      }
      batch.paths.push(path);
      batch.time += time;
    }
    rest -= time;
  }
  if (seed) return jobs;
  // Serial jobs start first.
  return jobs.sort((a, b) => Number(b.serial) - Number(a.serial) || b.time - a.time);
}

/** Orders files: the longest first, or by chance. */
function rank({ path, time }) {
  return seed ? parseInt(hash('sha256', seed + path).slice(0, 12), 16) : -time;
}

/** Estimates the duration of a file: by its last run, else by its size. */
function estimate(path) {
  return times[path] ?? statSync(path).size / 4;
}

async function runNext() {
  while (queue.length > 0) {
    const index = queue.findIndex(({ serial }) => !serial || !isSerialRunning);
    if (index < 0) {
      await wake.promise;
      continue;
    }
    const [job] = queue.splice(index, 1);
    if (job.serial) isSerialRunning = true;
    await run(job.paths);
    if (job.serial) {
      isSerialRunning = false;
      wake.resolve();
      wake = Promise.withResolvers();
    }
  }
}

async function run(paths) {
  const folder = mkdtempSync(join(reports, '-'));
  chmodSync(folder, 0o1777);
  const TEST_REPORT = `${folder}.json`;
  const env = { ...environment, TEST_REPORT, ...(!isSystem && { TMPDIR: folder }) };
  const child = spawn(process.execPath, [mocha, ...paths], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text) => {
      output += text;
    });
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = child.kill('SIGKILL');
  }, limit);
  const closed = once(child, 'close');
  const [code, signal] = await once(child, 'exit');
  clearTimeout(timer);
  // A program that a test left running may keep the output open.
  await Promise.race([closed, sleep(2000, undefined, { ref: false })]);
  for (const stream of [child.stdout, child.stderr]) stream.destroy();
  process.stdout.write(output.replace(/^\d+ passed, \d+ failed, \d+ skipped\n/gm, '').replace(/\n{2,}/g, '\n'));
  const report = readReport(TEST_REPORT);
  sum.passed += report?.passed ?? 0;
  sum.failed += report?.failed ?? 0;
  sum.skipped.push(...(report?.skipped ?? []));
  Object.assign(times, report?.times);
  const left = readdirSync(folder);
  if (report && left.length > 0)
    console.log(`  LEFT  ${left.join(' ')} in the temporary folder, by ${paths.join(' ')}`);
  if (!report || (code !== 0 && report.failed === 0)) {
    sum.failed += 1;
    const why = isLate ? `did not end in ${limit / 1000} s` : `ended with ${String(signal ?? code)}`;
    console.log(`  FAILED  ${paths.join(' ')} ${why}`);
    // Alone, each file counts its tests, and the file that ended the process fails again.
    if (!report && paths.length > 1) for (const path of paths) await run([path]);
  }
}

/** Returns the report of a process; undefined if it ended before its tests did. */
function readReport(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return undefined;
  }
}

function finish() {
  mkdirSync(cache, { recursive: true });
  writeFileSync(timesFile, JSON.stringify(times, undefined, 1));
  rmSync(reports, { recursive: true, force: true });
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
