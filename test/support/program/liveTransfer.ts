import { spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { Terminal } from '../../../cmd/cli/terminal.ts';

/** Shows a transfer for a second. Sets the size of the terminal first to each of the arguments in turn: `80x24`. */
const sizes = process.argv.slice(2).map((size) => size.split('x'));
const resize = ([columns = '', rows = '']: readonly string[]): unknown =>
  spawnSync('stty', ['cols', columns, 'rows', rows], { stdio: ['inherit', 'ignore', 'inherit'] });

const [first = [], ...others] = sizes;
resize(first);
// The streams read the size when they are used for the first time.
const { stdout, stderr } = process;
const terminal = await Terminal.open({ stdout, stderr, environment: {}, firstProgress: 100 });
const listen = terminal.transfer('Downloading');
listen({ kind: 'plan', images: 2, blobs: 2, bytes: 1000, present: 0 });
for (let step = 0; step < 10; step++) {
  if (step === 5) for (const size of others) resize(size);
  listen({ kind: 'bytes', digest: '', bytes: 100 });
  await sleep(100);
}
terminal.close();
terminal.print('ended');
