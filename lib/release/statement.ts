import type { Digest } from '../oci/digest.ts';

/**
 * Checks that a signed statement is one of a container image (containers/image, “atomic container signature”) and is for a
 * digest. It may have the fields that library-go's verify package knows, and no other. Throws an error whose message is the
 * rest of a sentence that begins with “the signature”.
 */
export function checkStatement(data: Buffer, digest: Digest): void {
  const statement = fieldsOf(parseStatement(data), ['critical', 'optional']);
  const critical = fieldsOf(statement['critical'], ['type', 'image', 'identity']);
  const image = fieldsOf(critical['image'], ['docker-manifest-digest']);
  const identity = fieldsOf(critical['identity'], ['docker-reference']);
  fieldsOf(statement['optional'] ?? {}, ['creator', 'timestamp']);
  if (critical['type'] !== 'atomic container signature') throw new Error('is not one of a container image');
  if (typeof identity['docker-reference'] !== 'string' || identity['docker-reference'] === '') {
    throw new Error('names no image');
  }
  const signed = image['docker-manifest-digest'];
  if (signed !== digest) throw new Error(`is for ${typeof signed === 'string' ? signed.slice(0, 100) : 'no digest'}`);
}

function parseStatement(data: Buffer): unknown {
  try {
    return JSON.parse(data.toString('utf8'));
  } catch {
    throw new Error('signs something that is not JSON');
  }
}

function fieldsOf(value: unknown, known: readonly string[]): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(`lacks ${known.join(', ')}`);
  const unknown = Object.keys(value).find((name) => !known.includes(name));
  if (unknown !== undefined) throw new Error(`has an unknown field “${unknown.slice(0, 100)}”`);
  return value as Record<string, unknown>;
}
