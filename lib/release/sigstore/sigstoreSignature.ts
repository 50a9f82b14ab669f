import { verify, type KeyObject, createHash } from 'node:crypto';
import type { Descriptor, Digest, Reference } from '#content/oci';
import { messageOf } from '#errors';
import { fieldsAt, textOf } from '#fields';
import { checkCertificate } from './certificateChain.ts';
import { matchesIdentity, type IdentityRule } from './imagePolicy.ts';
import { readBlock, decodeBase64, exactFields, isInt64, parseStrictJson } from './strictJson.ts';
import { isSignedWith, type TrustRoot } from './trustRoot.ts';

/** The media type of a simple-signing payload in an attachment. */
export const payloadType = 'application/vnd.dev.cosign.simplesigning.v1+json';

/** Annotations of a signature (containers/image, internal/signature/sigstore.go). */
const annotationNames = {
  signature: 'dev.cosignproject.cosign/signature',
  entry: 'dev.sigstore.cosign/bundle',
  certificate: 'dev.sigstore.cosign/certificate',
  chain: 'dev.sigstore.cosign/chain',
} as const;

/** The largest payload that containers/image reads (internal/iolimits). */
export const payloadLimit = 4 * 1024 * 1024;

/** A layer of an attachment with its bytes. Their digest is verified. */
interface SignatureLayer {
  readonly descriptor: Descriptor;
  readonly payload: Buffer;
}

/** A root of trust that signatures can be checked against. */
type UsableTrust = Exclude<TrustRoot, { readonly kind: 'invalid' }>;

/** The image that a signature must be for: its digest, and the name by which the cluster pulls it. */
export interface SignedImage {
  readonly reference: Reference;
  readonly digest: Digest;
}

/**
 * Returns why a signature is not valid for an image and a policy; undefined if it is valid. Follows the rules of
 * containers/image (signature/internal/sigstore_payload.go, signature/policy_eval_sigstore.go). `now` is in
 * milliseconds.
 */
export async function findSignatureFault(
  { descriptor, payload }: SignatureLayer,
  image: SignedImage,
  { trust, identity }: { readonly trust: UsableTrust; readonly identity: IdentityRule },
  now: number,
): Promise<string | undefined> {
  const annotations: Readonly<Record<string, unknown>> = descriptor.annotations ?? {};
  const text = annotations[annotationNames.signature];
  if (typeof text !== 'string') return `it has no ${annotationNames.signature} annotation`;
  const signature = decodeBase64(text);
  if (!signature) return 'its signature is not base64';
  const key = await findKey(annotations, { signature, payload }, trust, now);
  if (typeof key === 'string') return key;
  if (!isSignedBy(key, payload, signature)) {
    return 'its signature is not by the key of the policy, or its content was changed';
  }
  const statement = parsePayload(payload);
  if (typeof statement === 'string') return statement;
  if (statement.digest !== image.digest) return `it is for ${statement.digest.slice(0, 100)}`;
  if (!matchesIdentity(identity, image.reference, statement.reference)) {
    return `it is for the name ${statement.reference.slice(0, 200)}`;
  }
  return undefined;
}

/** Returns the key that a signature must be by, or the fault of its certificate or of its entry in a log as a text. */
async function findKey(
  annotations: Readonly<Record<string, unknown>>,
  signed: Pick<LoggedSignature, 'signature' | 'payload'>,
  trust: UsableTrust,
  now: number,
): Promise<KeyObject | string> {
  const { entry: entryName, certificate: certificateName, chain: chainName } = annotationNames;
  const { [entryName]: entry, [certificateName]: certificate, [chainName]: chain } = annotations;
  let time = now;
  if (trust.kind !== 'key' && typeof certificate !== 'string') return `it has no ${certificateName} annotation`;
  if (trust.kind !== 'pki' && trust.rekor) {
    if (typeof entry !== 'string') return `it has no ${entryName} annotation`;
    const signer =
      trust.kind === 'key' ? trust.key.key.export({ type: 'spki', format: 'der' }) : readBlock(String(certificate));
    if (!signer) return 'its certificate cannot be read';
    const logged = checkRekorEntry(entry, trust.rekor.key, { ...signed, signer });
    if (typeof logged === 'string') return logged;
    time = logged;
  }
  if (trust.kind === 'key') return trust.key.key;
  if (chain !== undefined && typeof chain !== 'string') return `its ${chainName} annotation is not a text`;
  const checked = await checkCertificate(String(certificate), chain, trust, time);
  return typeof checked === 'string' ? checked : checked.key;
}

function isSignedBy(key: KeyObject, payload: Buffer, signature: Buffer): boolean {
  if (key.asymmetricKeyType === 'ed25519') return verify(null, payload, key, signature);
  if (key.asymmetricKeyType === 'ec' && !isDerSequence(signature)) return isSignedInPlainForm(key, payload, signature);
  return isSignedWith(key, payload, signature);
}

/** Returns whether an ECDSA signature looks like DER: a SEQUENCE that begins with an INTEGER. */
function isDerSequence(signature: Buffer): boolean {
  const start = signature[1] === 0x81 ? 3 : 2;
  return signature[0] === 0x30 && signature[start] === 0x02;
}

/**
 * Checks an ECDSA signature of two numbers of the same length (IEEE P1363), which may be longer or shorter than the
 * key’s (sigstore/sigstore, pkg/signature/ecdsa.go).
 */
function isSignedInPlainForm(key: KeyObject, payload: Buffer, signature: Buffer): boolean {
  if (signature.length === 0 || signature.length > 132 || signature.length % 2 !== 0) return false;
  const size = fieldSizes[key.asymmetricKeyDetails?.namedCurve ?? ''] ?? 0;
  const half = signature.length / 2;
  const [r, s] = [signature.subarray(0, half), signature.subarray(half)].map((number) =>
    number
      .toString('hex')
      .replace(/^(?:00)+/, '')
      .padStart(2 * size, '0'),
  );
  if (r?.length !== 2 * size || s?.length !== 2 * size) return false;
  return isSignedWith(key, payload, Buffer.from(r + s, 'hex'), true);
}

/** The length of a number in bytes, by the curve. */
const fieldSizes: Readonly<Record<string, number>> = { secp224r1: 28, prime256v1: 32, secp384r1: 48, secp521r1: 66 };

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
    value = parseStrictJson(payload);
  } catch (error) {
    return `its content ${messageOf(error)}`;
  }
  const statement = exactFields(value, ['critical', 'optional']);
  const critical = exactFields(statement?.['critical'], ['type', 'image', 'identity']);
  const image = exactFields(critical?.['image'], ['docker-manifest-digest']);
  const identity = exactFields(critical?.['identity'], ['docker-reference']);
  if (!statement || !critical || !image || !identity)
    return 'its content has other fields than a signature of an image';
  if (critical['type'] !== 'cosign container image signature')
    return 'its content is not a cosign container image signature';
  const [digest, reference] = [image['docker-manifest-digest'], identity['docker-reference']];
  if (typeof digest !== 'string' || typeof reference !== 'string') return 'its content names no image';
  return hasValidOptions(statement['optional']) ? { digest, reference } : 'its optional fields are malformed';
}

function hasValidOptions(optional: unknown): boolean {
  if (optional === null) return true;
  if (typeof optional !== 'object' || Array.isArray(optional)) return false;
  const { creator = '', timestamp = 0 } = optional as Record<string, unknown>;
  // Go accepts null, and keeps the default values.
  return (creator === null || typeof creator === 'string') && (timestamp === null || isInt64(timestamp));
}

/** What an entry of a Rekor log must be about. */
interface LoggedSignature {
  /** The DER form of the certificate or key of the signer. */
  readonly signer: Buffer;
  readonly signature: Buffer;
  readonly payload: Buffer;
}

/**
 * Checks the promise of a Rekor log that it has the entry of a signature (“signed entry timestamp”). Returns the time
 * of the entry in milliseconds, or the fault as a text. Follows containers/image (signature/internal/rekor_set.go).
 * Of the entry it accepts less than Go’s parser: a field in another case, or twice, is a fault.
 */
function checkRekorEntry(set: string, key: KeyObject, logged: LoggedSignature): number | string {
  try {
    const bundle = exactFields(parseStrictJson(Buffer.from(set)), ['SignedEntryTimestamp', 'Payload']);
    const payload = exactFields(bundle?.['Payload'], ['body', 'integratedTime', 'logIndex', 'logID']);
    const { body, integratedTime, logIndex, logID } = payload ?? {};
    const promise = decodeBase64(bundle?.['SignedEntryTimestamp']);
    const entry = decodeBase64(body);
    if (!promise || !entry || !isInt64(integratedTime) || !isInt64(logIndex) || typeof logID !== 'string') {
      return 'its entry of a Rekor log has other fields than such an entry';
    }
    // The canonical form of these fields (RFC 8785). The names are in the order of their code units.
    const signed = JSON.stringify({ body, integratedTime, logID, logIndex });
    if (!isSignedWith(key, Buffer.from(signed), promise)) {
      return 'its entry of a Rekor log is not signed by the Rekor key of the policy';
    }
    return findMismatch(parseStrictJson(entry), logged) ?? integratedTime * 1000;
  } catch (error) {
    if (error instanceof SyntaxError) return `its entry of a Rekor log ${error.message}`;
    throw error;
  }
}

function findMismatch(entry: unknown, { signer, signature, payload }: LoggedSignature): string | undefined {
  if (hasAmbiguousNames(entry)) return 'its entry of a Rekor log has two fields that differ in case only';
  const { kind, apiVersion } = fieldsAt(entry);
  if (kind !== 'hashedrekord' || apiVersion !== '0.0.1') return 'its entry of a Rekor log is of an unknown kind';
  const { content } = fieldsAt(entry, 'spec', 'signature');
  const { content: pem } = fieldsAt(entry, 'spec', 'signature', 'publicKey');
  const { algorithm, value } = fieldsAt(entry, 'spec', 'data', 'hash');
  const loggedSigner = readBlock(decodeBase64(pem)?.toString('latin1') ?? '');
  if (!loggedSigner?.equals(signer)) return 'its entry of a Rekor log is about another key or certificate';
  if (decodeBase64(content)?.equals(signature) !== true) return 'its entry of a Rekor log is about another signature';
  const digest = createHash('sha256').update(payload).digest('hex');
  if (algorithm !== 'sha256' || textOf(value)?.toLowerCase() !== digest) {
    return 'its entry of a Rekor log is about another content';
  }
  return undefined;
}

/** Go’s parser takes the last of several fields whose names differ in case only. */
function hasAmbiguousNames(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const names = Array.isArray(value) ? [] : Object.keys(value);
  const folded = new Set(names.map((name) => name.normalize('NFKC').toLowerCase()));
  return folded.size !== names.length || Object.values(value).some(hasAmbiguousNames);
}
