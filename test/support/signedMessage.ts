import { createHash, sign, type KeyObject } from 'node:crypto';
import { deflateRawSync } from 'node:zlib';

/** How to sign; `fingerprint` is the key's in hex, `lifetime` in seconds. */
export interface SignedMessageOptions {
  readonly key: KeyObject;
  readonly fingerprint: string;
  readonly version: 3 | 4;
  readonly compressed: boolean;
  readonly date: Date;
  readonly lifetime?: number | undefined;
}

const rsa = 1;
const sha256 = 8;
const binaryDocument = 0;

/**
 * An OpenPGP message signed in one pass with RSA and SHA-256, packet by packet (RFC 4880, 5.2.2, 5.2.3, 5.4 and 5.9),
 * for the signatures that the openpgp package does not make: version 3, compressed, expiring.
 */
export function rsaSignedMessage(data: Buffer, options: SignedMessageOptions): Buffer {
  const keyId = Buffer.from(options.fingerprint.slice(-16), 'hex');
  const time = number(options.date.getTime() / 1000, 4);
  const onePass = packet(4, Buffer.from([3, binaryDocument, sha256, rsa]), keyId, Buffer.from([1]));
  const literal = packet(11, Buffer.from('b\0'), time, data);
  const signature = options.version === 3 ? version3(data, time, keyId, options) : version4(data, time, keyId, options);
  const message = Buffer.concat([onePass, literal, signature]);
  // 0xa3: a compressed packet up to the end of the file; 1: ZIP.
  return options.compressed ? Buffer.concat([Buffer.from([0xa3, 1]), deflateRawSync(message)]) : message;
}

function version3(data: Buffer, time: Buffer, keyId: Buffer, { key }: SignedMessageOptions): Buffer {
  const hashed = Buffer.concat([Buffer.from([binaryDocument]), time]);
  const signed = Buffer.concat([data, hashed]);
  return packet(2, Buffer.from([3, 5]), hashed, keyId, Buffer.from([rsa, sha256]), rsaSignature(signed, key));
}

function version4(data: Buffer, time: Buffer, keyId: Buffer, options: SignedMessageOptions): Buffer {
  const { key, fingerprint, lifetime } = options;
  const subpackets = Buffer.concat([
    subpacket(2, time),
    ...(lifetime === undefined ? [] : [subpacket(3, number(lifetime, 4))]),
    subpacket(33, Buffer.from([4]), Buffer.from(fingerprint, 'hex')),
  ]);
  const fixed = Buffer.from([4, binaryDocument, rsa, sha256]);
  const hashed = Buffer.concat([fixed, number(subpackets.length, 2), subpackets]);
  const trailer = Buffer.concat([Buffer.from([4, 0xff]), number(hashed.length, 4)]);
  const unhashed = subpacket(16, keyId);
  const signed = Buffer.concat([data, hashed, trailer]);
  return packet(2, hashed, number(unhashed.length, 2), unhashed, rsaSignature(signed, key));
}

// The first 16 bits of the hash, then the signature as a multi-precision integer.
function rsaSignature(signed: Buffer, key: KeyObject): Buffer {
  const value = sign('sha256', signed, key);
  const start = value.findIndex((byte) => byte !== 0);
  const significant = value.subarray(start);
  const bits = significant.length * 8 - Math.clz32(significant[0] ?? 0) + 24;
  const left16 = createHash('sha256').update(signed).digest().subarray(0, 2);
  return Buffer.concat([left16, number(bits, 2), significant]);
}

// Old-format packets with a four-byte length, as GnuPG of the time wrote large ones.
function packet(tag: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([0x80 | (tag << 2) | 2]), number(body.length, 4), body]);
}

function subpacket(type: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([body.length + 1, type]), body]);
}

function number(value: number, bytes: number): Buffer {
  const buffer = Buffer.alloc(bytes);
  buffer.writeUIntBE(Math.floor(value), 0, bytes);
  return buffer;
}
