// Runs all tests in several processes side by side, one more than there are processors, since many tests only wait. The last line is the sum
// of all: `N passed, N failed, N skipped`.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

// The longest first; each without what is in those before it. What looks at the devices of the machine is all in the first, and so happens one
// after the other.
const parts = [
  ['test/{cluster,node}/**/*.test.ts', 'test/cmd/watch.test.ts', 'test/store/archive.test.ts'],
  ['test/host/**/*.test.ts'],
  ['test/bundle/create*.test.ts'],
  ['test/{bundle,release}/**/*.test.ts'],
  ['test/cmd/**/*.test.ts'],
  ['test/**/*.test.ts'],
];
const queue = parts.map((patterns, index) => [
  ...patterns,
  ...parts.slice(0, index).flatMap((before) => before.map((pattern) => `--ignore=${pattern}`)),
]);

// Programs are started some thousand times: what was compiled once is kept.
const NODE_COMPILE_CACHE = fileURLToPath(new URL('../node_modules/.cache/compile', import.meta.url));

const counts = /^(\d+) passed, (\d+) failed, (\d+) skipped$/;
const sums = [0, 0, 0];
let code = 0;

async function runNext() {
  for (let args = queue.shift(); args; args = queue.shift()) {
    const env = { ...process.env, NODE_COMPILE_CACHE };
    const mocha = spawn('mocha', args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    for await (const line of createInterface({ input: mocha.stdout })) {
      const found = counts.exec(line);
      if (found) sums.forEach((sum, index) => (sums[index] = sum + Number(found[index + 1])));
      else console.log(line);
    }
    if (mocha.exitCode === null) await once(mocha, 'exit');
    code = Math.max(code, mocha.exitCode ?? 1);
  }
}

await Promise.all(Array.from({ length: availableParallelism() + 1 }, runNext));
const [passed, failed, skipped] = sums;
console.log(`\n${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exitCode = code;
