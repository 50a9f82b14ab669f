import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { openSync, readFileSync } from 'node:fs';
import { parseUnitFile, settingsOf } from '../../../lib/registry-host/detect/units.ts';

// Replaces systemctl for the units of a mirror registry, if systemd does not run. Called as
// `systemctl restart quay-app.service` and so on, it runs the commands of a unit unchanged.
// RUN_FOLDER replaces %t.
const [verb] = process.argv.slice(2);
const name = process.argv.at(-1) ?? '';
const runFolder = process.env['RUN_FOLDER'] ?? '/run';

/** Returns the command lines of a unit, with specifiers replaced. A leading `-` marks a command that may fail. */
function commandsOf(key: string): string[][] {
  const path = `/etc/systemd/system/${name}`;
  const unit = { name, files: [parseUnitFile(path, readFileSync(path, 'utf8'))] };
  return settingsOf(unit, 'Service', key).map(({ words }) =>
    words.map(({ text }) => text.replaceAll('%t', runFolder).replaceAll('%n', name)),
  );
}

function runAll(key: string): void {
  for (const [program = '', ...args] of commandsOf(key)) {
    const { status } = spawnSync(program.replace(/^-/, ''), args, { stdio: 'ignore' });
    if (status !== 0 && !program.startsWith('-')) throw new Error(`${key} of ${name} ended with ${String(status)}`);
  }
}

if (verb === 'stop' || verb === 'restart' || verb === 'disable') {
  runAll('ExecStop');
  runAll('ExecStopPost');
}
if (verb === 'restart') {
  runAll('ExecStartPre');
  const [[program = '', ...args] = []] = commandsOf('ExecStart');
  const log = openSync(`${runFolder}/${name}.log`, 'a');
  if (name === 'quay-pod.service') execFileSync(program, args, { stdio: ['ignore', log, log] });
  else spawn(program, args, { stdio: ['ignore', log, log], detached: true }).unref();
}
