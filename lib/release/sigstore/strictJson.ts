/** Deeper values are refused. Go’s parser refuses more than 10,000 levels. */
const depthLimit = 500;

/**
 * Parses JSON that containers/image also reads strictly: refuses a field twice, numbers out of range and deep nesting.
 * Throws a SyntaxError.
 */
export function parseStrictJson(bytes: Buffer): unknown {
  const text = bytes.toString('utf8');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new SyntaxError('is not JSON');
  }
  if (countKeys(text) !== countFields(value)) throw new SyntaxError('has a field twice');
  return value;
}

/** Returns the fields of an object that has exactly these; undefined otherwise. */
export function exactFields(value: unknown, names: readonly string[]): Record<string, unknown> | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const keys = Object.keys(value);
  return keys.length === names.length && names.every((name) => keys.includes(name))
    ? (value as Record<string, unknown>)
    : undefined;
}

/** Decodes base64 as Go’s StdEncoding does: requires padding, skips line breaks, and accepts nothing else. */
export function decodeBase64(text: unknown): Buffer | undefined {
  if (typeof text !== 'string') return undefined;
  const plain = text.replace(/[\r\n]/g, '');
  return plain.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(plain) ? Buffer.from(plain, 'base64') : undefined;
}

/** Returns the number of fields in all objects of a parsed value. */
function countFields(value: unknown, depth = 0): number {
  if (depth > depthLimit) throw new SyntaxError(`has more than ${depthLimit} levels`);
  // JSON.parse makes 1e999 infinite, which Go refuses.
  if (typeof value === 'number' && !Number.isFinite(value)) throw new SyntaxError('has a number out of range');
  if (typeof value !== 'object' || value === null) return 0;
  const values: unknown[] = Object.values(value);
  const own = Array.isArray(value) ? 0 : values.length;
  return values.reduce<number>((sum, each) => sum + countFields(each, depth + 1), own);
}

/** Returns the number of keys in a JSON text: strings before a colon. */
function countKeys(text: string): number {
  return [...text.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?/gs)].filter(([, colon]) => colon !== undefined).length;
}

/** Returns whether Go converts a number to an int64 without loss. 2^63 it does on some processors only. */
export function isInt64(value: unknown): value is number {
  return Number.isInteger(value) && Number(value) >= -(2 ** 63) && Number(value) < 2 ** 63;
}

const block = /-----BEGIN ([A-Z0-9 ]+)-----[ \t]*\r?\n([A-Za-z0-9+/=\s]*?)-----END \1-----[ \t]*(?:\r?\n|$)/;

/** Returns the certificates in a text, and skips everything else, as Go does for pools of authorities. */
export function findCertificates(text: string): Buffer[] {
  return [...text.matchAll(new RegExp(block, 'g'))].flatMap(([, label, body]) =>
    label === 'CERTIFICATE' ? (decodeBody(body) ?? []) : [],
  );
}

/** Returns the certificates in a text that has nothing else; undefined for any other text. */
export function splitCertificates(text: string): Buffer[] | undefined {
  const certificates = findCertificates(text);
  const rest = text.replace(new RegExp(block, 'g'), '').trim();
  const count = text.split('-----BEGIN ').length - 1;
  return rest === '' && certificates.length === count ? certificates : undefined;
}

/** Returns the bytes of a text that is one block, and not even an empty line more; undefined for any other text. */
export function readBlock(text: string): Buffer | undefined {
  const [whole, , body] = block.exec(text) ?? [];
  return whole === text ? decodeBody(body) : undefined;
}

function decodeBody(body = ''): Buffer | undefined {
  return decodeBase64(body.replace(/[ \t]/g, ''));
}
