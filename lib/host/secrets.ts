import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isPluginError } from '../errors.ts';
import { replaceFile } from './fileChange.ts';
import type { HostCommands } from './hostCommands.ts';
import type { DetectedInstallation } from './installation.ts';

/** The secret that holds the password of Redis, by the name that installers of all versions give it. */
export const redisSecret = 'redis_pass';

/**
 * Has podman hold the password of Redis as a secret, from Quay’s configuration, where there is no such secret yet; one that is there
 * stays. It is passed in a file in `folder`, a folder of this program, and stands there for that moment only. Returns whether it was made.
 * Throws `command-failed`, `disk-full`.
 */
export async function ensureRedisSecret(
  commands: HostCommands,
  { configuration }: DetectedInstallation,
  folder: string,
  signal: AbortSignal,
): Promise<boolean> {
  const password = configuration.get('BUILDLOGS_REDIS', 'password')?.value;
  if (password === undefined || (await hasSecret(commands, signal))) return false;
  const file = join(folder, 'secret');
  try {
    // Podman takes no socket for its standard input, which is what Node gives it.
    await replaceFile(file, password, 0o600);
    await commands.podman(['secret', 'create', redisSecret, file], signal);
  } finally {
    await rm(file, { force: true });
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
