import { constants, createPublicKey, sign, verify, type KeyObject } from 'node:crypto';
import { parseJson } from '#content/oci';
import { fieldsOf, isFields, listOf } from '#fields';
import { readPolicyKey } from './trustRoot.ts';

/** A signed content: a DSSE envelope (secure-systems-lab/dsse, version 1). Nothing in it is verified. */
export interface Envelope {
  readonly payload: Buffer;
  readonly signatures: readonly Buffer[];
}

/** Signs a content of a media type. Returns the text of the envelope. */
export function signEnvelope(type: string, payload: Buffer, key: KeyObject): string {
  return formatEnvelope(type, payload, signPayload(type, payload, key), fingerprintOfKey(key));
}

/** Returns the signature of a content of a media type. */
export function signPayload(type: string, payload: Buffer, key: KeyObject): Buffer {
  return sign(hashOf(key), encodePayload(type, payload), { key, padding: constants.RSA_PKCS1_PADDING });
}

/** Returns the text of an envelope with one signature. `keyid` is the fingerprint of the key. */
export function formatEnvelope(type: string, payload: Buffer, signature: Buffer, keyid: string): string {
  const signatures = [{ keyid, sig: signature.toString('base64') }];
  return `${JSON.stringify({ payloadType: type, payload: payload.toString('base64'), signatures }, null, 2)}\n`;
}

/** Parses an envelope with a content of a media type. Throws a TypeError or SyntaxError. */
export function parseEnvelope(bytes: Buffer, type: string): Envelope {
  const value: unknown = parseJson(bytes.toString('utf8'));
  if (!isFields(value)) throw new TypeError('it is not an object');
  const { payloadType, payload, signatures } = fieldsOf(value);
  if (payloadType !== type || typeof payload !== 'string' || !Array.isArray(signatures))
    throw new TypeError(`it is not an envelope of the type ${type}`);
  const sigs = listOf(signatures.slice(0, 100)).map(({ sig }) => sig);
  return {
    payload: Buffer.from(payload, 'base64'),
    signatures: sigs.filter((sig) => typeof sig === 'string').map((sig) => Buffer.from(sig, 'base64')),
  };
}

/** Returns whether one of the signatures of an envelope is by a key, RSA, ECDSA or Ed25519. */
export function isSignedBy(type: string, { payload, signatures }: Envelope, key: KeyObject): boolean {
  const signed = encodePayload(type, payload);
  return signatures.some((signature) => {
    try {
      return verify(hashOf(key), signed, { key, padding: constants.RSA_PKCS1_PADDING }, signature);
    } catch {
      // A signature that is not even DER.
      return false;
    }
  });
}

/** Returns the SHA-256 of the SPKI form of the public part of a key, in hex. */
export function fingerprintOfKey(key: KeyObject): string {
  return readPolicyKey(exportPublicKey(key)).fingerprint;
}

/** Returns the public part of a key in PEM form (SPKI). */
export function exportPublicKey(key: KeyObject): Buffer {
  const own = key.type === 'public' ? key : createPublicKey(key);
  return Buffer.from(own.export({ type: 'spki', format: 'pem' }));
}

/** DSSE, “PAE”: what is signed covers the type and the lengths. */
function encodePayload(type: string, payload: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`DSSEv1 ${type.length} ${type} ${payload.length} `), payload]);
}

function hashOf(key: KeyObject): 'sha256' | null {
  return key.asymmetricKeyType === 'ed25519' ? null : 'sha256';
}
