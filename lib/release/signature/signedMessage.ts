import { inflateRawSync, inflateSync } from 'node:zlib';
import { decompressBzip2 } from './bzip2.ts';
import { refuseAlgorithm, SignatureRefusal } from './signaturePacket.ts';
import { signatureSizeLimit } from './signatureStore.ts';

/** The parts of a signed OpenPGP message: the signed bytes, and the bodies of the two packets around them. */
export interface SignedMessage {
  readonly onePass: Buffer;
  readonly data: Buffer;
  readonly signature: Buffer;
}

// A release signature decompresses to half a kilobyte.
const inflatedLimit = 1024 * 1024;

/** The numbers of packet types. */
const tags = { signature: 2, onePassSignature: 4, compressed: 8, marker: 10, literal: 11 } as const;

const { onePassSignature, literal, signature, compressed, marker } = tags;
const signedOnce = [onePassSignature, literal, signature].join();
const kinds: Readonly<Record<number, string>> = {
  1: 'is encrypted',
  3: 'is encrypted',
  5: 'is a secret key, not a signed message',
  6: 'is a public key, not a signed message',
  9: 'is encrypted',
  18: 'is encrypted',
  20: 'is encrypted',
};

/**
 * Splits a binary signed message (RFC 9580, sections 4 and 10.3): a one-pass packet, a literal packet and one
 * signature, plain or compressed once. The cluster’s verifier and gpg agree only on this form. Throws a
 * SignatureRefusal for any other form.
 */
export function readSignedMessage(bytes: Buffer): SignedMessage {
  if (bytes.length > signatureSizeLimit) throw new SignatureRefusal(`is larger than ${signatureSizeLimit} bytes`);
  if (bytes.length === 0) throw new SignatureRefusal('is empty');
  if (bytes.toString('latin1', 0, 10) === '-----BEGIN')
    throw new SignatureRefusal('is ASCII-armored; clusters read binary only');
  const outer = withoutMarkers(readPackets(bytes));
  const [first] = outer;
  const packets =
    first?.tag === compressed && outer.length === 1 ? withoutMarkers(readPackets(decompress(first.body))) : outer;
  checkForm(packets);
  const [onePass, document, signed] = packets;
  if (!onePass || !document || !signed) throw new SignatureRefusal('is not a signed message');
  return { onePass: onePass.body, data: readLiteral(document.body), signature: signed.body };
}

function withoutMarkers(packets: readonly Packet[]): Packet[] {
  return packets.filter(({ tag, body }) => tag !== marker || body.toString('latin1') !== 'PGP');
}

function checkForm(packets: readonly Packet[]): void {
  const count = (type: number): number => packets.filter(({ tag }) => tag === type).length;
  const special = packets.map(({ tag }) => kinds[tag]).find((kind) => kind !== undefined);
  if (special !== undefined) throw new SignatureRefusal(special);
  if (count(compressed) > 0) throw new SignatureRefusal('is compressed more than once, or in part');
  if (count(onePassSignature) > 1 || count(signature) > 1)
    throw new SignatureRefusal('holds several signatures; clusters read exactly one');
  if (count(literal) === 0 && count(signature) > 0) throw new SignatureRefusal('is detached: it holds no statement');
  if (count(literal) > 1) throw new SignatureRefusal(`holds ${count(literal)} documents instead of one`);
  const other = packets.find(({ tag }) => ![onePassSignature, literal, signature].some((type) => type === tag));
  if (other) throw new SignatureRefusal(`holds a packet of type ${other.tag}`);
  const order = packets.map(({ tag }) => tag).join();
  if (order === [signature, literal].join())
    throw new SignatureRefusal('lacks the one-pass packet that clusters require');
  if (order !== signedOnce) throw new SignatureRefusal('is not a signed message');
  for (const { tag, length } of packets) {
    if (length === 'indeterminate') throw new SignatureRefusal('has a packet of unknown length');
    // RFC 9580, section 4.2.1.4: only data packets may have partial lengths.
    if (length === 'partial' && tag !== literal) throw new SignatureRefusal('has a signature packet in parts');
  }
}

function decompress(body: Buffer): Buffer {
  const [algorithm] = body;
  const content = body.subarray(1);
  try {
    if (algorithm === 1) return inflate(content, inflateRawSync);
    if (algorithm === 2) return inflate(content, inflateSync);
    if (algorithm === 3) return decompressBzip2(content, inflatedLimit);
  } catch (cause) {
    if (cause instanceof RangeError)
      throw new SignatureRefusal(`decompresses to more than ${inflatedLimit} bytes`, 'other', cause);
    throw new SignatureRefusal('cannot be decompressed', 'other', cause);
  }
  throw refuseAlgorithm(`compression algorithm ${String(algorithm)}`);
}

function inflate(content: Buffer, run: typeof inflateSync): Buffer {
  const options = { maxOutputLength: inflatedLimit, info: true };
  const result: unknown = run(content, options);
  if (!hasEngine(result) || result.engine.bytesWritten !== content.length) throw new Error('trailing data');
  return result.buffer;
}

// The types of Node.js lack the result of `info: true`.
function hasEngine(result: unknown): result is { buffer: Buffer; engine: { bytesWritten: number } } {
  return typeof result === 'object' && result !== null && 'engine' in result;
}

// Literal data is a format octet, a file name with its length, four octets of date, and the document.
function readLiteral(body: Buffer): Buffer {
  const start = 2 + (body[1] ?? 0) + 4;
  if (body.length < start) throw new SignatureRefusal('is cut short');
  const format = String.fromCharCode(body.readUInt8(0));
  if (!['b', 't', 'u'].includes(format))
    throw new SignatureRefusal(`holds a document of an unknown format (${String(body[0])})`);
  return body.subarray(start);
}

/** One OpenPGP packet (RFC 9580, section 4), old or new format. */
interface Packet {
  readonly tag: number;
  readonly body: Buffer;
  /** The encoding of its length: definite, partial lengths, or none (up to the end of the input). */
  readonly length: 'definite' | 'partial' | 'indeterminate';
}

// A release signature has three packets. The openpgp package reads keys.
const packetLimit = 16;

/** Splits bytes into at most 16 packets. Throws a SignatureRefusal. */
function readPackets(bytes: Buffer): Packet[] {
  const packets: Packet[] = [];
  let at = 0;
  const take = (length: number): Buffer => {
    if (at + length > bytes.length) throw new SignatureRefusal('is cut short');
    return bytes.subarray(at, (at += length));
  };
  const takeNumber = (octets: number): number => take(octets).readUIntBE(0, octets);

  const takeOldBody = (lengthType: number): Omit<Packet, 'tag'> =>
    lengthType === 3
      ? { body: take(bytes.length - at), length: 'indeterminate' }
      : { body: take(takeNumber(2 ** lengthType)), length: 'definite' };

  const takeNewBody = (): Omit<Packet, 'tag'> => {
    const chunks: Buffer[] = [];
    for (;;) {
      const first = takeNumber(1);
      if (first >= 224 && first < 255) {
        chunks.push(take(2 ** (first & 31)));
        continue;
      }
      const partial = chunks.length > 0;
      chunks.push(
        take(first < 192 ? first : first === 255 ? takeNumber(4) : (first - 192) * 256 + takeNumber(1) + 192),
      );
      return { body: Buffer.concat(chunks), length: partial ? 'partial' : 'definite' };
    }
  };

  while (at < bytes.length) {
    if (packets.length === packetLimit) throw new SignatureRefusal(`holds more than ${packetLimit} packets`);
    const header = takeNumber(1);
    if ((header & 0x80) === 0)
      throw new SignatureRefusal(packets.length === 0 ? 'is not binary OpenPGP' : 'has trailing data');
    const isNew = (header & 0x40) !== 0;
    packets.push(
      isNew ? { tag: header & 0x3f, ...takeNewBody() } : { tag: (header >> 2) & 0x0f, ...takeOldBody(header & 3) },
    );
  }
  return packets;
}
