import type { Digest } from '../../oci/digest.ts';
import { SignatureRefusal } from './refusal.ts';

/**
 * Checks that a signed statement is for a container image (containers/image, “atomic container signature”) and for a
 * digest. It may have only the fields of library-go's verify package, with their types. Throws a SignatureRefusal.
 */
export function checkSimpleSigning(data: Buffer, digest: Digest): void {
  const statement = fieldsOf(parseStatement(data), ['critical', 'optional']);
  const critical = fieldsOf(statement['critical'], ['type', 'image', 'identity']);
  const image = fieldsOf(critical['image'], ['docker-manifest-digest']);
  const identity = fieldsOf(critical['identity'], ['docker-reference']);
  const { creator, timestamp } = fieldsOf(statement['optional'] ?? {}, ['creator', 'timestamp']);
  if (critical['type'] !== 'atomic container signature') throw new SignatureRefusal('is not one of a container image');
  if (typeof identity['docker-reference'] !== 'string' || identity['docker-reference'] === '') {
    throw new SignatureRefusal('names no image');
  }
  if (typeof (creator ?? '') !== 'string') throw new SignatureRefusal('has a creator that is not a text');
  if (typeof (timestamp ?? 0n) !== 'bigint') {
    throw new SignatureRefusal('has a timestamp that is not a 64-bit integer');
  }
  const signed = image['docker-manifest-digest'];
  if (signed !== digest)
    throw new SignatureRefusal(`is for ${typeof signed === 'string' ? signed.slice(0, 100) : 'no digest'}`);
}

// Node.js has the source text of a number since version 21, but its types lack it.
const parse = JSON.parse as (
  text: string,
  reviver: (name: string, value: unknown, context: { readonly source?: string }) => unknown,
) => unknown;

function parseStatement(data: Buffer): unknown {
  try {
    // Go reads an int64, and refuses 1.0 and 1e3.
    return parse(data.toString('utf8'), (_, value, { source = '' }) =>
      typeof value === 'number' && isInteger(source) ? BigInt(source) : value,
    );
  } catch {
    throw new SignatureRefusal('signs something that is not JSON');
  }
}

function isInteger(source: string): boolean {
  return /^-?\d{1,19}$/.test(source) && BigInt.asIntN(64, BigInt(source)) === BigInt(source);
}

function fieldsOf(value: unknown, known: readonly string[]): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new SignatureRefusal(`lacks ${known.join(', ')}`);
  const unknown = Object.keys(value).find((name) => !known.includes(name));
  if (unknown !== undefined) throw new SignatureRefusal(`has an unknown field “${unknown.slice(0, 100)}”`);
  return value as Record<string, unknown>;
}
