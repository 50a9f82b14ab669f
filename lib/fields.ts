/** A mapping whose values nothing has checked. */
export type Fields = Readonly<Record<string, unknown>>;

/** Returns whether a value is a mapping. */
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

/** A test of a value that nothing has checked. */
export type Test = (value: unknown) => boolean;

/** Tells whether a value is a string. */
export const isText: Test = (value) => typeof value === 'string';
/** Tells whether a value is `true` or `false`. */
export const isFlag: Test = (value) => typeof value === 'boolean';
/** Tells whether a value is an integer from 0 on. */
export const isCount: Test = (value) => Number.isSafeInteger(value) && Number(value) >= 0;

/** Returns a test that also accepts a missing value. */
export function optional(test: Test): Test {
  return (value) => value === undefined || test(value);
}

/** Returns a test for a list whose values all pass a test. */
export function listWith(test: Test): Test {
  return (value) => Array.isArray(value) && value.every(test);
}

/** Returns a test for a mapping whose values at some keys pass their tests. Other keys may have any value. */
export function fieldsWith(tests: Readonly<Record<string, Test>>): Test {
  return (value) => isFields(value) && Object.entries(tests).every(([key, test]) => test(value[key]));
}
