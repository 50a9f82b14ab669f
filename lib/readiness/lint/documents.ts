import { readDocuments } from '../../content/files/documents.ts';
import { parseJson } from '../../content/oci/syntax.ts';
import { templateWord } from './image.ts';

/** How much YAML is still parsed. A YAML parser needs a second for 60,000 tokens. */
export interface Budget {
  tokens: number;
  /** The number of documents that were left out, because their kind runs nothing. */
  inert: number;
}

/** Of one document. The largest YAML of a release has 100,000 tokens; lists of whole clusters are better as JSON. */
const limits = { length: 16 * 1024 * 1024, tokens: 250_000 };

/** These run nothing, and are most of the bytes of a release. */
const inert =
  /^kind: *["']?(?:CustomResourceDefinition|(?:Cluster)?Role(?:Binding)?|PrometheusRule|ServiceMonitor|Namespace|Service|ServiceAccount|Console\w+|FlowSchema|NetworkPolicy|PriorityClass|SecurityContextConstraints|NetworkAttachmentDefinition)["']?\s*$/;

/**
 * Reads the documents of a YAML or JSON text that may be untrusted. Expressions of templates become one word. Documents of kinds that run nothing are left out. Throws RangeError and ReferenceError for a text above the
 * limits, and SyntaxError.
 */
export function readManifest(text: string, budget: Budget): unknown[] {
  if (text.length > limits.length) throw new RangeError(`it has more than ${limits.length} characters`);
  if (/^\s*[{[]/.test(text) && !text.includes('{{')) {
    try {
      return [parseJson(text)];
    } catch (error) {
      if (text.length > 1024 * 1024) throw error;
    }
  }
  const documents = text.split(/^---(?=\s|$)/m).filter((document) => /\S/.test(document));
  const read = documents.filter((document) => !isInert(document));
  budget.inert += documents.length - read.length;
  return read.flatMap((document) => readDocument(document, budget));
}

function readDocument(text: string, budget: Budget): unknown[] {
  // Some scripts have the like of a template in them, so the text itself is the last that is tried.
  const forms = new Set([fillTemplate(text), fillTemplate(text.replace(control, '')), text]);
  let failure: unknown;
  for (const form of forms) {
    try {
      return parse(form, budget);
    } catch (error) {
      if (error instanceof RangeError) throw error;
      failure ??= error;
    }
  }
  throw failure;
}

function parse(text: string, budget: Budget): unknown[] {
  const { values, tokens } = readDocuments(text, { ...limits, tokens: Math.min(limits.tokens, budget.tokens) });
  budget.tokens -= tokens;
  return values;
}

/** Expressions that stand for no value, even within a line. */
const control = /\{\{-? *(?:if|else|end|range|with|define|block|template)\b[^{}]*\}\}/g;

/** Lines with nothing but expressions control the template; elsewhere an expression stands for a value. */
function fillTemplate(text: string): string {
  return text
    .replace(/^[ \t]*(?:\{\{[^{}]*\}\}[ \t]*)+$|^[ \t]*\$\{\w+\}[ \t]*$/gm, '')
    .replace(/\{\{[^{}]*\}\}/g, templateWord);
}

function isInert(document: string): boolean {
  const kinds = document.match(/^["']?kind["']?:.*$/gm) ?? [];
  return kinds.length === 1 && inert.test(kinds[0]);
}
