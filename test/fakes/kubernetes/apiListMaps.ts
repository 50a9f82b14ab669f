import { isJson, type Json } from './apiPatch.ts';
import type { ApiSchema } from './apiSchema.ts';

/** `k:{"name":"a"}`: how field ownership names an item of a list that has keys. */
const prefix = 'k:';

/** Whether a part of a path is the key of an item, and not the name of a field. */
export function isItemKey(part: string): boolean {
  return part.startsWith(prefix);
}

/** A value with each list that its schema calls a map as an object: its items by their keys, in their order. */
export function keyLists(schema: ApiSchema | undefined, value: unknown): unknown {
  return convert(schema, value, (list, keys) => {
    if (!Array.isArray(list)) return list;
    return Object.fromEntries((list as Json[]).map((item) => [keyOf(item, keys), item]));
  });
}

/** What keyLists was given. Items of which nothing is left are gone. */
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
