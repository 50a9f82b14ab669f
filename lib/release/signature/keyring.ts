import type { Key } from 'openpgp';
import { readSmallFile } from '#content/files';
import type { Context } from '#context';
import { PluginError, messageOf } from '#errors';
import { fingerprintOf } from './signature.ts';

/** Red Hat’s release key 2, which signs OpenShift releases. It is trusted from every source. */
export const redHatReleaseKey = '567E347AD0044ADE55BA8A5F199E2F91FD431D51';

/** The file of that key on hosts of the Red Hat family. */
const systemKeyring = '/etc/pki/rpm-gpg/RPM-GPG-KEY-redhat-release';

/** The text or bytes of some keys, with a name for messages. */
export interface KeyMaterial {
  readonly name: string;
  readonly content: string | Uint8Array;
}

/** The sources of keys, in this order. The bytes of a key are taken from the first source that has it. */
export interface KeySources {
  /** Keyring files that the user named. Each must be readable and have a key. */
  readonly files?: readonly string[];
  /** A keyring file that may be missing; Red Hat’s in `/etc/pki/rpm-gpg` by default. */
  readonly system?: string;
  /** Keys of the cluster or of a payload. Malformed keys are skipped with a warning. */
  readonly others?: readonly KeyMaterial[];
}

/** Keys, divided into trusted and untrusted ones by their fingerprints. The untrusted keys only show who signed. */
export interface Keyring {
  readonly trusted: readonly Key[];
  readonly untrusted: readonly Key[];
}

/**
 * Parses the fingerprint of a primary key: with spaces, lower case or 0x, as the user typed it. Returns upper-case hex.
 * Throws `usage`.
 */
export function parseFingerprint(text: string): string {
  const fingerprint = text.replace(/[\s:]/g, '').replace(/^0x/i, '').toUpperCase();
  if (/^(?:[0-9A-F]{40}|[0-9A-F]{64})$/.test(fingerprint)) return fingerprint;
  throw new PluginError('usage', `“${text.slice(0, 100)}” is not the fingerprint of a key`, {
    hint:
      'A fingerprint has 40 hex digits (or 64); a key ID is too short. gpg shows the fingerprints of the keys in ' +
      'a file.',
  });
}

/**
 * Reads keys, armored (any number of blocks, with text around them) or binary. Skips a block that cannot be read, such
 * as a later format, if another block can be read. Throws `invalid-file` if there is no key.
 */
export async function readKeys({ name, content }: KeyMaterial): Promise<Key[]> {
  const openpgp = await import('openpgp');
  const text = typeof content === 'string' ? content : Buffer.from(content).toString('latin1');
  const blocks = armoredBlocks(text);
  const reads =
    blocks.length > 0
      ? blocks.map((armoredKeys) => openpgp.readKeys({ armoredKeys }))
      : [openpgp.readKeys({ binaryKeys: Buffer.from(content) })];
  const results = await Promise.allSettled(reads);
  const keys = results.flatMap((result) => (result.status === 'fulfilled' ? result.value : []));
  if (keys.length > 0) return keys.map((key) => key.toPublic());
  const cause: unknown = results.find((result) => result.status === 'rejected')?.reason;
  throw new PluginError('invalid-file', `${name} holds no OpenPGP public key (${messageOf(cause)})`, { cause });
}

// A regular expression would search for the end once for each beginning.
function armoredBlocks(text: string): string[] {
  const [begin, end] = ['-----BEGIN PGP PUBLIC KEY BLOCK-----', '-----END PGP PUBLIC KEY BLOCK-----'];
  const pieces = text.split(end).slice(0, -1);
  return pieces.flatMap((piece) => (piece.includes(begin) ? [piece.slice(piece.indexOf(begin)) + end] : []));
}

/**
 * Loads the keys that may sign a release. Trusts Red Hat's release key 2 and the given fingerprints. Throws
 * `not-readable` or `invalid-file` for a file that the user named.
 */
export async function loadKeyring(
  sources: KeySources,
  fingerprints: readonly string[],
  context: Context,
): Promise<Keyring> {
  const { files = [], system = systemKeyring, others = [] } = sources;
  const named = await Promise.all(
    files.map(async (file) => readKeys({ name: file, content: await readKeyFile(file) })),
  );
  const otherKeys = await Promise.all([
    readSmallFile(system, sizeLimit).then(
      (content) => readKeysOrWarn({ name: system, content }, context),
      () => [],
    ),
    ...others.map((material) => readKeysOrWarn(material, context)),
  ]);
  const byFingerprint = new Map<string, Key>();
  for (const key of [...named, ...otherKeys].flat()) {
    const fingerprint = fingerprintOf(key);
    if (!byFingerprint.has(fingerprint)) byFingerprint.set(fingerprint, key);
  }
  const pinned = new Set([redHatReleaseKey, ...fingerprints.map(parseFingerprint)]);
  const isTrusted = ([fingerprint]: [string, Key]): boolean => pinned.has(fingerprint);
  const entries = [...byFingerprint];
  return {
    trusted: entries.filter(isTrusted).map(([, key]) => key),
    untrusted: entries.filter((entry) => !isTrusted(entry)).map(([, key]) => key),
  };
}

/**
 * Writes the trusted keys of a keyring as text that readKeys reads. The text is the same for the same keys, and empty
 * if there are none.
 */
export function armorTrusted({ trusted }: Keyring): string {
  const keys = trusted.map((key) => ({ fingerprint: fingerprintOf(key), text: key.armor() }));
  return keys
    .sort((a, b) => (a.fingerprint < b.fingerprint ? -1 : 1))
    .map(({ text }) => text)
    .join('');
}

async function readKeysOrWarn(material: KeyMaterial, context: Context): Promise<Key[]> {
  try {
    return await readKeys(material);
  } catch (error) {
    context.log('warn', `${messageOf(error)}: skipped`);
    return [];
  }
}

/** The largest keyring, in bytes. A keyring with thousands of keys has some megabytes. */
const sizeLimit = 16 * 1024 * 1024;

async function readKeyFile(file: string): Promise<Buffer> {
  try {
    return await readSmallFile(file, sizeLimit);
  } catch (cause) {
    throw new PluginError('not-readable', `the keyring ${messageOf(cause)}`, { cause });
  }
}
