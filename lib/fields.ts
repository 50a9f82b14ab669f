/** A mapping whose values nothing has checked. */
export type Fields = Readonly<Record<string, unknown>>;

/** Returns whether a value is a mapping: an object that is neither null nor an array. */
export function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns a value if it is a mapping, else an empty mapping. */
export function fieldsOf(value: unknown): Fields {
  return isFields(value) ? value : {};
}

/** Returns the mapping at a path of keys, such as `spec`, `desiredUpdate`; an empty mapping if there is none. */
export function fieldsAt(value: unknown, ...path: readonly string[]): Fields {
  return path.reduce((fields, key) => fieldsOf(fields[key]), fieldsOf(value));
}

/** Returns the mappings in a list; none for another value. */
export function listOf(value: unknown): Fields[] {
  return Array.isArray(value) ? value.filter(isFields) : [];
}

/** Returns the strings in a list; none for another value. */
export function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === 'string') : [];
}

/** Returns a string that is not empty; undefined for another value. */
export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Returns a mapping without its undefined values. */
export function withoutAbsent<Given extends object>(fields: Given): Partial<Given> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<Given>;
}
