import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { basename } from 'node:path';

// Loaded before a program. Ends it as `kill -9` does, at a step: right after a file got a name or was removed, or with
// `before` in front right before. KILL_AT names the step, such as `rename config.yaml` or `rm journal.json`. `each`
// only stops the program, before and after each file that it renames or removes, until it gets SIGCONT.
const wanted = process.env['KILL_AT'] ?? '';

function step(): void {
  if (wanted === 'each') process.kill(process.pid, 'SIGSTOP');
}

function end(what: string, path: unknown): void {
  if (wanted === `${what} ${basename(String(path))}`) process.kill(process.pid, 'SIGKILL');
}

const { rename, rm, unlink } = fs;
fs.rename = async (...args) => {
  step();
  end('before rename', args[1]);
  await rename(...args);
  end('rename', args[1]);
  step();
};
fs.rm = async (...args) => {
  step();
  end('before rm', args[0]);
  await rm(...args);
  end('rm', args[0]);
  step();
};
fs.unlink = async (path) => {
  step();
  await unlink(path);
  step();
};
syncBuiltinESMExports();
