/** A signature packet, of version 3 or 4 (RFC 4880, sections 5.2.2 and 5.2.3). */
export interface SignaturePacket {
  readonly algorithm: number;
  /** The name of the hash in Node.js. */
  readonly hash: string;
  readonly created: Date;
  /** The time when it expires; undefined if it does not. */
  readonly expires: Date | undefined;
  /** The key ID in upper-case hex. */
  readonly keyId: string;
  /** The fingerprint in upper-case hex; undefined in older signatures. */
  readonly fingerprint: string | undefined;
  /** The bytes that are hashed after the document. */
  readonly suffix: Buffer;
  /** The first two bytes of the hash. */
  readonly hashTag: Buffer;
  /** The numbers of the signature itself: one for RSA, two for ECDSA. */
  readonly numbers: readonly Buffer[];
}

type Fields = Omit<SignaturePacket, 'hash'> & { readonly type: number; readonly hash: number };

const binaryDocument = 0;
const rsa: readonly number[] = [1, 3];
const ecdsa = 19;
const hashes: Readonly<Record<number, string>> = { 8: 'sha256', 9: 'sha384', 10: 'sha512' };
const weakHashes: readonly number[] = [1, 2, 3, 11];
// Subpackets that only signatures on keys have. The cluster’s verifier and gpg read them differently.
const forKeys: readonly number[] = [9, 25, 27, 29, 32];

/**
 * Reads a signature with its one-pass packet. Clusters and gpg must both accept it: a signature of a binary document by
 * RSA or ECDSA, with a hash of the SHA-2 family. Throws a SignatureRefusal.
 */
export function readSignature(body: Buffer, onePass: Buffer): SignaturePacket {
  const [version = 0] = body;
  // Versions 4 to 6 have the algorithm in the same place, so the refusal of an unsupported version can name it.
  const algorithm = body[version === 3 ? 15 : 2] ?? 0;
  if (version !== 3 && version !== 4) {
    throw refuseAlgorithm(`OpenPGP version ${version}, ${publicKeyAlgorithmName(algorithm)}`);
  }
  if (!rsa.includes(algorithm) && (algorithm !== ecdsa || version === 3)) {
    throw refuseAlgorithm(publicKeyAlgorithmName(algorithm));
  }
  const fields = version === 3 ? readVersion3(body) : readVersion4(body);
  if (fields.type !== binaryDocument) throw new SignatureRefusal('is not one of a binary document');
  if (weakHashes.includes(fields.hash)) {
    throw new SignatureRefusal(`uses a hash weaker than SHA-256 (${hashAlgorithmName(fields.hash)})`);
  }
  const hash = hashes[fields.hash];
  if (hash === undefined) throw refuseAlgorithm(hashAlgorithmName(fields.hash));
  checkOnePass(onePass, fields);
  return { ...fields, hash };
}

// The cluster’s verifier takes the hash and the key ID from the one-pass packet. Neither it nor gpg
// reads its key algorithm.
function checkOnePass(onePass: Buffer, { type, hash, keyId }: Fields): void {
  if (onePass[0] !== 3) throw refuseAlgorithm(`one-pass packet of version ${String(onePass[0])}`);
  if (onePass.length !== 13) throw new SignatureRefusal('has a one-pass packet of a wrong length');
  if (onePass[12] === 0) throw new SignatureRefusal('is nested; clusters read exactly one signature');
  const stated = onePass.subarray(1, 3).equals(Buffer.from([type, hash]));
  if (!stated || onePass.toString('hex', 4, 12).toUpperCase() !== keyId) {
    throw new SignatureRefusal('differs from its one-pass packet (type, hash or key)');
  }
}

function readVersion3(body: Buffer): Fields {
  if (body.length < 19) throw new SignatureRefusal('is cut short');
  if (body[1] !== 5) throw new SignatureRefusal('is malformed');
  const algorithm = body.readUInt8(15);
  return {
    type: body.readUInt8(2),
    created: new Date(body.readUInt32BE(3) * 1000),
    expires: undefined,
    keyId: body.toString('hex', 7, 15).toUpperCase(),
    fingerprint: undefined,
    algorithm,
    hash: body.readUInt8(16),
    suffix: body.subarray(2, 7),
    hashTag: body.subarray(17, 19),
    numbers: readNumbers(body.subarray(19), algorithm),
  };
}

function readVersion4(body: Buffer): Fields {
  const { hashed, unhashed, rest, end } = splitVersion4(body);
  const objection = checkSubpackets(hashed, unhashed);
  if (objection !== undefined) throw new SignatureRefusal(objection);
  const all = [...hashed, ...unhashed];
  const odd = all.find(({ type }) => forKeys.includes(type));
  if (odd) throw new SignatureRefusal(`has a subpacket of signatures on keys (type ${odd.type})`);
  const created = only(hashed, subpacketTypes.created)?.readUInt32BE(0) ?? 0;
  const lifetime = only(hashed, subpacketTypes.lifetime)?.readUInt32BE(0);
  const algorithm = body.readUInt8(2);
  const trailer = Buffer.from([4, 0xff, 0, 0, 0, 0]);
  trailer.writeUInt32BE(end, 2);
  return {
    type: body.readUInt8(1),
    created: new Date(created * 1000),
    expires: lifetime === undefined ? undefined : new Date((created + lifetime) * 1000),
    ...readIssuer(all),
    algorithm,
    hash: body.readUInt8(3),
    suffix: Buffer.concat([body.subarray(0, end), trailer]),
    hashTag: rest.subarray(0, 2),
    numbers: readNumbers(rest.subarray(2), algorithm),
  };
}

function readIssuer(subpackets: readonly Subpacket[]): Pick<Fields, 'keyId' | 'fingerprint'> {
  const issuer = only(subpackets, subpacketTypes.issuer)?.toString('hex').toUpperCase();
  const stated = only(subpackets, subpacketTypes.issuerFingerprint);
  if (stated && (stated[0] !== 4 || stated.length !== 21)) throw refuseAlgorithm('key that is not of version 4');
  const fingerprint = stated?.toString('hex', 1).toUpperCase();
  const keyId = issuer ?? fingerprint?.slice(-16);
  if (keyId === undefined) throw new SignatureRefusal('does not say which key made it');
  if (fingerprint !== undefined && !fingerprint.endsWith(keyId)) throw new SignatureRefusal('names two different keys');
  return { keyId, fingerprint };
}

// If there are two, the cluster’s verifier uses the last one and gpg the first.
function only(subpackets: readonly Subpacket[], type: number): Buffer | undefined {
  const [first, second] = subpackets.filter((each) => each.type === type);
  if (second) throw new SignatureRefusal(`has a subpacket twice (type ${type})`);
  return first?.body;
}

interface Version4 {
  readonly hashed: readonly Subpacket[];
  readonly unhashed: readonly Subpacket[];
  /** The bytes after the subpackets. */
  readonly rest: Buffer;
  /** The offset of the end of the hashed part. */
  readonly end: number;
}

/** Splits a signature packet of version 4 into its parts. Throws a SignatureRefusal. */
export function splitVersion4(body: Buffer): Version4 {
  const areaAt = (at: number): Buffer => {
    if (at + 2 > body.length) throw new SignatureRefusal('is cut short');
    const length = body.readUInt16BE(at);
    if (at + 2 + length > body.length) throw new SignatureRefusal('is cut short');
    return body.subarray(at + 2, at + 2 + length);
  };
  const hashed = areaAt(4);
  const end = 6 + hashed.length;
  const unhashed = areaAt(end);
  const rest = body.subarray(end + 2 + unhashed.length);
  if (rest.length < 2) throw new SignatureRefusal('is cut short');
  return { hashed: readSubpackets(hashed), unhashed: readSubpackets(unhashed), rest, end };
}

// Multi-precision integers, each after its length in bits. Go’s own signer rounds the length up to
// whole octets.
function readNumbers(bytes: Buffer, algorithm: number): Buffer[] {
  const numbers: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const length = at + 2 <= bytes.length ? Math.ceil(bytes.readUInt16BE(at) / 8) : Infinity;
    if (at + 2 + length > bytes.length) throw new SignatureRefusal('has a number of a wrong length');
    numbers.push(bytes.subarray(at + 2, (at += 2 + length)));
  }
  if (numbers.length !== (algorithm === ecdsa ? 2 : 1)) throw new SignatureRefusal('has a number of a wrong length');
  return numbers;
}

// The numbers of OpenPGP (RFC 9580, section 9, and the draft on post-quantum cryptography), for messages.
const publicKeyNames: Readonly<Record<number, string>> = {
  1: 'RSA',
  2: 'RSA for encryption',
  3: 'RSA for signatures',
  16: 'ElGamal',
  17: 'DSA',
  18: 'ECDH',
  19: 'ECDSA',
  22: 'EdDSA (ed25519)',
  25: 'X25519',
  26: 'X448',
  27: 'Ed25519',
  28: 'Ed448',
  30: 'ML-DSA-65+Ed25519',
  31: 'ML-DSA-87+Ed448',
  32: 'SLH-DSA-SHAKE-128s',
  33: 'SLH-DSA-SHAKE-128f',
  34: 'SLH-DSA-SHAKE-256s',
  35: 'ML-KEM-768+X25519',
  36: 'ML-KEM-1024+X448',
};

const hashNames: Readonly<Record<number, string>> = {
  1: 'MD5',
  2: 'SHA-1',
  3: 'RIPEMD-160',
  8: 'SHA-256',
  9: 'SHA-384',
  10: 'SHA-512',
  11: 'SHA-224',
  12: 'SHA3-256',
  14: 'SHA3-512',
};

/** Returns the name of an OpenPGP public-key algorithm (RFC 9580, section 9.1); its number for an unknown one. */
export function publicKeyAlgorithmName(number: number): string {
  return publicKeyNames[number] ?? `public-key algorithm ${number}`;
}

/** Returns the name of an OpenPGP hash algorithm (RFC 9580, section 9.5); its number for an unknown one. */
export function hashAlgorithmName(number: number): string {
  return hashNames[number] ?? `hash algorithm ${number}`;
}

/** A subpacket of a signature (RFC 9580, section 5.2.3.7). */
interface Subpacket {
  readonly type: number;
  readonly critical: boolean;
  readonly body: Buffer;
}

/** The numbers of the subpackets in release signatures. */
const subpacketTypes = { created: 2, lifetime: 3, issuer: 16, issuerFingerprint: 33 } as const;

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
function readSubpackets(area: Buffer): Subpacket[] {
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

/** The kind of a refusal, which decides what the hint of the error advises. */
export type RefusalKind = 'unsupported' | 'expired' | 'other';

/** A refused signature. The message is the rest of a sentence that begins with “the signature”. */
export class SignatureRefusal extends Error {
  readonly kind: RefusalKind;

  constructor(message: string, kind: RefusalKind = 'other', cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.kind = kind;
  }
}

/** Returns the refusal of an algorithm that clusters do not support. */
export function refuseAlgorithm(name: string): SignatureRefusal {
  return new SignatureRefusal(`uses an unsupported algorithm, which clusters cannot verify: ${name}`, 'unsupported');
}
