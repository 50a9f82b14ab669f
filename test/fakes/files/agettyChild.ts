/**
 * Shows texts on a real agetty in a pseudo-terminal of 80×24. Runs in a mount namespace of its own, whose /run and /etc
 * it may change. Standard input: the lines of each text, as JSON; null removes the text. Prints what the terminal got
 * after each, as JSON.
 */
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { LoginScreen } from '../../../lib/node/machine/loginScreen.ts';
import { makeContext } from '../../support/context.ts';

const texts = JSON.parse(await text(process.stdin)) as (readonly string[] | null)[];
const context = makeContext();
const screen = new LoginScreen({ root: '/', environment: process.env });
const prompt = 'login: ';
const terminal = spawn(
  'script',
  ['-qfec', 'stty rows 24 cols 80; exec agetty --noclear -L - 115200 vt100', '/dev/null'],
  {
    // script says there that it is stopped.
    stdio: ['pipe', 'pipe', 'ignore'],
  },
);
let shown = '';
terminal.stdout.on('data', (chunk: Buffer) => (shown += chunk.toString('latin1')));

/** Waits until agetty asks for a name, and returns what it has written since the last time. */
async function read(): Promise<string> {
  for (let waited = 0; !shown.endsWith(prompt); waited += 50) {
    if (waited > 60_000) throw new Error(`agetty does not ask for a name: ${JSON.stringify(shown)}`);
    await sleep(50);
  }
  const read = shown;
  shown = '';
  return read;
}

const seen = [await read()];
for (const lines of texts) {
  // agetty waits for changes only some time after its prompt.
  await sleep(200);
  if (lines) await screen.show(lines, context);
  else await screen.clear(context);
  seen.push(await read());
}
terminal.kill();
console.log(JSON.stringify({ seen, log: context.lines }));
