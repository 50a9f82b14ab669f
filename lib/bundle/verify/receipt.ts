import { createPrivateKey, type KeyObject } from 'node:crypto';
import { readSmallFile } from '#content/files';
import { parseJson } from '#content/oci';
import { messageOf, PluginError } from '#errors';
import {
  exportPublicKey,
  isSignedBy,
  parseEnvelope,
  signEnvelope,
  type Envelope,
  readPolicyKey,
} from '#release/sigstore';

const payloadType = 'application/vnd.in-toto+json';
const statementType = 'https://in-toto.io/Statement/v1';
const predicateType = 'https://example.com/oc-disconnected/verification/v1';

/** Something that a receipt is about, by its digest. */
export interface ReceiptSubject {
  readonly name: string;
  readonly digest: { readonly sha256: string };
}

/** The statement of a receipt (in-toto, Statement v1). */
export interface ReceiptStatement {
  readonly subject: readonly ReceiptSubject[];
  readonly predicate: Readonly<Record<string, unknown>>;
}

/** The size limits of keys and receipts, in bytes. A report of 190 images has 100 KB. */
const limits = { key: 64 * 1024, receipt: 16 * 1024 * 1024 };

/** Reads a private key in PEM form without a passphrase. Throws `not-found`, `not-readable` and `invalid-file`. */
export async function readSigningKey(file: string): Promise<KeyObject> {
  const pem = await readSmallFile(file, limits.key);
  try {
    const key = createPrivateKey({ key: pem, format: 'pem' });
    readPolicyKey(exportPublicKey(key));
    return key;
  } catch (cause) {
    throw new PluginError('invalid-file', `${file} has no private key that can be used`, {
      hint: 'The file must have one RSA, ECDSA or Ed25519 key in PEM form without a passphrase: openssl genpkey.',
      cause,
    });
  }
}

/**
 * Signs the report of a verification: a DSSE envelope (secure-systems-lab/dsse, version 1) with an in-toto statement.
 */
export function signReceipt({ subject, predicate }: ReceiptStatement, key: KeyObject): string {
  const payload = Buffer.from(JSON.stringify({ _type: statementType, subject, predicateType, predicate }));
  return signEnvelope(payloadType, payload, key);
}

/**
 * Reads a receipt, and checks its signature by a public key in PEM form. One of several signatures has to hold. Throws
 * `untrusted` for a signature by another key, `invalid-file` for another file, and the errors of reading the files.
 */
export async function openReceipt(file: string, keyFile: string): Promise<ReceiptStatement> {
  const [bytes, pem] = [await readSmallFile(file, limits.receipt), await readSmallFile(keyFile, limits.key)];
  const { key } = readPublicKey(pem, keyFile);
  const envelope = readEnvelope(bytes, file);
  if (!isSignedBy(payloadType, envelope, key)) {
    const message = `${file} has no signature by the key in ${keyFile}, or its content was changed`;
    const hint = 'Get the receipt, and the key, from the person who verified the bundle.';
    throw new PluginError('untrusted', message, { hint });
  }
  return readStatement(envelope.payload, file);
}

function readPublicKey(pem: Buffer, file: string): ReturnType<typeof readPolicyKey> {
  try {
    return readPolicyKey(pem);
  } catch (cause) {
    throw new PluginError('invalid-file', `${file} has no public key: ${messageOf(cause)}`, { cause });
  }
}

function readEnvelope(bytes: Buffer, file: string): Envelope {
  try {
    return parseEnvelope(bytes, payloadType);
  } catch (cause) {
    throw notReceipt(file, cause);
  }
}

function readStatement(payload: Buffer, file: string): ReceiptStatement {
  const { _type, subject, predicateType: type, predicate } = parseObject(payload, file);
  const isKnown = _type === statementType && type === predicateType;
  if (!isKnown || !Array.isArray(subject) || typeof predicate !== 'object' || predicate === null)
    throw notReceipt(file);
  if (!subject.every(isSubject)) throw notReceipt(file);
  return { subject, predicate: predicate as Record<string, unknown> };
}

function isSubject(value: unknown): value is ReceiptSubject {
  const { name, digest } = (value ?? {}) as { name?: unknown; digest?: { sha256?: unknown } };
  return typeof name === 'string' && typeof digest?.sha256 === 'string' && /^[0-9a-f]{64}$/.test(digest.sha256);
}

function parseObject(bytes: Buffer, file: string): Record<string, unknown> {
  try {
    const value: unknown = parseJson(bytes.toString('utf8'));
    if (typeof value === 'object' && value !== null) return value as Record<string, unknown>;
  } catch (cause) {
    throw notReceipt(file, cause);
  }
  throw notReceipt(file);
}

function notReceipt(file: string, cause?: unknown): PluginError {
  return new PluginError('invalid-file', `${file} is not a receipt of a verification`, { cause });
}
