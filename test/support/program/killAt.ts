import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';

// Loaded before a program. Ends it as `kill -9` does, right before or after it renames or removes a
// file for the KILL_AT-th time. Lower numbers are earlier, and every step counts twice.
let left = Number(process.env['KILL_AT'] ?? Infinity);

function step(): void {
  left -= 1;
  if (left < 0) process.kill(process.pid, 'SIGKILL');
}

const { rename, rm } = fs;
fs.rename = async (...args) => {
  step();
  await rename(...args);
  step();
};
fs.rm = async (...args) => {
  step();
  await rm(...args);
  step();
};
syncBuiltinESMExports();
