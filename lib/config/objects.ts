import { PluginError } from '../errors.ts';
import { readDocuments, type DocumentLimits, type Documents } from '../content/files/documents.ts';

/** A Kubernetes object that was not checked. */
export type UnknownObject = Readonly<Record<string, unknown>>;

/**
 * The limits of one configuration file. API servers store no larger object, and this program writes far fewer objects
 * into one file.
 */
const manifestLimits: DocumentLimits = { length: 1024 * 1024, tokens: 20_000 };

/** The limits of files of users or releases: a kubeconfig for hundreds of clusters, the definitions of a release. */
export const largeLimits: DocumentLimits = { length: 4 * 1024 * 1024, tokens: 60_000 };

/**
 * Reads every object in a YAML or JSON text, in all documents and lists, as `oc apply` does. Throws `invalid-file` with
 * `where`.
 */
export function readObjects(text: string, where: string, limits: DocumentLimits = manifestLimits): UnknownObject[] {
  return listObjects(text, where, limits).objects;
}

/** Does the same, and also returns the number of YAML tokens in the text. */
export function listObjects(
  text: string,
  where: string,
  limits: DocumentLimits = manifestLimits,
): { objects: UnknownObject[]; tokens: number } {
  const { values, tokens } = readValues(text, where, limits);
  const objects = values
    .filter((value) => value !== null)
    .map((value) => (typeof value === 'object' ? value : {}) as UnknownObject);
  return { objects, tokens };
}

function readValues(text: string, where: string, limits: DocumentLimits): Documents {
  try {
    const { values, tokens } = readDocuments(text, limits);
    return { values: values.flatMap(flatten), tokens };
  } catch (cause) {
    // Aliases that multiply and deep nesting are only detected when values are created from them.
    const odd = cause instanceof ReferenceError || cause instanceof RangeError;
    const what = odd ? 'has a size, aliases or nesting that no manifest needs' : 'is neither YAML nor JSON';
    throw new PluginError('invalid-file', `${where} ${what}`, { cause });
  }
}

function flatten(value: unknown): unknown[] {
  const items = (value as { items?: unknown } | null)?.items;
  return Array.isArray(items) ? items.flatMap(flatten) : [value];
}
