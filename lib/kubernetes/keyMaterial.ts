import { readFile } from 'node:fs/promises';
import { messageOf, PluginError } from '../errors.ts';
import { isMissing } from '../files/fileContent.ts';
import { textOf, type Fields } from './fields.ts';

/**
 * Reads the authority that a kubeconfig’s cluster entry trusts, in PEM; undefined if it names none. Throws `not-readable` and
 * `invalid-file`.
 */
export async function readServerAuthority(cluster: Fields, source: string): Promise<Buffer | undefined> {
  const name = 'certificate-authority';
  const authority = await readMaterial(cluster, name);
  if (authority?.includes('-----BEGIN ') !== false) return authority;
  const file = cluster[`${name}-data`] ? '' : ` ${String(cluster[name])}`;
  throw new PluginError('invalid-file', `The ${name}${file} of ${source} has no certificate in PEM`, {
    hint: 'A certificate in PEM begins with -----BEGIN CERTIFICATE-----.',
  });
}

/**
 * Reads a certificate or key of a kubeconfig entry: its `-data` field, which precedes the file, or the file. Undefined if it has
 * neither. Throws `not-readable`.
 */
export async function readMaterial(fields: Fields, name: string): Promise<Buffer | undefined> {
  const { [`${name}-data`]: data, [name]: path } = fields;
  if (typeof data === 'string' && data !== '') return Buffer.from(data, 'base64');
  const file = textOf(path);
  return file === undefined ? undefined : readCredentialFile(file, name);
}

/** Reads a file that a kubeconfig names. Throws `not-readable`. */
export async function readCredentialFile(path: string, what: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (cause) {
    const reason = isMissing(cause) ? 'does not exist' : `cannot be read: ${messageOf(cause)}`;
    throw new PluginError('not-readable', `The ${what} ${path} ${reason}`, { cause });
  }
}
