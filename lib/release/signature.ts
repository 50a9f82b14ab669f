import { createPublicKey, verify } from 'node:crypto';
import type { Key, KeyID, Subkey } from 'openpgp';
import { messageOf } from '../errors.ts';
import type { Digest } from '../oci/digest.ts';
import { framePacket, readSignedMessage } from './signedMessage.ts';
import { checkStatement } from './statement.ts';

/** A release signature that a key vouches for. Whether that key is trusted is another question. */
export interface VerifiedSignature {
  readonly good: true;
  /** The signature as the store has it. */
  readonly bytes: Buffer;
  /** What it signs: the digest of a release image. */
  readonly digest: Digest;
  /** The fingerprint of the primary key in upper-case hex, also where one of its subkeys signed. */
  readonly fingerprint: string;
  /** The ID of the key or subkey that signed, in upper-case hex. */
  readonly keyId: string;
  /** The name on the key. */
  readonly userId: string;
  readonly created: Date;
}

/** A release signature that none of the keys vouches for, and why: the rest of a sentence that begins with “the signature”. */
export interface RejectedSignature {
  readonly good: false;
  readonly reason: string;
}

// OpenPGP's numbers (RFC 9580, section 9.5) for the hashes that a release signature may have, with Node's names.
const hashes: Readonly<Record<number, string>> = {
  8: 'sha256',
  9: 'sha384',
  10: 'sha512',
  12: 'sha3-256',
  14: 'sha3-512',
};
const binaryDocument = 0;
const rsa: readonly number[] = [1, 3];

/**
 * Verifies one signed message against some keys for the digest of a release: it is good when one of its signatures is.
 * The end of a key's validity does not reject a signature, its own end does, as in the cluster. Never throws.
 */
export async function verifySignature(
  bytes: Buffer,
  digest: Digest,
  keys: readonly Key[],
): Promise<VerifiedSignature | RejectedSignature> {
  try {
    const { data, signatures } = readSignedMessage(bytes);
    checkStatement(data, digest);
    const reasons: string[] = [];
    for (const signature of signatures) {
      try {
        const signer =
          signature[0] === 3 ? await verifyVersion3(signature, data, keys) : await verifyPacket(signature, data, keys);
        return { good: true, bytes, digest, ...signer };
      } catch (error) {
        reasons.push(messageOf(error));
      }
    }
    return { good: false, reason: reasons.length > 0 ? [...new Set(reasons)].join('; ') : 'holds no signature' };
  } catch (error) {
    return { good: false, reason: messageOf(error) };
  }
}

type Signer = Pick<VerifiedSignature, 'fingerprint' | 'keyId' | 'userId' | 'created'>;

async function verifyPacket(body: Buffer, data: Buffer, keys: readonly Key[]): Promise<Signer> {
  const openpgp = await import('openpgp');
  const { packets } = await openpgp.readSignature({ binarySignature: framePacket(body) });
  const [packet] = packets;
  if (!packet?.created) throw rejection(`is of version ${String(body[0])}, which is unknown`);
  checkKind(packet.signatureType, packet.hashAlgorithm);
  const { key, signing } = await findSigningKey(packet.issuerKeyID.toHex(), keys);
  // A clock that is behind must not reject what was signed "tomorrow": sites without a network often have one.
  const now = new Date(Math.max(Date.now(), packet.created.getTime()));
  const [literal] = (await openpgp.createMessage({ binary: data })).packets;
  try {
    await packet.verify(signing.keyPacket, openpgp.enums.signature.binary, literal ?? data, now, true);
  } catch (error) {
    throw rejection(`was refused: ${messageOf(error)}`);
  }
  return signerOf(key, signing, packet.created);
}

// openpgp leaves version 3 packets out without a word, and Red Hat's signatures of many years are of that version
// (RFC 4880, section 5.2.2): version, 5, type, time, key ID, algorithm, hash, two octets of the hash, the number.
async function verifyVersion3(body: Buffer, data: Buffer, keys: readonly Key[]): Promise<Signer> {
  if (body.length < 21 || body[1] !== 5) throw rejection('is cut short');
  checkKind(body.readUInt8(2), body.readUInt8(16));
  if (!rsa.includes(body.readUInt8(15))) throw rejection('is of version 3 and not by an RSA key');
  const { key, signing } = await findSigningKey(body.toString('hex', 7, 15), keys);
  const { n, e } = signing.keyPacket.publicParams as { n?: Uint8Array; e?: Uint8Array };
  if (!n || !e) throw rejection('is not by the kind of key that it names');
  const jwk = { kty: 'RSA', n: Buffer.from(n).toString('base64url'), e: Buffer.from(e).toString('base64url') };
  const publicKey = createPublicKey({ key: jwk, format: 'jwk' });
  // The number is stored without leading zeros; the verification wants it as long as the modulus.
  const number = body.subarray(21);
  const width = Math.ceil((publicKey.asymmetricKeyDetails?.modulusLength ?? 0) / 8);
  const padded = Buffer.concat([Buffer.alloc(Math.max(0, width - number.length)), number]);
  const signed = Buffer.concat([data, body.subarray(2, 7)]);
  if (!verify(hashes[body.readUInt8(16)], signed, publicKey, padded)) {
    throw rejection('was refused: Signature verification failed');
  }
  return signerOf(key, signing, new Date(body.readUInt32BE(3) * 1000));
}

function checkKind(type: number | null, hash: number | null): void {
  if (type !== binaryDocument) throw rejection('is not one of a binary document');
  if (hash === null || !(hash in hashes)) throw rejection('uses a hash weaker than SHA-256');
}

async function findSigningKey(keyId: string, keys: readonly Key[]): Promise<{ key: Key; signing: Key | Subkey }> {
  const { config } = await import('openpgp');
  const idOf = (key: Key): KeyID | undefined => key.getKeyIDs().find((id) => id.toHex() === keyId);
  let refusal = `is by the key ${keyId.toUpperCase()}, which is not among the known ones`;
  for (const key of keys) {
    const id = idOf(key);
    if (!id) continue;
    try {
      // Without a date, revocations and bindings are checked and the validity period is not. Keys from before SHA-256,
      // Red Hat's of 2009 among them, certify themselves by SHA-1, which is openpgp's default to accept.
      return {
        key,
        signing: await key.getSigningKey(id, null, undefined, {
          ...config,
          allowMissingKeyFlags: true,
        }),
      };
    } catch (error) {
      refusal = `is by a key that cannot be used: ${messageOf(error)}`;
    }
  }
  throw rejection(refusal);
}

function signerOf(key: Key, signing: Key | Subkey, created: Date): Signer {
  return {
    fingerprint: fingerprintOf(key),
    keyId: signing.getKeyID().toHex().toUpperCase(),
    userId: key.getUserIDs()[0] ?? '',
    created,
  };
}

/** The fingerprint of a primary key, in upper-case hex. */
export function fingerprintOf(key: Key): string {
  return key.getFingerprint().toUpperCase();
}

function rejection(reason: string): Error {
  return new Error(reason);
}
