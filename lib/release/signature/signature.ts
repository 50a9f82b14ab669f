import { createHash, verify, createPublicKey, type KeyObject } from 'node:crypto';
import type { Key, KeyID, PublicKeyPacket, Subkey } from 'openpgp';
import type { Digest } from '#content/oci';
import { messageOf } from '#errors';
import {
  SignatureRefusal,
  type RefusalKind,
  readSignature,
  type SignaturePacket,
  hashAlgorithmName,
  publicKeyAlgorithmName,
  splitVersion4,
  embeddedSignature,
  checkSubpackets,
} from './signaturePacket.ts';
import { readSignedMessage } from './signedMessage.ts';

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
 * Verifies a detached signature of a file, armored or binary, by any kind of key that openpgp knows: no cluster reads
 * it. Ignores the clock, as verifySignature does. Returns the first signer among the keys; undefined if none of them
 * signed.
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

/** The key that made a signature: the primary key, the signing key or subkey, and its form for node:crypto. */
interface SigningKey {
  readonly key: Key;
  readonly signing: Key | Subkey;
  readonly publicKey: KeyObject;
}

type KeyPacket = Pick<PublicKeyPacket, 'publicParams' | 'algorithm' | 'getAlgorithmInfo'>;

// The algorithms of golang.org/x/crypto/openpgp. The cluster's keyring skips a key with any other.
const keyAlgorithms: readonly number[] = [1, 2, 3, 16, 17, 18, 19];
const signatureAlgorithms: readonly number[] = [1, 3, 17, 19];
const signatureHashes: readonly number[] = [1, 2, 3, 8, 9, 10, 11];
const curves: Readonly<Record<string, string>> = { nistP256: 'P-256', nistP384: 'P-384', nistP521: 'P-521' };
const rsa: readonly number[] = [1, 3];

/** Finds the key of a signature among some keys. Throws a SignatureRefusal. */
async function findSigningKey(signature: SignaturePacket, keys: readonly Key[]): Promise<SigningKey> {
  const { config } = await import('openpgp');
  const { keyId, fingerprint } = signature;
  const idOf = (key: Key): KeyID | undefined => key.getKeyIDs().find((id) => id.toHex().toUpperCase() === keyId);
  let kind: RefusalKind = 'other';
  let refusal = `was made with another key, ${fingerprint ?? keyId}`;
  for (const key of keys) {
    const id = idOf(key);
    if (!id) continue;
    try {
      await checkParts(key);
      // Without a date, openpgp checks revocations and bindings, but not the validity period. Keys
      // from before SHA-256, such as Red Hat's of 2009, certify themselves by SHA-1, which openpgp
      // accepts by default.
      const signing = await key.getSigningKey(id, null, undefined, { ...config, allowMissingKeyFlags: true });
      checkSigning(signing, signature);
      return { key, signing, publicKey: publicKeyOf(signing.keyPacket) };
    } catch (error) {
      if (error instanceof SignatureRefusal) kind = error.kind;
      refusal = `was made with the key ${key.getFingerprint().toUpperCase()}, which cannot be used: ${messageOf(error)}`;
    }
  }
  throw new SignatureRefusal(refusal, kind);
}

function checkSigning(signing: Key | Subkey, signature: SignaturePacket): void {
  const own = signing.getFingerprint().toUpperCase();
  if (signature.fingerprint !== undefined && signature.fingerprint !== own) {
    throw new Error(`the signature names ${signature.fingerprint}`);
  }
  const algorithm: number = signing.keyPacket.algorithm;
  if (algorithm !== signature.algorithm) {
    throw new Error(`it is of ${publicKeyAlgorithmName(algorithm)}, and the signature is not`);
  }
  // gpg refuses a signature that is older than its key.
  if (signature.created < signing.getCreationTime()) throw new Error('it is younger than the signature');
}

async function checkParts(key: Key): Promise<void> {
  const openpgp = await import('openpgp');
  for (const packet of key.toPacketList()) {
    const objection =
      packet instanceof openpgp.SignaturePacket
        ? objectionToSelfSignature(Buffer.from(packet.write()))
        : packet instanceof openpgp.PublicKeyPacket || packet instanceof openpgp.PublicSubkeyPacket
          ? objectionToKey(packet)
          : undefined;
    if (objection !== undefined)
      throw new SignatureRefusal(`clusters cannot read it, because it ${objection}`, 'unsupported');
  }
}

function objectionToKey(packet: KeyPacket): string | undefined {
  const { algorithm, curve } = packet.getAlgorithmInfo();
  const number: number = packet.algorithm;
  if (!keyAlgorithms.includes(number)) {
    return `has a part of an unsupported algorithm, ${publicKeyAlgorithmName(number)}`;
  }
  if (curve !== undefined && !(curve in curves)) return `has a part of an unsupported algorithm, ${algorithm} ${curve}`;
  const { e } = packet.publicParams as { e?: Uint8Array };
  return e && e.length > 3 ? 'has a large RSA exponent' : undefined;
}

// Certifications by other keys count too: the cluster's verifier drops a key if it cannot read one of them.
function objectionToSelfSignature(body: Buffer): string | undefined {
  const [version, , algorithm = 0, hash = 0] = body;
  if (version !== 4) return `has a certification of OpenPGP version ${String(version)}`;
  if (!signatureAlgorithms.includes(algorithm)) return `has a certification by ${publicKeyAlgorithmName(algorithm)}`;
  if (!signatureHashes.includes(hash)) return `has a certification with ${hashAlgorithmName(hash)}`;
  const { hashed, unhashed } = splitVersion4(body);
  const objection = checkSubpackets(hashed, unhashed);
  if (objection !== undefined) return `has a certification that ${objection}`;
  return [...hashed, ...unhashed]
    .filter(({ type }) => type === embeddedSignature)
    .map((each) => objectionToSelfSignature(each.body))
    .find((each) => each !== undefined);
}

function publicKeyOf(packet: KeyPacket): KeyObject {
  const { n, e, Q } = packet.publicParams as Partial<Record<'n' | 'e' | 'Q', Uint8Array>>;
  const number: number = packet.algorithm;
  const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');
  if (rsa.includes(number) && n && e) {
    return createPublicKey({ key: { kty: 'RSA', n: base64(n), e: base64(e) }, format: 'jwk' });
  }
  const crv = curves[packet.getAlgorithmInfo().curve ?? ''];
  if (crv === undefined || !Q) throw new Error(`it is of ${publicKeyAlgorithmName(number)}`);
  // An uncompressed point: 4, x, y.
  const width = (Q.length - 1) / 2;
  const [x, y] = [base64(Q.subarray(1, 1 + width)), base64(Q.subarray(1 + width))];
  return createPublicKey({ key: { kty: 'EC', crv, x, y }, format: 'jwk' });
}
