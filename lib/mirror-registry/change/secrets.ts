import { isPluginError } from '../../errors.ts';
import type { HostCommands } from '../../machine/hostCommands.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import type { StateFolder } from '../stateFolder.ts';

/** The name of the secret with the password of Redis in all installers. */
export const redisSecret = 'redis_pass';

/**
 * Creates the podman secret with the password of Redis from Quay’s configuration, if it is missing. The password is
 * passed in a temporary file of `state`. Returns whether it was created. Throws `command-failed`, `disk-full`.
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
    // podman refuses a socket as its standard input, and Node.js creates one.
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
