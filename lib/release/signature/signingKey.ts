import { createPublicKey, type KeyObject } from 'node:crypto';
import type { Key, KeyID, PublicKeyPacket, Subkey } from 'openpgp';
import { messageOf } from '../../errors.ts';
import { hashAlgorithmName, publicKeyAlgorithmName } from './algorithms.ts';
import { SignatureRefusal, type RefusalKind } from './refusal.ts';
import { type SignaturePacket, splitVersion4 } from './signaturePacket.ts';
import { embeddedSignature, checkSubpackets } from './subpackets.ts';

/** The key that made a signature: the primary key, the signing key or subkey, and its form for node:crypto. */
export interface SigningKey {
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
export async function findSigningKey(signature: SignaturePacket, keys: readonly Key[]): Promise<SigningKey> {
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
