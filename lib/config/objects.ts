import { parseAllDocuments } from 'yaml';
import { PluginError } from '../errors.ts';

/** A Kubernetes object as somebody else wrote it: nothing about it is certain. */
export type UnknownObject = Readonly<Record<string, unknown>>;

/**
 * Reads every object that `oc apply` would find in a YAML or JSON text: of all documents, and those inside of lists.
 * Throws `invalid-file`, naming `where`.
 */
export function readObjects(text: string, where: string): UnknownObject[] {
  const values = readDocuments(text, where);
  return values
    .filter((value) => value !== null)
    .map((value) => (typeof value === 'object' ? value : {}) as UnknownObject);
}

function readDocuments(text: string, where: string): unknown[] {
  try {
    return parseAllDocuments(text, { uniqueKeys: false }).flatMap((document) => {
      const [cause] = document.errors;
      if (cause) throw cause;
      return flatten(document.toJS());
    });
  } catch (cause) {
    // Aliases that multiply and brackets nested without end come to light only when values are made of them.
    const odd = cause instanceof ReferenceError || cause instanceof RangeError;
    const what = odd ? 'has aliases or nesting that no manifest needs' : 'is neither YAML nor JSON';
    throw new PluginError('invalid-file', `${where} ${what}`, { cause });
  }
}

function flatten(value: unknown): unknown[] {
  const items = (value as { items?: unknown } | null)?.items;
  return Array.isArray(items) ? items.flatMap(flatten) : [value];
}
