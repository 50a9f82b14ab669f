import { evaluate } from '@marcbachmann/cel-js';
import { isJson, type Json } from './apiPatch.ts';

/** A field that violates the schema, and the reason. */
export interface SchemaCause {
  readonly field: string;
  readonly message: string;
}

/** An OpenAPI schema in a CustomResourceDefinition. */
export type ApiSchema = Readonly<Json>;

const preserved = 'x-kubernetes-preserve-unknown-fields';

/**
 * Returns a value in the form that the server stores: without fields that are not in the schema, and with defaults for
 * missing fields.
 */
export function shapeBySchema(schema: ApiSchema, value: unknown): unknown {
  if (Array.isArray(value) && isJson(schema['items'])) {
    const { items } = schema;
    return value.map((each) => shapeBySchema(items, each));
  }
  const { properties } = schema;
  if (!isJson(value) || !isJson(properties)) return value;
  const known = Object.entries(value).filter(([key]) => key in properties || schema[preserved] === true);
  const shaped = Object.fromEntries(known);
  for (const [key, property] of Object.entries(properties as Record<string, Json>)) {
    if (shaped[key] === undefined && 'default' in property) shaped[key] = structuredClone(property['default']);
    // The schema does not define the metadata of the object itself.
    if (shaped[key] !== undefined && key !== 'metadata') shaped[key] = shapeBySchema(property, shaped[key]);
  }
  return shaped;
}

/**
 * Yields the violations of a schema: types, bounds, patterns, required fields, keys of lists, and CEL rules. Rules with
 * `oldSelf` need an old value.
 */
export function* checkSchema(schema: ApiSchema, value: unknown, before: unknown, field = ''): Generator<SchemaCause> {
  const wrong = [...checkValue(schema, value, field)];
  yield* wrong;
  if (wrong.length > 0) return;
  const { properties = {}, items } = schema;
  if (isJson(value)) {
    for (const [key, property] of Object.entries(properties as Record<string, Json>)) {
      if (value[key] === undefined) continue;
      const old = isJson(before) ? before[key] : undefined;
      yield* checkSchema(property, value[key], old, field === '' ? key : `${field}.${key}`);
    }
  }
  if (Array.isArray(value) && isJson(items)) {
    const [listKey] = (schema['x-kubernetes-list-map-keys'] ?? []) as string[];
    for (const [index, item] of value.entries()) {
      const known: unknown[] = Array.isArray(before) && listKey !== undefined ? before : [];
      const old = known.find(hasKey(listKey ?? '', item));
      yield* checkSchema(items, item, old, `${field}[${index}]`);
      if (listKey !== undefined && value.findIndex(hasKey(listKey, item)) < index)
        yield { field: `${field}[${index}]`, message: `Duplicate value: ${JSON.stringify(item)}` };
    }
  }
  yield* checkRules(schema, value, before, field);
}

function* checkRules(schema: ApiSchema, self: unknown, oldSelf: unknown, field: string): Generator<SchemaCause> {
  for (const { rule, message } of (schema['x-kubernetes-validations'] ?? []) as { rule: string; message: string }[]) {
    if (/\boldSelf\b/.test(rule) && oldSelf === undefined) continue;
    if (evaluate(rule, { self, oldSelf }) !== true) yield { field, message: `Invalid value: ${message}` };
  }
}

function* checkValue(schema: ApiSchema, value: unknown, field: string): Generator<SchemaCause> {
  const cause = (message: string): SchemaCause => ({ field, message });
  const { type, enum: choices, pattern, required = [] } = schema;
  if (typeof type === 'string' && typeOf(value, type) !== type) {
    yield cause(`Invalid value: "${typeOf(value, type)}": must be of type ${type}`);
    return;
  }
  if (Array.isArray(choices) && !choices.includes(value)) {
    yield cause(`Unsupported value: ${JSON.stringify(value)}: supported values: ${JSON.stringify(choices)}`);
  }
  if (typeof pattern === 'string' && !new RegExp(pattern).test(String(value))) {
    yield cause(`Invalid value: ${JSON.stringify(value)}: should match '${pattern}'`);
  }
  const size = typeof value === 'number' ? value : ((value as { length?: number } | null)?.length ?? 0);
  for (const [name, isWrong] of Object.entries(bounds)) {
    const bound = schema[name];
    if (typeof bound === 'number' && isWrong(size, bound)) yield cause(`Invalid value: ${name} is ${bound}`);
  }
  for (const name of required as string[]) {
    if (isJson(value) && value[name] === undefined)
      yield { field: field === '' ? name : `${field}.${name}`, message: 'Required value' };
  }
}

const less = (size: number, bound: number): boolean => size < bound;
const more = (size: number, bound: number): boolean => size > bound;
const bounds = { minimum: less, minLength: less, minItems: less, maximum: more, maxLength: more, maxItems: more };

function typeOf(value: unknown, wanted: string): string {
  if (Array.isArray(value)) return 'array';
  if (value === null) return 'null';
  if (typeof value === 'number') return wanted === 'integer' && Number.isInteger(value) ? 'integer' : 'number';
  return typeof value;
}

function hasKey(key: string, item: unknown): (other: unknown) => boolean {
  return (other) => isJson(other) && isJson(item) && other[key] === item[key];
}
