import { constants, verify, type KeyObject } from 'node:crypto';
import type { Descriptor } from '../../oci/descriptor.ts';
import type { Digest } from '../../oci/digest.ts';
import type { Reference } from '../../oci/reference.ts';
import { matchesIdentity, type IdentityRule } from './identity.ts';

/** The media type of a simple-signing payload in an attachment. */
export const payloadType = 'application/vnd.dev.cosign.simplesigning.v1+json';

const signatureAnnotation = 'dev.cosignproject.cosign/signature';

/** The largest payload that containers/image reads (internal/iolimits). */
export const payloadLimit = 4 * 1024 * 1024;

/** A layer of an attachment with its bytes. Their digest is verified. */
export interface SignatureLayer {
  readonly descriptor: Descriptor;
  readonly payload: Buffer;
}

/** The image that a signature must be for: its digest, and the name by which the cluster pulls it. */
export interface SignedImage {
  readonly reference: Reference;
  readonly digest: Digest;
}

/**
 * Returns why a signature is not valid for an image and a key; undefined if it is valid. Follows the rules of
 * containers/image (signature/internal/sigstore_payload.go, signature/policy_eval_sigstore.go).
 */
export function findSignatureFault(
  { descriptor, payload }: SignatureLayer,
  image: SignedImage,
  key: KeyObject,
  identity: IdentityRule,
): string | undefined {
  const text: unknown = descriptor.annotations?.[signatureAnnotation];
  if (typeof text !== 'string') return `it has no ${signatureAnnotation} annotation`;
  const signature = decodeBase64(text);
  if (!signature) return 'its signature is not base64';
  if (!isSignedBy(key, payload, signature))
    return 'its signature is not by the key of the policy, or its content was changed';
  const statement = parsePayload(payload);
  if (typeof statement === 'string') return statement;
  if (statement.digest !== image.digest) return `it is for ${statement.digest.slice(0, 100)}`;
  if (!matchesIdentity(identity, image.reference, statement.reference)) {
    return `it is for the name ${statement.reference.slice(0, 200)}`;
  }
  return undefined;
}

function isSignedBy(key: KeyObject, payload: Buffer, signature: Buffer): boolean {
  try {
    return key.asymmetricKeyType === 'ed25519'
      ? verify(null, payload, key, signature)
      : verify('sha256', payload, { key, padding: constants.RSA_PKCS1_PADDING }, signature);
  } catch {
    // The signature is not DER.
    return false;
  }
}

/** Decodes base64 as Go’s StdEncoding does: requires padding, skips line breaks, and accepts nothing else. */
function decodeBase64(text: string): Buffer | undefined {
  const plain = text.replace(/[\r\n]/g, '');
  return plain.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(plain) ? Buffer.from(plain, 'base64') : undefined;
}

interface Statement {
  readonly digest: string;
  readonly reference: string;
}

/**
 * Parses a payload as strictly as containers/image: exactly these fields, each once. Returns the fault as a text if it
 * is invalid.
 */
function parsePayload(payload: Buffer): Statement | string {
  let value: unknown;
  try {
    value = JSON.parse(payload.toString('utf8'));
  } catch {
    return 'its content is not JSON';
  }
  if (countKeys(payload.toString('utf8')) !== countFields(value)) return 'its content has a field twice';
  const statement = exactFields(value, ['critical', 'optional']);
  const critical = exactFields(statement?.['critical'], ['type', 'image', 'identity']);
  const image = exactFields(critical?.['image'], ['docker-manifest-digest']);
  const identity = exactFields(critical?.['identity'], ['docker-reference']);
  if (!statement || !critical || !image || !identity)
    return 'its content has other fields than a signature of an image';
  if (critical['type'] !== 'cosign container image signature')
    return 'its content is no cosign container image signature';
  const [digest, reference] = [image['docker-manifest-digest'], identity['docker-reference']];
  if (typeof digest !== 'string' || typeof reference !== 'string') return 'its content names no image';
  return hasValidOptions(statement['optional']) ? { digest, reference } : 'its optional fields are malformed';
}

function hasValidOptions(optional: unknown): boolean {
  if (optional === null) return true;
  if (typeof optional !== 'object' || Array.isArray(optional)) return false;
  const { creator = '', timestamp = 0 } = optional as Record<string, unknown>;
  // Go accepts null, and keeps the default values.
  return (creator === null || typeof creator === 'string') && (timestamp === null || Number.isInteger(timestamp));
}

function exactFields(value: unknown, names: readonly string[]): Record<string, unknown> | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const keys = Object.keys(value);
  return keys.length === names.length && names.every((name) => keys.includes(name))
    ? (value as Record<string, unknown>)
    : undefined;
}

/** Returns the number of fields in all objects of a parsed value. */
function countFields(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const values: unknown[] = Object.values(value);
  const own = Array.isArray(value) ? 0 : values.length;
  return values.reduce<number>((sum, each) => sum + countFields(each), own);
}

/** Returns the number of keys in a JSON text: strings before a colon. */
function countKeys(text: string): number {
  return [...text.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?/gs)].filter(([, colon]) => colon !== undefined).length;
}
