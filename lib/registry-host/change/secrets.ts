import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseJson } from '#content/oci';
import { isPluginError } from '#errors';
import { fieldsOf, textOf } from '#fields';
import type { HostCommands } from '#node/machine';
import { shellCommand } from '#text';
import type { Configuration } from '../detect/configuration.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import { scratchNames } from '../installation/stateFolder.ts';
import type { OpenRegistry } from './openRegistry.ts';

/** The name of the secret with the password of Redis in all installers. */
export const redisSecret = 'redis_pass';

/** Lists the secrets that the units need after a change and that podman does not have. Throws `command-failed`. */
export async function listMissingSecrets(
  commands: HostCommands,
  restart: readonly string[],
  { configuration }: DetectedInstallation,
): Promise<string[]> {
  const isNeeded = restart.includes('quay-redis') && passwordOf(configuration) !== undefined;
  return isNeeded && !(await commands.exists('secret', redisSecret)) ? [redisSecret] : [];
}

/**
 * Creates the secrets of a change that podman does not have. The password of Redis is from Quay’s configuration, and is
 * passed in a temporary file of `state`. Throws `command-failed`, `disk-full`.
 */
export async function createSecrets(registry: OpenRegistry, names: readonly string[]): Promise<void> {
  const { commands, context } = registry;
  const { configuration } = registry.detected;
  const { state } = registry.records;
  const password = passwordOf(configuration);
  for (const name of names) {
    if (password === undefined || (await commands.exists('secret', name))) continue;
    try {
      // podman refuses a socket as its standard input, and Node.js creates one.
      await state.write(scratchNames.secret, password);
      await commands.podman(['secret', 'create', name, await state.locate(scratchNames.secret)]);
      context.log('info', `created the podman secret ${name} from ${configuration.path}`);
    } finally {
      await state.remove(scratchNames.secret);
    }
  }
}

/**
 * Returns why a secret is not what the registry needs; undefined if it is, or if it is created with the change. The
 * password of Redis is compared with Quay’s configuration. Throws `command-failed`, `interrupted`.
 */
export async function findSecretProblem(
  commands: HostCommands,
  name: string,
  isUsed: boolean,
  { configuration }: DetectedInstallation,
): Promise<string | undefined> {
  const password = name === redisSecret ? passwordOf(configuration) : undefined;
  if (!(await commands.exists('secret', name))) {
    return isUsed && password === undefined ? `podman has no secret ${name}, which a unit needs` : undefined;
  }
  if (password === undefined) return undefined;
  const value = await readSecret(commands, name);
  if (value === undefined || value === password) return undefined;
  const next = isUsed
    ? 'give both the same'
    : shellCommand`“podman secret rm ${name}” removes it, and the upgrade creates it`;
  return `the podman secret ${name} differs from the password of Redis in ${configuration.path}: ${next}`;
}

/** Reads the value of a secret; undefined if podman does not tell it. Throws `interrupted`. */
async function readSecret(commands: HostCommands, name: string): Promise<string | undefined> {
  const inspect = (...options: string[]): Promise<string> => commands.podman(['secret', 'inspect', ...options, name]);
  const shown = await inspect('--showsecret', '--format', '{{.SecretData}}').catch(passFailed);
  if (shown !== undefined) return shown.replace(/\n$/, '');
  // Before podman 4.6, only the file of its driver has the value.
  const format = '{{.ID}} {{.Spec.Driver.Name}} {{index .Spec.Driver.Options "path"}}';
  const [, id = '', path = ''] =
    /^(\w+) file (\/.+)$/m.exec((await inspect('--format', format).catch(passFailed)) ?? '') ?? [];
  const text = await readFile(join(path, 'secretsdata.json'), 'utf8').catch(() => '{}');
  const data = textOf(fieldsOf(parseJson(text))[id]);
  return data === undefined ? undefined : Buffer.from(data, 'base64').toString();
}

function passFailed(error: unknown): undefined {
  if (!isPluginError(error, 'command-failed')) throw error;
}

/** Removes secrets, if they exist. Throws `command-failed`. */
export async function removeSecrets(commands: HostCommands, names: readonly string[]): Promise<void> {
  for (const name of names) {
    if (await commands.exists('secret', name)) await commands.podman(['secret', 'rm', name]);
  }
}

function passwordOf(configuration: Configuration): string | undefined {
  return configuration.get('BUILDLOGS_REDIS', 'password')?.value;
}
