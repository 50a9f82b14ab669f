import { stat } from 'node:fs/promises';
import { PluginError } from '../../../lib/errors.ts';
import { isDigest, type Digest } from '../../../lib/content/oci/digest.ts';
import { parseReference } from '../../../lib/content/oci/reference.ts';

/** Checks the reference of an image. Throws `usage` and `invalid-reference`. */
export function checkImage(text: string): void {
  checkScheme(text);
  parseReference(text);
}

/** Checks a registry with a repository and nothing else. Throws `usage` and `invalid-reference`. */
export function checkRepository(text: string): void {
  checkScheme(text);
  if (!text.includes('/')) {
    const registry = /[.:]/.test(text) ? text : 'registry.example.com:5000';
    throw new PluginError('usage', `“${text}” lacks a repository`, {
      hint: `Give a registry and a repository, such as ${registry}/openshift/release.`,
    });
  }
  const { registry, repository, tag, digest } = parseReference(text);
  if (tag === undefined && digest === undefined) return;
  throw new PluginError('usage', `“${text}” has a tag or a digest, and should be a repository`, {
    hint: `Give ${registry}/${repository}.`,
  });
}

/** Checks that a text is the name of a file, and not the secret in it, which is never printed. Throws `usage`. */
export function checkSecretFile(text: string): void {
  if (/^\s*[{[]|\n/.test(text))
    throw new PluginError('usage', 'the name of a file is needed, and not its content', {
      hint: 'Write the credentials to a file that only you can read, and name that.',
    });
}

/** Reads the value of `--digest`: 64 hex digits, with or without `sha256:` before them. Throws `usage`. */
export function readDigest(text: string): Digest {
  const digest = `sha256:${text.replace(/^sha256:/i, '').toLowerCase()}`;
  if (isDigest(digest)) return digest;
  const message = `“${text}” is not a digest: it needs 64 hex digits, with or without sha256: before them`;
  throw new PluginError('usage', message);
}

/** Returns the record of a `--digest`. */
export function digestOption(describe: string) {
  return { type: 'string', describe, check: (text: string) => void readDigest(text) } as const;
}

/** Checks the address of a signature store: a folder, or an http, https or file URL. Throws `usage` and `not-found`. */
export async function checkSignatureStore(text: string): Promise<void> {
  const hint = 'A signature store is an http, https or file URL, or a folder.';
  if (text.includes('://')) {
    if (URL.canParse(text) && /^(?:https?|file):/i.test(text)) return;
    throw new PluginError('usage', 'this URL cannot be that of a signature store', { hint });
  }
  const stats = await stat(text).catch(() => undefined);
  if (!stats?.isDirectory()) throw new PluginError('not-found', `there is no folder ${text}`, { hint });
}

function checkScheme(text: string): void {
  const [, scheme, rest = ''] = /^([a-z][a-z0-9+.-]*:\/\/)(.*)$/i.exec(text) ?? [];
  if (scheme === undefined) return;
  // The part of a URL before its host may be a password.
  const name = rest.replace(/^[^/@]*@/, '');
  throw new PluginError('usage', `a URL is not an image reference`, { hint: `Without ${scheme} it is ${name}` });
}
