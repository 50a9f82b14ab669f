import { stat, readFile } from 'node:fs/promises';
import { isDigest, type Digest, parseReference } from '#content/oci';
import { readDuration } from '#context';
import { PluginError, messageOf } from '#errors';
import { shellCommand } from '#text';

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

/** Returns an option whose value must be a digest (`sha256:` and 64 hex digits). */
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

const longest = 24 * 3_600_000;

/** Parses a time, see `readDuration`, into milliseconds. `0` is none; the maximum is a day. Throws `usage`. */
export function parseDuration(text: string): number {
  const time = readDuration(text);
  if (time !== undefined && time <= longest) return time;
  throw new PluginError('usage', `“${text}” is not a time of at most a day`, {
    hint: 'Give seconds, such as 90, or a time such as 90s, 10m or 1m30s; 0 is none.',
  });
}

/** The `-f` of `kubectl apply`, in place of the argument. */
export const filenameOption = {
  filename: { type: 'string', alias: 'f', describe: 'Same as the argument', suggest: 'paths' },
} as const;

/** Returns the argument or the value of `--filename`; undefined without both. Throws `usage` for both. */
export function fileOf(argument: string | undefined, filename: string | undefined): string | undefined {
  if (argument === undefined || filename === undefined) return argument ?? filename;
  throw new PluginError('usage', 'give only one of the argument and --filename');
}

/** Parses an address with a port, such as `127.0.0.1:5000` or `[::1]:0`. Throws `usage`. */
export function parseListen(text: string): { host: string; port: number } {
  const [, bracketed, plain, digits] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]+)):([0-9]{1,5})$/.exec(text) ?? [];
  const host = bracketed ?? plain;
  const port = Number(digits);
  if (host !== undefined && port <= 65535) return { host, port };
  throw new PluginError('usage', `--listen ${text} is not an address with a port, such as 127.0.0.1:5000 or [::1]:0`);
}

const factors: Readonly<Record<string, number>> = {
  '': 1,
  k: 1000,
  K: 1000,
  M: 1000 ** 2,
  G: 1000 ** 3,
  T: 1000 ** 4,
  Ki: 1024,
  Mi: 1024 ** 2,
  Gi: 1024 ** 3,
  Ti: 1024 ** 4,
};

/**
 * Parses a size of Kubernetes: `3900M` is in powers of 1000, `3900Mi` in powers of 1024, a number without a unit in
 * bytes. A `B` may follow. Throws `usage` for other texts, and for less than a byte.
 */
export function parseSize(text: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,15}(?:\.\d{1,6})?)([A-Za-z]{0,2}?)B?$/.exec(text) ?? [];
  const factor = factors[unit];
  const bytes = factor === undefined ? 0 : Math.floor(Number(digits) * factor);
  if (bytes >= 1 && Number.isSafeInteger(bytes)) return bytes;
  throw new PluginError('usage', `“${text}” is not a size`, {
    hint: 'A size is a number with M or G (powers of 1000), Mi or Gi (powers of 1024), or of bytes: 3900M.',
  });
}

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
