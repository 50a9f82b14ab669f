import { isDeepStrictEqual } from 'node:util';
import { Refusal } from './apiStatus.ts';

/** JSON of an object. */
export type Json = Record<string, unknown>;

/** Returns whether a value is a JSON object. */
export function isJson(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Applies a JSON merge patch (RFC 7386), in which null removes. Also used for strategic merges, for kinds without
 * merged lists.
 */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isJson(patch)) return patch;
  const result: Json = isJson(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) Reflect.deleteProperty(result, key);
    else result[key] = mergePatch(result[key], value);
  }
  return result;
}

/** Applies a JSON patch (RFC 6902) with add, replace, remove and test. */
export function jsonPatch(target: Json, operations: readonly { op: string; path: string; value?: unknown }[]): Json {
  const result = structuredClone(target);
  for (const { op, path, value } of operations) {
    const parts = path
      .split('/')
      .slice(1)
      .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
    const last = parts.pop() ?? '';
    let parent: unknown = result;
    for (const part of parts) parent = (parent as Json | undefined)?.[part];
    if (typeof parent !== 'object' || parent === null)
      throw new Refusal(422, 'Invalid', `the path ${path} does not exist`);
    operate(parent as Json, last, op, value, path);
  }
  return result;
}

function operate(parent: Json | unknown[], key: string, op: string, value: unknown, path: string): void {
  const fields = parent as Json;
  if (op === 'test') {
    if (!isDeepStrictEqual(fields[key], value)) throw new Refusal(422, 'Invalid', `the test of ${path} failed`);
  } else if (op === 'remove' || op === 'replace') {
    if (!(key in fields)) throw new Refusal(422, 'Invalid', `the path ${path} does not exist`);
    if (op === 'replace') fields[key] = value;
    else if (Array.isArray(parent)) parent.splice(Number(key), 1);
    else Reflect.deleteProperty(fields, key);
  } else if (op === 'add') {
    if (Array.isArray(parent)) parent.splice(key === '-' ? parent.length : Number(key), 0, value);
    else fields[key] = value;
  } else throw new Refusal(400, 'BadRequest', `${op} is not an operation of a JSON patch`);
}
