import { parseAllDocuments } from 'yaml';
import { PluginError } from '../errors.ts';

/** A Kubernetes object as somebody else wrote it: nothing about it is certain. */
export type UnknownObject = Readonly<Record<string, unknown>>;

/**
 * Reads every object that `oc apply` would find in a YAML or JSON text: of all documents, and those inside of lists.
 * Throws `invalid-file`, naming `where`.
 */
export function readObjects(text: string, where: string): UnknownObject[] {
  const documents = parseAllDocuments(text, { uniqueKeys: false });
  const values = documents.flatMap((document) => {
    const [cause] = document.errors;
    if (cause) throw new PluginError('invalid-file', `${where} is neither YAML nor JSON`, { cause });
    return flatten(document.toJS());
  });
  return values
    .filter((value) => value !== null)
    .map((value) => (typeof value === 'object' ? value : {}) as UnknownObject);
}

function flatten(value: unknown): unknown[] {
  const items = (value as { items?: unknown } | null)?.items;
  return Array.isArray(items) ? items.flatMap(flatten) : [value];
}
