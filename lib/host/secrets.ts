import { isPluginError } from '../errors.ts';
import type { HostCommands } from './hostCommands.ts';
import type { DetectedInstallation } from './installation.ts';

/** The secret that holds the password of Redis, by the name that installers of all versions give it. */
export const redisSecret = 'redis_pass';

/**
 * Has podman hold the password of Redis as a secret, from Quay’s configuration, where there is no such secret yet; one that is there
 * stays. Returns whether it was made. Throws `command-failed`.
 */
export async function ensureRedisSecret(
  commands: HostCommands,
  { configuration }: DetectedInstallation,
  signal: AbortSignal,
): Promise<boolean> {
  const password = configuration.get('BUILDLOGS_REDIS', 'password')?.value;
  if (password === undefined || (await hasSecret(commands, signal))) return false;
  await commands.podman(['secret', 'create', redisSecret, '-'], signal, password);
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
