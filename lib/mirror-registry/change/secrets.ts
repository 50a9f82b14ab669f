import type { Context } from '../../context.ts';
import { isPluginError } from '../../errors.ts';
import type { HostCommands } from '../../machine/hostCommands.ts';
import type { Configuration } from '../detect/configuration.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import { scratchNames, type StateFolder } from '../stateFolder.ts';

/** The name of the secret with the password of Redis in all installers. */
export const redisSecret = 'redis_pass';

/** Lists the secrets that the units need after a change and that podman does not have. Throws `command-failed`. */
export async function listMissingSecrets(
  commands: HostCommands,
  restart: readonly string[],
  { configuration }: DetectedInstallation,
  signal: AbortSignal,
): Promise<string[]> {
  const isNeeded = restart.includes('quay-redis') && passwordOf(configuration) !== undefined;
  return isNeeded && !(await hasSecret(commands, redisSecret, signal)) ? [redisSecret] : [];
}

/**
 * Creates the secrets of a change that podman does not have. The password of Redis is from Quay’s configuration, and is
 * passed in a temporary file of `state`. Throws `command-failed`, `disk-full`.
 */
export async function createSecrets(
  commands: HostCommands,
  names: readonly string[],
  { configuration }: DetectedInstallation,
  state: StateFolder,
  { log, signal }: Context,
): Promise<void> {
  const password = passwordOf(configuration);
  for (const name of names) {
    if (password === undefined || (await hasSecret(commands, name, signal))) continue;
    try {
      // podman refuses a socket as its standard input, and Node.js creates one.
      await state.write(scratchNames.secret, password);
      await commands.podman(['secret', 'create', name, await state.locate(scratchNames.secret)], signal);
      log('info', `created the podman secret ${name} from ${configuration.path}`);
    } finally {
      await state.remove(scratchNames.secret);
    }
  }
}

/** Removes secrets, if they exist. Throws `command-failed`. */
export async function removeSecrets(
  commands: HostCommands,
  names: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  for (const name of names) {
    if (await hasSecret(commands, name, signal)) await commands.podman(['secret', 'rm', name], signal);
  }
}

function passwordOf(configuration: Configuration): string | undefined {
  return configuration.get('BUILDLOGS_REDIS', 'password')?.value;
}

async function hasSecret(commands: HostCommands, name: string, signal: AbortSignal): Promise<boolean> {
  try {
    await commands.podman(['secret', 'inspect', name], signal);
    return true;
  } catch (error) {
    if (isPluginError(error, 'command-failed')) return false;
    throw error;
  }
}
