import { SignatureRefusal } from './refusal.ts';

/** A subpacket of a signature (RFC 9580, section 5.2.3.7). */
export interface Subpacket {
  readonly type: number;
  readonly critical: boolean;
  readonly body: Buffer;
}

/** The numbers of the subpackets in release signatures. */
export const subpacketTypes = { created: 2, lifetime: 3, issuer: 16, issuerFingerprint: 33 } as const;

/** The subpacket with the signature of a subkey on its primary key. */
export const embeddedSignature = 32;

// The subpackets of golang.org/x/crypto/openpgp with their lengths (0: not empty; -1: any). It
// refuses a signature or a key with a critical subpacket that it does not know.
const lengths: ReadonlyMap<number, number> = new Map([
  [subpacketTypes.created, 4],
  [subpacketTypes.lifetime, 4],
  [9, 4],
  [11, -1],
  [subpacketTypes.issuer, 8],
  [21, -1],
  [22, -1],
  [25, 1],
  [27, 0],
  [29, 0],
  [30, -1],
  [embeddedSignature, -1],
]);

/** Reads the subpackets of one area of a signature. Throws a SignatureRefusal. */
export function readSubpackets(area: Buffer): Subpacket[] {
  const subpackets: Subpacket[] = [];
  let at = 0;
  const take = (count: number): Buffer => {
    if (at + count > area.length) throw new SignatureRefusal('has a subpacket that is cut short');
    return area.subarray(at, (at += count));
  };
  while (at < area.length) {
    const first = take(1).readUInt8(0);
    const length =
      first < 192 ? first : first < 255 ? ((first - 192) << 8) + take(1).readUInt8(0) + 192 : take(4).readUInt32BE(0);
    if (length === 0) throw new SignatureRefusal('has a subpacket without a type');
    const [type = 0] = take(1);
    subpackets.push({ type: type & 0x7f, critical: (type & 0x80) !== 0, body: take(length - 1) });
  }
  return subpackets;
}

/**
 * Returns why the cluster’s verifier would refuse a signature with these subpackets, as the rest of a sentence;
 * undefined if it would not.
 */
export function checkSubpackets(hashed: readonly Subpacket[], unhashed: readonly Subpacket[]): string | undefined {
  if (!hashed.some(({ type }) => type === subpacketTypes.created)) return 'has no creation time';
  if (unhashed.some(({ type }) => type === subpacketTypes.created)) return 'has a creation time that is not signed';
  for (const { type, critical, body } of [...hashed, ...unhashed]) {
    const length = lengths.get(type);
    if (length === undefined && critical) return `has an unknown critical subpacket (type ${type})`;
    if (length === undefined || length < 0) continue;
    if (length === 0 ? body.length === 0 : body.length !== length) return `has a malformed subpacket (type ${type})`;
  }
  return undefined;
}
