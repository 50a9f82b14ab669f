import { createPrivateKey, type KeyObject } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { config, createMessage, generateKey, sign, type PrivateKey } from 'openpgp';
import { hexOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { rsaSignedMessage } from './signedMessage.ts';

const day = 24 * 60 * 60 * 1000;

/** A temporary OpenPGP key. */
export interface SigningKey {
  /** The armored public key. */
  readonly publicKey: string;
  /** The fingerprint: 40 upper-case hex digits. */
  readonly fingerprint: string;
  readonly created: Date;
  readonly privateKey: PrivateKey;
  /** The same key for node:crypto; undefined for an elliptic curve. */
  readonly rsaKey: KeyObject | undefined;
}

/** The kind of key; by default RSA of 2048 bits from 2023 that never expires. */
export interface SigningKeyOptions {
  readonly name?: string;
  readonly type?: 'rsa' | 'ecc';
  /** Whether it was valid in 2020 only. Its signatures are from that year. */
  readonly expired?: boolean;
}

/** The content and the form of a signature; by default version 4 of the true digest. */
export interface SignatureOptions {
  /** The docker-reference in the signed statement. */
  readonly reference?: string;
  readonly creator?: string;
  /** The signed text itself, instead of a well-formed statement. */
  readonly statement?: string;
  /** The version of the signature packet. Red Hat's oldest release signatures have 3, which needs an RSA key. */
  readonly version?: 3 | 4;
  /** Whether it is in a compressed packet, as in Red Hat's signatures; needs an RSA key. */
  readonly compressed?: boolean;
  /** Whether the signature itself expired a day after its creation; needs an RSA key, and version 4. */
  readonly expired?: boolean;
}

/** Creates a key. */
export async function makeSigningKey(options: SigningKeyOptions = {}): Promise<SigningKey> {
  const { name = 'Test release key', type = 'rsa', expired = false } = options;
  const created = new Date(expired ? '2020-01-01T00:00:00Z' : '2023-01-01T00:00:00Z');
  const { privateKey, publicKey } = await generateKey({
    ...(type === 'rsa' ? { type, rsaBits: 2048 } : { type, curve: 'nistP256' }),
    userIDs: { name, email: 'release@example.com' },
    date: created,
    subkeys: [],
    keyExpirationTime: expired ? (365 * day) / 1000 : 0,
    format: 'object',
  });
  return {
    publicKey: publicKey.armor(),
    fingerprint: publicKey.getFingerprint().toUpperCase(),
    created,
    privateKey,
    rsaKey: type === 'rsa' ? rsaKeyOf(privateKey) : undefined,
  };
}

/** Returns the statement that a release signature signs (containers/image, “atomic container signature”). */
export function statementOf(digest: Digest, options: SignatureOptions = {}): string {
  const { reference = 'quay.io/openshift-release-dev/ocp-release:4.12.4-x86_64', creator = 'Test signer' } = options;
  return JSON.stringify({
    critical: {
      image: { 'docker-manifest-digest': digest },
      type: 'atomic container signature',
      identity: { 'docker-reference': reference },
    },
    optional: { creator, timestamp: 1675252800 },
  });
}

/** Signs a release digest. Returns a signed OpenPGP message in binary, with the statement inside. */
export async function signDigest(key: SigningKey, digest: Digest, options: SignatureOptions = {}): Promise<Buffer> {
  const { version = 4, compressed = false, expired = false } = options;
  const statement = Buffer.from(options.statement ?? statementOf(digest, options));
  const date = new Date(key.created.getTime() + 30 * day);
  if (version === 3 || compressed || expired) {
    if (!key.rsaKey) throw new Error('this kind of signature needs an RSA key');
    const { rsaKey, fingerprint } = key;
    const lifetime = expired ? day / 1000 : undefined;
    return rsaSignedMessage(statement, { key: rsaKey, fingerprint, version, compressed, date, lifetime });
  }
  const bytes = (await sign({
    message: await createMessage({ binary: new Uint8Array(statement), date }),
    signingKeys: key.privateKey,
    format: 'binary',
    date,
    // The same key and statement give the same signature.
    config: { ...config, nonDeterministicSignaturesViaNotation: false },
  })) as Uint8Array;
  return Buffer.from(bytes);
}

/** Returns a good signature that exceeds the limit of 50 KiB. */
export function signOversized(key: SigningKey, digest: Digest): Promise<Buffer> {
  return signDigest(key, digest, { creator: 'x'.repeat(60 * 1024) });
}

/**
 * Lays out signatures as a signature store: `<prefix>sha256=<hex>/signature-1`, `-2` and so on. A signature may be
 * stored under another digest than the signed one.
 */
export function signatureStore(signatures: ReadonlyMap<Digest, readonly Buffer[]>, prefix = ''): Map<string, Buffer> {
  const entries = [...signatures].flatMap(([digest, all]) =>
    all.map((bytes, index): [string, Buffer] => [`${prefix}sha256=${hexOf(digest)}/signature-${index + 1}`, bytes]),
  );
  return new Map(entries);
}

/** Writes a signature store into a folder, for a `file:` URL. */
export async function writeSignatureStore(folder: string, store: ReadonlyMap<string, Buffer>): Promise<void> {
  for (const [path, bytes] of store) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), bytes);
  }
}

function rsaKeyOf({ keyPacket }: PrivateKey): KeyObject {
  const { n, e } = keyPacket.publicParams as Record<'n' | 'e', Uint8Array>;
  // OpenPGP's u is p⁻¹ mod q and JWK's qi is q⁻¹ mod p, so the two primes are exchanged.
  const { privateParams } = keyPacket as { privateParams: Record<'d' | 'p' | 'q' | 'u', Uint8Array> };
  const { d, p: q, q: p, u: qi } = privateParams;
  const dp = remainder(d, p);
  const dq = remainder(d, q);
  const parts = Object.entries({ n, e, d, p, q, dp, dq, qi });
  const jwk = Object.fromEntries(parts.map(([name, value]) => [name, Buffer.from(value).toString('base64url')]));
  return createPrivateKey({ key: { kty: 'RSA', ...jwk }, format: 'jwk' });
}

function remainder(d: Uint8Array, prime: Uint8Array): Uint8Array {
  const number = (bytes: Uint8Array): bigint => BigInt(`0x${Buffer.from(bytes).toString('hex')}`);
  const hex = (number(d) % (number(prime) - 1n)).toString(16);
  return Buffer.from(hex.padStart(2 * prime.length, '0'), 'hex');
}
