import { isScalar, Lexer, LineCounter, parseAllDocuments, visit, type Document } from 'yaml';
import { withoutText } from '../oci/syntax.ts';

/**
 * The limits for parsing YAML or JSON. They limit the time too: 60,000 tokens take up to a second, and so do 4 Mi
 * characters in few tokens.
 */
export interface DocumentLimits {
  /** The length of the text in UTF-16 units. */
  readonly length: number;
  /** The number of tokens: brackets, keys, values, line breaks. */
  readonly tokens: number;
}

/** The most aliases. The parser looks for the anchor of each among all nodes. */
const aliasLimit = 1000;

/** The values of a text, and the number of its tokens. */
export interface Documents {
  readonly values: unknown[];
  readonly tokens: number;
}

/** A scalar of a document, and its place in the text. */
export interface DocumentScalar {
  readonly value: unknown;
  /** The value as it is written, without quotes. */
  readonly source: string | undefined;
  readonly line: number;
  /** The offsets of its first character, and after the last one. */
  readonly start: number;
  readonly end: number;
}

/**
 * Reads every document of an untrusted YAML or JSON text in bounded time and memory. Accepts duplicate keys, as
 * Kubernetes does, unless they must be unique. Throws RangeError above the limits, ReferenceError for aliases that
 * multiply or have no anchor, and SyntaxError, all without text of the document.
 */
export function readDocuments(text: string, limits: DocumentLimits, uniqueKeys = false): Documents {
  const { documents, tokens } = parse(text, limits, uniqueKeys);
  return { values: documents.map(makeValue), tokens };
}

/**
 * Reads one document with unique keys, as `readDocuments` does. The returned function finds the scalar at a path of
 * keys; undefined for another kind of value, and if there is none.
 */
export function readScalars(
  text: string,
  limits: DocumentLimits,
): (keys: readonly string[]) => DocumentScalar | undefined {
  const { documents, lines } = parse(text, limits, true);
  const [document] = documents;
  if (documents.length > 1) throw new SyntaxError('it has more than one document');
  return (keys) => {
    const node: unknown = document?.getIn(keys, true);
    if (!isScalar(node) || !node.range) return undefined;
    const [start, end] = node.range;
    return { value: node.value, source: node.source, line: lines.linePos(start).line, start, end };
  };
}

function parse(text: string, limits: DocumentLimits, uniqueKeys: boolean) {
  const tokens = countTokens(text, limits);
  const lines = new LineCounter();
  // The parser compares each key with all keys before it.
  const documents: Document.Parsed[] = [...parseAllDocuments(text, { uniqueKeys: false, lineCounter: lines })];
  for (const document of documents) {
    const [cause] = document.errors;
    if (cause) throw withoutText(cause);
    const repeated = uniqueKeys ? findRepeatedKey(document) : undefined;
    if (repeated !== undefined) throw new SyntaxError(`line ${lines.linePos(repeated).line} repeats a key`);
  }
  return { documents, tokens, lines };
}

/** Returns the offset of the first key that its map has already; undefined if there is none. */
function findRepeatedKey(document: Document.Parsed): number | undefined {
  let repeated: number | undefined;
  visit(document, {
    Map(_key, { items }) {
      const keys = new Set<unknown>();
      for (const { key } of items) {
        if (!isScalar(key)) continue;
        if (keys.has(key.value)) repeated = key.range?.[0] ?? 0;
        if (repeated !== undefined) return visit.BREAK;
        keys.add(key.value);
      }
      return undefined;
    },
  });
  return repeated;
}

function makeValue(document: Document.Parsed): unknown {
  try {
    return document.toJS() as unknown;
  } catch (error) {
    // The error quotes the name of an alias.
    throw error instanceof ReferenceError ? new ReferenceError('aliases lead nowhere or multiply') : error;
  }
}

/** The lexer works token by token, so a huge text takes no longer than the limit. */
function countTokens(text: string, limits: DocumentLimits): number {
  if (text.length > limits.length) throw new RangeError(`it has more than ${limits.length} characters`);
  let [count, aliases] = [0, 0];
  for (const token of new Lexer().lex(text)) {
    count += 1;
    if (token.startsWith('*')) aliases += 1;
    if (count > limits.tokens) throw new RangeError(`it has more than ${limits.tokens} YAML tokens`);
    if (aliases > aliasLimit) throw new RangeError(`it has more than ${aliasLimit} aliases`);
  }
  return count;
}
