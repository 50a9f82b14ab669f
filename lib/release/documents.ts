import { Lexer, parseAllDocuments } from 'yaml';
import { withoutText } from '../content/oci/syntax.ts';

/** The limits for parsing YAML or JSON. A YAML parser takes a second for 60,000 tokens. */
export interface DocumentLimits {
  /** The length of the text in UTF-16 units. */
  readonly length: number;
  /** The number of tokens: brackets, keys, values, line breaks. */
  readonly tokens: number;
}

/** The values of a text, and the number of its tokens. */
export interface Documents {
  readonly values: unknown[];
  readonly tokens: number;
}

/**
 * Reads every document of an untrusted YAML or JSON text in bounded time and memory. Accepts duplicate keys, as
 * Kubernetes does, unless they must be unique. Throws RangeError above the limits, and the error of the parser.
 */
export function readDocuments(text: string, limits: DocumentLimits, uniqueKeys = false): Documents {
  const tokens = countTokens(text, limits);
  const values = parseAllDocuments(text, { uniqueKeys }).map((document): unknown => {
    const [cause] = document.errors;
    if (cause?.code === 'DUPLICATE_KEY') throw new SyntaxError(`line ${cause.linePos?.[0].line ?? 1} repeats a key`);
    if (cause) throw withoutText(cause);
    return makeValue(document);
  });
  return { values, tokens };
}

function makeValue(document: ReturnType<typeof parseAllDocuments>[number]): unknown {
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
  let count = 0;
  for (const _token of new Lexer().lex(text)) {
    count += 1;
    if (count > limits.tokens) throw new RangeError(`it has more than ${limits.tokens} YAML tokens`);
  }
  return count;
}
