import { createHash, verify } from 'node:crypto';
import type { Key } from 'openpgp';
import { messageOf } from '../../errors.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { SignatureRefusal, type RefusalKind } from './refusal.ts';
import { readSignature, type SignaturePacket } from './signaturePacket.ts';
import { readSignedMessage } from './signedMessage.ts';
import { findSigningKey, type SigningKey } from './signingKey.ts';

/** A release signature that is valid for a key. The key may not be trusted. */
export interface VerifiedSignature {
  readonly good: true;
  /** The signature in the form in which the store has it. */
  readonly bytes: Buffer;
  /** The signed digest of a release image. */
  readonly digest: Digest;
  /** The fingerprint of the primary key in upper-case hex, also if one of its subkeys signed. */
  readonly fingerprint: string;
  /** The ID of the key or subkey that signed, in upper-case hex. */
  readonly keyId: string;
  readonly userId: string;
  readonly created: Date;
}

/**
 * A release signature that is not valid for any key, and the reason: the rest of a sentence that begins with “the
 * signature”.
 */
export interface RejectedSignature {
  readonly good: false;
  readonly reason: string;
  readonly kind: RefusalKind;
}

// The names of P-256, P-384 and P-521 in node:crypto.
const curveBits: Readonly<Record<string, number>> = { prime256v1: 256, secp384r1: 384, secp521r1: 521 };

/**
 * Verifies a signed message with some keys for the digest of a release. It is good only if the cluster’s own verifier
 * (golang.org/x/crypto/openpgp) and gpg also accept it, so that a verified release also updates the cluster. As in the
 * cluster, an expired key does not reject a signature, but an expired signature is rejected. Never throws.
 */
export async function verifySignature(
  bytes: Buffer,
  digest: Digest,
  keys: readonly Key[],
): Promise<VerifiedSignature | RejectedSignature> {
  try {
    const { onePass, data, signature } = readSignedMessage(bytes);
    const packet = readSignature(signature, onePass);
    checkSimpleSigning(data, digest);
    const signer = await findSigningKey(packet, keys);
    checkNumbers(packet, data, signer);
    checkTime(packet);
    return {
      good: true,
      bytes,
      digest,
      fingerprint: fingerprintOf(signer.key),
      keyId: packet.keyId,
      userId: signer.key.getUserIDs()[0] ?? '',
      created: packet.created,
    };
  } catch (error) {
    return { good: false, reason: messageOf(error), kind: error instanceof SignatureRefusal ? error.kind : 'other' };
  }
}

function checkNumbers(packet: SignaturePacket, data: Buffer, { publicKey }: SigningKey): void {
  const { hash, suffix, hashTag, numbers } = packet;
  const hashed = createHash(hash).update(data).update(suffix).digest();
  if (!hashed.subarray(0, 2).equals(hashTag))
    throw new SignatureRefusal('does not match its statement: the hash tag differs');
  const { modulusLength, namedCurve } = publicKey.asymmetricKeyDetails ?? {};
  const bits = modulusLength ?? curveBits[namedCurve ?? ''] ?? 0;
  // gpg refuses a hash that is shorter than the curve. For P-521 it requires SHA-512.
  if (modulusLength === undefined && hashed.length * 8 < Math.min(bits, 512)) {
    throw new SignatureRefusal('uses a hash shorter than its ECDSA key');
  }
  const width = Math.ceil(bits / 8);
  const signature = Buffer.concat(numbers.map((number) => padNumber(number, width)));
  const key = { key: publicKey, dsaEncoding: 'ieee-p1363' as const };
  if (!verify(hash, Buffer.concat([data, suffix]), key, signature)) {
    throw new SignatureRefusal('is not genuine: the key did not make it for this statement');
  }
}

// Numbers are usually stored without leading zeros. node:crypto needs the length of the modulus or the curve.
function padNumber(number: Buffer, width: number): Buffer {
  if (number.length > width) throw new SignatureRefusal('has a number of a wrong length');
  return Buffer.concat([Buffer.alloc(width - number.length), number]);
}

// Sites without a network often have a slow clock. It must not reject a signature that was made "tomorrow".
function checkTime({ created, expires }: SignaturePacket): void {
  const now = Math.max(Date.now(), created.getTime());
  if (expires && expires.getTime() <= now) throw new SignatureRefusal(`expired on ${expires.toISOString()}`, 'expired');
}

/** Returns the fingerprint of a primary key, in upper-case hex. */
export function fingerprintOf(key: Key): string {
  return key.getFingerprint().toUpperCase();
}

/** Who signed a file: the fingerprint of the primary key in upper-case hex, and its user ID. */
export interface FileSigner {
  readonly fingerprint: string;
  readonly userId: string;
}

/**
 * Verifies a detached signature of a file, armored or binary, by any kind of key that openpgp knows: no cluster reads it.
 * Ignores the clock, as verifySignature does. Returns the first signer among the keys; undefined if none of them signed.
 */
export async function verifyDetached(
  file: Buffer,
  signature: Buffer,
  keys: readonly Key[],
): Promise<FileSigner | undefined> {
  const openpgp = await import('openpgp');
  const armored = signature.toString('latin1');
  const isArmored = armored.includes('-----BEGIN PGP SIGNATURE-----');
  const { signatures } = await openpgp.verify({
    message: await openpgp.createMessage({ binary: file }),
    signature: await (isArmored
      ? openpgp.readSignature({ armoredSignature: armored })
      : openpgp.readSignature({ binarySignature: signature })),
    verificationKeys: [...keys],
    date: null,
  });
  for (const { keyID, verified } of signatures) {
    const key = keys.find((each) => each.getKeyIDs().some((id) => id.equals(keyID)));
    const isGood = await verified.catch(() => false);
    if (key && isGood) return { fingerprint: fingerprintOf(key), userId: key.getUserIDs()[0] ?? '' };
  }
  return undefined;
}

/**
 * Checks that a signed statement is for a container image (containers/image, “atomic container signature”) and for a
 * digest. It may have only the fields of library-go's verify package, with their types. Throws a SignatureRefusal.
 */
function checkSimpleSigning(data: Buffer, digest: Digest): void {
  const statement = fieldsOf(parseStatement(data), ['critical', 'optional']);
  const critical = fieldsOf(statement['critical'], ['type', 'image', 'identity']);
  const image = fieldsOf(critical['image'], ['docker-manifest-digest']);
  const identity = fieldsOf(critical['identity'], ['docker-reference']);
  const { creator, timestamp } = fieldsOf(statement['optional'] ?? {}, ['creator', 'timestamp']);
  if (critical['type'] !== 'atomic container signature') throw new SignatureRefusal('is not one of a container image');
  if (typeof identity['docker-reference'] !== 'string' || identity['docker-reference'] === '') {
    throw new SignatureRefusal('names no image');
  }
  if (typeof (creator ?? '') !== 'string') throw new SignatureRefusal('has a creator that is not a text');
  if (typeof (timestamp ?? 0n) !== 'bigint') throw new SignatureRefusal('has a timestamp that is not a 64-bit integer');
  const signed = image['docker-manifest-digest'];
  if (signed !== digest)
    throw new SignatureRefusal(`is for ${typeof signed === 'string' ? signed.slice(0, 100) : 'no digest'}`);
}

// Node.js has the source text of a number since version 21, but its types lack it.
const parse = JSON.parse as (
  text: string,
  reviver: (name: string, value: unknown, context: { readonly source?: string }) => unknown,
) => unknown;

function parseStatement(data: Buffer): unknown {
  try {
    // Go reads an int64, and refuses 1.0 and 1e3.
    return parse(data.toString('utf8'), (_, value, { source = '' }) =>
      typeof value === 'number' && isInteger(source) ? BigInt(source) : value,
    );
  } catch {
    throw new SignatureRefusal('signs something that is not JSON');
  }
}

function isInteger(source: string): boolean {
  return /^-?\d{1,19}$/.test(source) && BigInt.asIntN(64, BigInt(source)) === BigInt(source);
}

function fieldsOf(value: unknown, fieldNames: readonly string[]): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new SignatureRefusal(`lacks ${fieldNames.join(', ')}`);
  const unknown = Object.keys(value).find((name) => !fieldNames.includes(name));
  if (unknown !== undefined) throw new SignatureRefusal(`has an unknown field “${unknown.slice(0, 100)}”`);
  return value as Record<string, unknown>;
}
