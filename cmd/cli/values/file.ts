import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { PluginError } from '../../../lib/errors.ts';

/**
 * Checks that a file exists and is readable. Throws `not-found`, `not-readable`, and
 * `usage` for a folder.
 */
export async function checkFile(path: string): Promise<void> {
  const stats = await stat(path).catch(() => undefined);
  if (!stats) throw new PluginError('not-found', `there is no file ${path}`, { hint: 'Check the path.' });
  if (stats.isDirectory()) throw new PluginError('usage', `${path} is a folder`, { hint: 'Name a file.' });
  await access(path, constants.R_OK).catch((cause: unknown) => {
    throw new PluginError('not-readable', `${path} must not be read by you`, { hint: 'Check its permissions.', cause });
  });
}
