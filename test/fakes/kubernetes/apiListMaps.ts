import { isJson, type Json } from './apiPatch.ts';
import type { ApiSchema } from './apiSchema.ts';

/** `k:{"name":"a"}`: the name of an item in a keyed list, for field ownership. */
const prefix = 'k:';

/** Returns whether a part of a path is the key of an item, and not the name of a field. */
export function isItemKey(part: string): boolean {
  return part.startsWith(prefix);
}

/** Converts each list that its schema calls a map to an object: its items by their keys, in their order. */
export function keyLists(schema: ApiSchema | undefined, value: unknown): unknown {
  return convert(schema, value, (list, keys) => {
    if (!Array.isArray(list)) return list;
    return Object.fromEntries((list as Json[]).map((item) => [keyOf(item, keys), item]));
  });
}

/** Converts the result of keyLists back. Empty items are removed. */
export function unkeyLists(schema: ApiSchema | undefined, value: unknown): unknown {
  return convert(schema, value, (items) => {
    if (!isJson(items)) return items;
    return Object.values(items).filter((item) => isJson(item) && Object.keys(item).length > 0);
  });
}

function convert(
  schema: ApiSchema | undefined,
  value: unknown,
  convertList: (list: unknown, keys: readonly string[]) => unknown,
): unknown {
  const keys = schema?.['x-kubernetes-list-map-keys'];
  if (Array.isArray(keys)) return convertList(value, keys as string[]);
  const properties = schema?.['properties'];
  if (!isJson(value) || !isJson(properties)) return value;
  const entries = Object.entries(value).map(([key, each]): [string, unknown] => {
    const property = properties[key];
    return [key, isJson(property) ? convert(property, each, convertList) : each];
  });
  return Object.fromEntries(entries);
}

function keyOf(item: Json, keys: readonly string[]): string {
  return prefix + JSON.stringify(Object.fromEntries(keys.map((key) => [key, item[key]])));
}
