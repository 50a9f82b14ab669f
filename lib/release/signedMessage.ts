import { inflateRawSync, inflateSync } from 'node:zlib';

/** A signed OpenPGP message taken apart: the bytes that are signed, and the bodies of the signature packets. */
export interface SignedMessage {
  readonly data: Buffer;
  readonly signatures: readonly Buffer[];
}

interface Packet {
  readonly tag: number;
  readonly body: Buffer;
}

const tags = { signature: 2, onePassSignature: 4, compressed: 8, marker: 10, literal: 11 } as const;

// A release signature inflates to half a kilobyte; whatever is larger was made to hurt.
const inflatedLimit = 1024 * 1024;

/**
 * Takes a binary signed message apart (RFC 9580, sections 4 and 10.3): one literal packet with its signatures, plain or
 * compressed once by ZIP or ZLIB, packets in the old or the new format. For anything else it throws an error whose message
 * is the rest of a sentence that begins with “the signature”.
 */
export function readSignedMessage(bytes: Buffer): SignedMessage {
  const packets = readPackets(bytes).flatMap((packet) =>
    packet.tag === tags.compressed ? readPackets(inflate(packet.body)) : [packet],
  );
  const literals = packets.filter(({ tag }) => tag === tags.literal);
  const signatures = packets.filter(({ tag }) => tag === tags.signature).map(({ body }) => body);
  const other = packets.find(({ tag }) => !(Object.values(tags) as number[]).includes(tag));
  const [literal] = literals;
  if (other) throw malformed(`holds a packet of type ${String(other.tag)}`);
  if (packets.some(({ tag }) => tag === tags.compressed)) throw malformed('is compressed more than once');
  if (!literal || literals.length > 1) throw malformed(`holds ${String(literals.length)} documents instead of one`);
  return { data: readLiteral(literal.body), signatures };
}

/** Puts a header (new format, five-octet length) before the body of a signature packet. */
export function framePacket(body: Buffer): Buffer {
  const header = Buffer.from([0xc0 | tags.signature, 0xff, 0, 0, 0, 0]);
  header.writeUInt32BE(body.length, 2);
  return Buffer.concat([header, body]);
}

function inflate(body: Buffer): Buffer {
  const [algorithm] = body;
  const compressed = body.subarray(1);
  try {
    if (algorithm === 0) return compressed;
    if (algorithm === 1) return inflateRawSync(compressed, { maxOutputLength: inflatedLimit });
    if (algorithm === 2) return inflateSync(compressed, { maxOutputLength: inflatedLimit });
  } catch (cause) {
    throw malformed('cannot be decompressed', cause);
  }
  throw malformed(`is compressed by an unknown algorithm (${String(algorithm)})`);
}

// Literal data is a format octet, a file name with its length, four octets of date, and the document.
function readLiteral(body: Buffer): Buffer {
  const start = 2 + (body[1] ?? 0) + 4;
  if (body.length < start) throw malformed('is cut short');
  return body.subarray(start);
}

function readPackets(bytes: Buffer): Packet[] {
  const packets: Packet[] = [];
  let at = 0;
  const take = (length: number): Buffer => {
    if (at + length > bytes.length) throw malformed('is cut short');
    return bytes.subarray(at, (at += length));
  };
  const takeNumber = (octets: number): number => take(octets).readUIntBE(0, octets);

  const takeOldBody = (lengthType: number): Buffer =>
    // Type 3 has no length: the packet goes on to the end.
    take(lengthType === 3 ? bytes.length - at : takeNumber(2 ** lengthType));

  const takeNewBody = (): Buffer => {
    const chunks: Buffer[] = [];
    for (;;) {
      const first = takeNumber(1);
      if (first >= 224 && first < 255) {
        chunks.push(take(2 ** (first & 31)));
        continue;
      }
      chunks.push(
        take(first < 192 ? first : first === 255 ? takeNumber(4) : (first - 192) * 256 + takeNumber(1) + 192),
      );
      return Buffer.concat(chunks);
    }
  };

  while (at < bytes.length) {
    const header = takeNumber(1);
    if ((header & 0x80) === 0) throw malformed('is not binary OpenPGP');
    const isNew = (header & 0x40) !== 0;
    packets.push(
      isNew
        ? { tag: header & 0x3f, body: takeNewBody() }
        : { tag: (header >> 2) & 0x0f, body: takeOldBody(header & 3) },
    );
  }
  return packets;
}

function malformed(what: string, cause?: unknown): Error {
  return new Error(what, { cause });
}
