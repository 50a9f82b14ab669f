import { readSmallFile } from '#content/files';
import { messageOf, PluginError } from '#errors';
import { readKeys } from './keyring.ts';
import { fingerprintOf } from './signature.ts';

/** The largest public key for encryption, in bytes. */
const encryptionKeyLimit = 16 * 1024;

/** A public key that content can be encrypted to. */
export interface EncryptionKey {
  /** In the binary form of OpenPGP, as base64. */
  readonly key: string;
  /** In upper-case hex. */
  readonly fingerprint: string;
  readonly userId: string;
}

/**
 * Reads the public key in a file that can decrypt. Throws `invalid-file` for none or several, and for an expired one.
 */
export async function readEncryptionKey(file: string): Promise<EncryptionKey> {
  const keys = await readKeys({ name: file, content: await readSmallFile(file, 1024 * 1024) });
  const [key] = keys;
  const refuse = (why: string, cause?: unknown): never => {
    const hint = 'Export the public key of one recipient with gpg.';
    throw new PluginError('invalid-file', `${file} ${why}`, { hint, cause });
  };
  if (!key || keys.length > 1) return refuse(`has ${keys.length} keys, and one is needed`);
  await key
    .getEncryptionKey()
    .catch((cause: unknown) => refuse(`has no key to encrypt to: ${messageOf(cause)}`, cause));
  const bytes = Buffer.from(key.write());
  if (bytes.length > encryptionKeyLimit) return refuse(`has a key of more than ${encryptionKeyLimit} bytes`);
  return { key: bytes.toString('base64'), fingerprint: fingerprintOf(key), userId: key.getUserIDs()[0] ?? '' };
}

/** Encrypts a content to a public key in base64. A key that has expired since is used too. Throws `invalid-file`. */
export async function encryptTo(key: string, content: Buffer, name: string): Promise<Buffer> {
  const openpgp = await import('openpgp');
  try {
    const [recipient] = await readKeys({ name: 'the key of the recipient', content: Buffer.from(key, 'base64') });
    if (!recipient) throw new TypeError('there is no key');
    const message = await openpgp.createMessage({ binary: content, filename: name });
    // At the site, the clock may be years late.
    const date = new Date(Math.max(Date.now(), recipient.getCreationTime().getTime()));
    const options = { message, encryptionKeys: recipient, format: 'binary', date } as const;
    return Buffer.from(await openpgp.encrypt(options));
  } catch (cause) {
    throw new PluginError('invalid-file', `nothing can be encrypted to the key of the bundle: ${messageOf(cause)}`, {
      hint: 'Create the bundle again, with a key that can encrypt.',
      cause,
    });
  }
}

/** Returns whether a content is an OpenPGP message, by its first packet or its armor. */
export function isEncrypted(bytes: Buffer): boolean {
  const [first = 0] = bytes;
  // A packet with a session key: tag 1, in the old or the new format (RFC 9580, 4.2).
  return (
    first === 0xc1 || (first & 0xfc) === 0x84 || bytes.subarray(0, 40).toString('latin1').includes('BEGIN PGP MESS')
  );
}

/**
 * Decrypts a message with the private keys in a file, which have no passphrase. Throws `not-readable`, also above
 * `limit` bytes.
 */
export async function decryptWith(file: string, content: Buffer, where: string, limit: number): Promise<Buffer> {
  const openpgp = await import('openpgp');
  const text = await readSmallFile(file, 1024 * 1024);
  try {
    const decryptionKeys = await (text.includes('-----BEGIN PGP')
      ? openpgp.readPrivateKeys({ armoredKeys: text.toString('latin1') })
      : openpgp.readPrivateKeys({ binaryKeys: text }));
    const message = await (content[0] === 0x2d
      ? openpgp.readMessage({ armoredMessage: content.toString('latin1') })
      : openpgp.readMessage({ binaryMessage: content }));
    const config = { maxDecompressedMessageSize: limit };
    const decrypted = await openpgp.decrypt({ message, decryptionKeys, format: 'binary', config });
    return Buffer.from((decrypted as { readonly data: Uint8Array }).data);
  } catch (cause) {
    throw new PluginError('not-readable', `${where} cannot be decrypted: ${messageOf(cause)}`, {
      hint: 'A key with a passphrase needs gpg: decrypt the file with it, and give the result.',
      cause,
    });
  }
}
