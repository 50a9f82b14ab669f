import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import type { HostCommands } from '../../node/machine/hostCommands.ts';
import type { StateFolder } from '../stateFolder.ts';

/** File that exists while Quay is stopped for a task. */
const markName = 'stopped';

const unit = 'quay-app.service';

/**
 * Stops Quay for a task, and starts it again, also if the task fails. If this process is killed, the next command that
 * changes the registry starts it. A registry that does not run is not started. Throws as the task, and `command-failed`.
 */
export async function whileStopped<T>(
  commands: HostCommands,
  state: StateFolder,
  task: () => Promise<T>,
  context: Context,
): Promise<T> {
  if (!(await isActive(commands))) return task();
  await state.write(markName, '');
  const hint = `Start it: systemctl start ${unit}. The next command that changes the registry starts it too.`;
  context.onUnfinished?.(new PluginError('interrupted', 'Quay is stopped', { hint }));
  try {
    await commands.systemctl(['stop', unit]);
    return await task();
  } finally {
    await start(commands, state);
    context.onUnfinished?.(undefined);
  }
}

/** Starts Quay if an earlier run was killed while it was stopped. Throws `command-failed`. */
export async function startStopped(commands: HostCommands, state: StateFolder, { log }: Context): Promise<void> {
  if ((await state.read(markName)) === undefined) return;
  log('warn', 'an earlier run was interrupted while the registry was stopped: starting it');
  await start(commands, state);
}

async function start(commands: HostCommands, state: StateFolder): Promise<void> {
  // An interruption must not leave it stopped.
  await commands.uninterrupted().systemctl(['restart', unit]);
  await state.remove(markName);
}

/** Throws `command-failed` if systemd cannot be asked, because a database in use must not be copied. */
async function isActive(commands: HostCommands): Promise<boolean> {
  const state = await commands.systemctl(['show', '--property=ActiveState', '--value', unit]);
  return !/^(?:inactive|failed)$/.test(state.trim());
}
