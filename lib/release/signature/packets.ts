import { SignatureRefusal } from './refusal.ts';

/** One OpenPGP packet (RFC 9580, section 4), old or new format. */
export interface Packet {
  readonly tag: number;
  readonly body: Buffer;
  /** The encoding of its length: definite, partial lengths, or none (up to the end of the input). */
  readonly length: 'definite' | 'partial' | 'indeterminate';
}

// A release signature has three packets. The openpgp package reads keys.
const packetLimit = 16;

/** The numbers of packet types. */
export const tags = { signature: 2, onePassSignature: 4, compressed: 8, marker: 10, literal: 11 } as const;

/** Splits bytes into at most 16 packets. Throws a SignatureRefusal. */
export function readPackets(bytes: Buffer): Packet[] {
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
