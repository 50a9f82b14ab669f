import { createHash, type KeyObject } from 'node:crypto';
import { fieldsAt, textOf } from '../../fields.ts';
import { readBlock } from './pem.ts';
import { isSignedWith } from './policyKey.ts';
import { decodeBase64, exactFields, isInt64, parseStrictJson } from './strictJson.ts';

/** What an entry of a Rekor log must be about. */
export interface LoggedSignature {
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
export function checkRekorEntry(set: string, key: KeyObject, logged: LoggedSignature): number | string {
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
