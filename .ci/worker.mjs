// Runs test files for test.mjs, one after the other. A message has the path of a file, and a folder for its temporary
// files. The answer has the counts, the titles of skipped tests, the duration in milliseconds, and what the reporter
// printed. The files share a process, because loading the sources takes half a second of CPU time, and code that has
// run for a while is faster.
import { readFileSync } from 'node:fs';
import { availableParallelism, loadavg } from 'node:os';
import { format } from 'node:util';

const { timeout } = JSON.parse(readFileSync('.mocharc.json', 'utf8'));
await import('../test/support/environment.ts');
const { default: Mocha } = await import('mocha');
const { default: reporter } = await import('../test/support/reporter.ts');

process.on('message', ({ path, folder }) => void runFile(path, folder));
process.once('disconnect', () => process.exit());
process.send('ready');

async function runFile(path, folder) {
  if (folder) process.env.TMPDIR = folder;
  let output = '';
  Mocha.reporters.Base.consoleLog = (...words) => {
    output += format(...words) + '\n';
  };
  // A busy machine has more time.
  const patience = Math.max(1, loadavg()[0] / availableParallelism());
  const mocha = new Mocha({
    reporter,
    reporterOptions: { isPart: true },
    timeout: timeout * patience,
    forbidOnly: true,
  });
  mocha.addFile(path);
  await mocha.loadFilesAsync();
  const begun = Date.now();
  const skipped = [];
  const runner = mocha.run(() => {
    const { passes: passed, failures: failed } = runner.stats;
    runner.dispose();
    process.send({ passed, failed, skipped, time: Date.now() - begun, output });
  });
  runner.on('pending', (test) => skipped.push(test.fullTitle()));
}
