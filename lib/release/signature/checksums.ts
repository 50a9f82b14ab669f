import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readSmallFile } from '#content/files';
import { messageOf, PluginError } from '#errors';
import type { Keyring } from './keyring.ts';
import { verifyDetached, type FileSigner } from './signature.ts';

/** A file by its name in a signed list of checksums, and the signer of the list. */
export interface SignedFile extends FileSigner {
  readonly name: string;
}

const limit = 1024 * 1024;

/**
 * Finds a file in a list of checksums (as of sha256sum) by its digest. The list must have a detached signature in the
 * file `<list>.asc`, by a trusted key. Throws `unsigned` without one, `untrusted`, `digest-mismatch` if the list does
 * not have the file, and the errors of reading.
 */
export async function findSignedFile(
  path: string,
  list: string,
  { trusted }: Pick<Keyring, 'trusted'>,
): Promise<SignedFile> {
  const text = await readSmallFile(list, limit);
  const signature = await readSmallFile(`${list}.asc`, limit).catch((cause: unknown) => {
    throw new PluginError('unsigned', `${list} has no signature: ${messageOf(cause)}`, {
      hint: 'The signature is beside the list, in a file with .asc added to its name.',
      cause,
    });
  });
  const signer = await verifyDetached(text, signature, trusted).catch((cause: unknown) => {
    throw new PluginError('untrusted', `${list}.asc is not an OpenPGP signature: ${messageOf(cause)}`, { cause });
  });
  if (!signer) {
    throw new PluginError('untrusted', `no trusted key signed ${list}`, {
      hint: 'Give the public key of the project, and trust its fingerprint.',
      settings: ['signatureKeyring', 'trustFingerprint'],
    });
  }
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  const sum = hash.digest('hex');
  const line = text
    .toString()
    .split('\n')
    .find((each) => each.startsWith(`${sum}  `));
  if (line !== undefined) return { name: line.slice(sum.length + 2), ...signer };
  throw new PluginError('digest-mismatch', `${path} is not in ${list}: its digest is sha256:${sum}`, {
    hint: 'It is of another version, was built here, or was changed.',
  });
}
