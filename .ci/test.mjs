// Runs all tests in two processes of about the same length side by side, since many only wait; those that look at the devices of the
// machine are all in the first. The last line is the sum of both: `N passed, N failed, N skipped`.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

const first = ['test/{cluster,cmd,host,node}/**/*.test.ts', 'test/store/archive.test.ts'];
const groups = [first, ['test/**/*.test.ts', ...first.map((pattern) => `--ignore=${pattern}`)]];
const counts = /^(\d+) passed, (\d+) failed, (\d+) skipped$/;

const sums = [0, 0, 0];
const codes = await Promise.all(
  groups.map(async (args) => {
    const mocha = spawn('mocha', args, { stdio: ['ignore', 'pipe', 'inherit'] });
    for await (const line of createInterface({ input: mocha.stdout })) {
      const found = counts.exec(line);
      if (found) sums.forEach((sum, index) => (sums[index] = sum + Number(found[index + 1])));
      else console.log(line);
    }
    if (mocha.exitCode === null) await once(mocha, 'exit');
    return mocha.exitCode ?? 1;
  }),
);
const [passed, failed, skipped] = sums;
console.log(`\n${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exitCode = Math.max(...codes);
