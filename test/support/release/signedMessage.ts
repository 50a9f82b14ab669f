import { createHash, sign, type KeyObject } from 'node:crypto';
import { deflateRawSync } from 'node:zlib';

/** Options of signing. `fingerprint` is the key's in hex, `lifetime` in seconds. */
export interface SignedMessageOptions {
  readonly key: KeyObject;
  readonly fingerprint: string;
  readonly version: 3 | 4;
  readonly compressed: boolean;
  readonly date: Date;
  readonly lifetime?: number;
  /** The number of the hash in OpenPGP; SHA-256 by default. */
  readonly hash?: number;
  /** The number of the kind of signature in OpenPGP; of a binary document by default. */
  readonly type?: number;
  /** Additional subpackets, for version 4: signed ones, and unsigned ones. */
  readonly hashed?: readonly Buffer[];
  readonly unhashed?: readonly Buffer[];
}

/** The bodies of the packets of a signed message. */
export interface MessageParts {
  readonly onePass: Buffer;
  readonly literal: Buffer;
  readonly signature: Buffer;
}

const rsa = 1;
const ecdsa = 19;
const hashes: Readonly<Record<number, string>> = {
  2: 'sha1',
  8: 'sha256',
  9: 'sha384',
  10: 'sha512',
  11: 'sha224',
  12: 'sha3-256',
};

/**
 * Returns an OpenPGP message signed in one pass with RSA, packet by packet (RFC 4880, 5.2.2, 5.2.3, 5.4 and 5.9). For
 * signatures that the openpgp package does not create: version 3, compressed, expiring.
 */
export function rsaSignedMessage(data: Buffer, options: SignedMessageOptions): Buffer {
  const message = joinParts(signParts(data, options));
  // 0xa3: a compressed packet up to the end of the file; 1: ZIP.
  return options.compressed ? Buffer.concat([Buffer.from([0xa3, 1]), deflateRawSync(message)]) : message;
}

/** Signs with RSA, or with ECDSA in version 4, for messages with another structure. */
export function signParts(data: Buffer, options: SignedMessageOptions): MessageParts {
  const { hash = 8, type = 0, version } = options;
  const keyId = Buffer.from(options.fingerprint.slice(-16), 'hex');
  const time = number(options.date.getTime() / 1000, 4);
  return {
    onePass: Buffer.concat([Buffer.from([3, type, hash, algorithmOf(options.key)]), keyId, Buffer.from([1])]),
    literal: Buffer.concat([Buffer.from('b\0'), time, data]),
    signature: version === 3 ? version3(data, time, keyId, options) : version4(data, time, keyId, options),
  };
}

/** Joins the packets of a message. */
export function joinParts({ onePass, literal, signature }: MessageParts): Buffer {
  return Buffer.concat([packet(4, onePass), packet(11, literal), packet(2, signature)]);
}

function version3(
  data: Buffer,
  time: Buffer,
  keyId: Buffer,
  { key, hash = 8, type = 0 }: SignedMessageOptions,
): Buffer {
  const hashed = Buffer.concat([Buffer.from([type]), time]);
  const signed = Buffer.concat([data, hashed]);
  return Buffer.concat([Buffer.from([3, 5]), hashed, keyId, Buffer.from([rsa, hash]), signatureOf(signed, key, hash)]);
}

function version4(data: Buffer, time: Buffer, keyId: Buffer, options: SignedMessageOptions): Buffer {
  const { key, fingerprint, lifetime, hash = 8, type = 0 } = options;
  const subpackets = Buffer.concat([
    subpacket(2, time),
    ...(lifetime === undefined ? [] : [subpacket(3, number(lifetime, 4))]),
    subpacket(33, Buffer.from([4]), Buffer.from(fingerprint, 'hex')),
    ...(options.hashed ?? []),
  ]);
  const fixed = Buffer.from([4, type, algorithmOf(key), hash]);
  const hashed = Buffer.concat([fixed, number(subpackets.length, 2), subpackets]);
  const trailer = Buffer.concat([Buffer.from([4, 0xff]), number(hashed.length, 4)]);
  const unhashed = Buffer.concat([subpacket(16, keyId), ...(options.unhashed ?? [])]);
  const signed = Buffer.concat([data, hashed, trailer]);
  return Buffer.concat([hashed, number(unhashed.length, 2), unhashed, signatureOf(signed, key, hash)]);
}

// The first 16 bits of the hash, then the signature as one or two multi-precision integers.
function signatureOf(signed: Buffer, key: KeyObject, hash: number): Buffer {
  const name = hashes[hash] ?? 'sha256';
  const value = sign(name, signed, { key, dsaEncoding: 'ieee-p1363' });
  const half = value.length / 2;
  const numbers = algorithmOf(key) === rsa ? [value] : [value.subarray(0, half), value.subarray(half)];
  const left16 = createHash(name).update(signed).digest().subarray(0, 2);
  return Buffer.concat([left16, ...numbers.map(multiPrecision)]);
}

function multiPrecision(value: Buffer): Buffer {
  const start = value.findIndex((byte) => byte !== 0);
  const significant = value.subarray(start);
  const bits = significant.length * 8 - Math.clz32(significant[0] ?? 0) + 24;
  return Buffer.concat([number(bits, 2), significant]);
}

function algorithmOf(key: KeyObject): number {
  return key.asymmetricKeyType === 'ec' ? ecdsa : rsa;
}

/** Returns an old-format packet with a four-byte length, as GnuPG wrote large ones at that time. */
export function packet(tag: number, body: Buffer): Buffer {
  return Buffer.concat([Buffer.from([0x80 | (tag << 2) | 2]), number(body.length, 4), body]);
}

/** Returns a new-format packet in parts of 512 bytes and a rest. */
export function partialPacket(tag: number, body: Buffer): Buffer {
  const parts: Buffer[] = [Buffer.from([0xc0 | tag])];
  let at = 0;
  for (; body.length - at > 512; at += 512) parts.push(Buffer.from([224 + 9]), body.subarray(at, at + 512));
  return Buffer.concat([...parts, Buffer.from([255]), number(body.length - at, 4), body.subarray(at)]);
}

/** Returns a subpacket of a signature. */
export function subpacket(type: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([body.length + 1, type]), body]);
}

/** Returns the bytes of a whole number, highest byte first. */
export function number(value: number, bytes: number): Buffer {
  const buffer = Buffer.alloc(bytes);
  buffer.writeUIntBE(Math.floor(value), 0, bytes);
  return buffer;
}
