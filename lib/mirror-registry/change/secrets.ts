import { isPluginError } from '../../errors.ts';
import type { HostCommands } from '../../machine/hostCommands.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import type { StateFolder } from '../stateFolder.ts';

/** The secret that holds the password of Redis, by the name that installers of all versions give it. */
export const redisSecret = 'redis_pass';

/**
 * Has podman hold the password of Redis as a secret, from Quay’s configuration, where there is no such secret yet; one that is there
 * stays. It is passed in a file of `state`, and is there for that moment only. Returns whether it was made.
 * Throws `command-failed`, `disk-full`.
 */
export async function ensureRedisSecret(
  commands: HostCommands,
  { configuration }: DetectedInstallation,
  state: StateFolder,
  signal: AbortSignal,
): Promise<boolean> {
  const password = configuration.get('BUILDLOGS_REDIS', 'password')?.value;
  if (password === undefined || (await hasSecret(commands, signal))) return false;
  try {
    // Podman takes no socket for its standard input, which is what Node gives it.
    await state.write('secret', password);
    await commands.podman(['secret', 'create', redisSecret, await state.locate('secret')], signal);
  } finally {
    await state.remove('secret');
  }
  return true;
}

async function hasSecret(commands: HostCommands, signal: AbortSignal): Promise<boolean> {
  try {
    await commands.podman(['secret', 'inspect', redisSecret], signal);
    return true;
  } catch (error) {
    if (isPluginError(error, 'command-failed')) return false;
    throw error;
  }
}
