import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { basename } from 'node:path';

// Loaded before a program. Ends it as `kill -9` does. KILL_AT is a number, or words such as `rename
// config.yaml` or `rm journal.json`. A number ends it right before or after it renames or removes a
// file for the KILL_AT-th time: lower numbers are earlier, and every step counts twice. Words end it
// right after a file got that name or was removed, or with `before` in front right before.
const wanted = process.env['KILL_AT'] ?? '';
let left = /^\d+$/.test(wanted) ? Number(wanted) : Infinity;

function step(): void {
  left -= 1;
  if (left < 0) process.kill(process.pid, 'SIGKILL');
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
