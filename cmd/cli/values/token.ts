import { readFile } from 'node:fs/promises';
import { messageOf, PluginError } from '../../../lib/errors.ts';
import { shellCommand } from '../../../lib/shellWord.ts';

/** Reads the token in a file, without the line end. Throws `not-readable` and `invalid-file`, without the content. */
export async function readToken(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new PluginError('not-readable', `${file} cannot be read: ${messageOf(cause)}`, { cause });
  });
  const token = text.trim();
  if (/^[\x21-\x7e]{16,}$/.test(token)) return token;
  throw new PluginError('invalid-file', `${file} does not hold a token: at least 16 characters, without blanks`, {
    hint: shellCommand`Make one: openssl rand -hex 32 > ${file}`,
  });
}
