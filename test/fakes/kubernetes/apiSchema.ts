import { evaluate } from '@marcbachmann/cel-js';
import { isJson, type Json } from './apiPatch.ts';
import { Refusal } from './apiStatus.ts';

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
 * Throws 500 for what server-side apply cannot read: a field that is not in the schema, or an item with the same key
 * twice.
 */
export function checkDeclared(schema: ApiSchema, { apiVersion: _, kind: __, metadata: ___, ...content }: Json): void {
  for (const { field, message } of eachLevel(schema, content, undefined, '', undeclared))
    throw new Refusal(500, 'InternalError', `failed to create typed patch object: .${field}: ${message}`);
}

function* undeclared(schema: ApiSchema, value: unknown, _before: unknown, field: string): Generator<SchemaCause> {
  const { properties } = schema;
  if (isJson(value) && isJson(properties) && schema[preserved] !== true)
    for (const key of Object.keys(value))
      if (!(key in properties))
        yield { field: field === '' ? key : `${field}.${key}`, message: 'field not declared in schema' };
  if (Array.isArray(value) && 'x-kubernetes-list-map-keys' in schema)
    for (const { field: item } of duplicatesIn(schema, value, field))
      yield { field: item, message: 'duplicate entries for key' };
}

/**
 * Yields the violations of a schema: types, bounds, patterns, required fields, keys of lists, and CEL rules. Rules with
 * `oldSelf` need an old value. As in a real server, no rule is evaluated if a type, a size or a choice is wrong.
 */
export function* checkSchema(schema: ApiSchema, value: unknown, before: unknown): Generator<SchemaCause> {
  const wrong = [...eachLevel(schema, value, undefined, '', checkLevel)];
  yield* wrong;
  const rules = eachLevel(schema, value, before, '', checkRules);
  if (!wrong.some(({ message }) => blocking.test(message))) yield* rules;
  else if (JSON.stringify(schema).includes('"x-kubernetes-validations"'))
    yield {
      field: '<nil>',
      message:
        'Invalid value: null: some validation rules were not checked because the object was invalid; correct the ' +
        'existing errors to complete validation',
    };
}

/** The causes after which a server evaluates no rules. */
const blocking = /^(Required value|Unsupported value|Too long|Too many)|must be of type/;

type CheckOfLevel = (schema: ApiSchema, value: unknown, before: unknown, field: string) => Iterable<SchemaCause>;

/** Checks a value, and all values in it. */
function* eachLevel(
  schema: ApiSchema,
  value: unknown,
  before: unknown,
  field: string,
  check: CheckOfLevel,
): Generator<SchemaCause> {
  yield* check(schema, value, before, field);
  const { properties = {}, items } = schema;
  if (isJson(value)) {
    for (const [key, property] of Object.entries(properties as Record<string, Json>)) {
      if (value[key] === undefined) continue;
      const old = isJson(before) ? before[key] : undefined;
      yield* eachLevel(property, value[key], old, field === '' ? key : `${field}.${key}`, check);
    }
  }
  if (!Array.isArray(value) || !isJson(items)) return;
  const [listKey] = (schema['x-kubernetes-list-map-keys'] ?? []) as string[];
  for (const [index, item] of value.entries()) {
    const known: unknown[] = Array.isArray(before) && listKey !== undefined ? before : [];
    yield* eachLevel(items, item, known.find(hasKey(listKey ?? '', item)), `${field}[${index}]`, check);
  }
}

function* checkRules(schema: ApiSchema, value: unknown, before: unknown, field: string): Generator<SchemaCause> {
  const [self, oldSelf] = [toCel(schema, value), before === undefined ? undefined : toCel(schema, before)];
  for (const { rule, message } of (schema['x-kubernetes-validations'] ?? []) as { rule: string; message: string }[]) {
    if (/\boldSelf\b/.test(rule) && oldSelf === undefined) continue;
    try {
      if (evaluate(rule, { self, oldSelf }) !== true) yield { field, message: `Invalid value: ${message}` };
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      yield { field, message: `Invalid value: "${typeof value}": ${why} evaluating rule: ${message}` };
    }
  }
}

/** Returns a value as rules see it: CEL has integers, JSON has only numbers. */
function toCel(schema: ApiSchema, value: unknown): unknown {
  const { type, items, properties } = schema;
  if (type === 'integer' && Number.isInteger(value)) return BigInt(value as number);
  if (Array.isArray(value)) return isJson(items) ? value.map((each) => toCel(items, each)) : value;
  if (!isJson(value) || !isJson(properties)) return value;
  const typed = Object.entries(value).map(([key, each]) => {
    const property = properties[key];
    return [key, isJson(property) ? toCel(property, each) : each] as const;
  });
  return Object.fromEntries(typed);
}

function* checkLevel(schema: ApiSchema, value: unknown, _before: unknown, field: string): Generator<SchemaCause> {
  const cause = (message: string): SchemaCause => ({ field, message });
  const { type, enum: choices, pattern, required = [] } = schema;
  if (typeof type === 'string' && typeOf(value, type) !== type) {
    const actual = typeOf(value, type);
    yield cause(`Invalid value: "${actual}": ${field} in body must be of type ${type}: "${actual}"`);
    return;
  }
  if (Array.isArray(choices) && !choices.includes(value)) {
    const supported = choices.map((choice) => JSON.stringify(choice)).join(', ');
    yield cause(`Unsupported value: ${JSON.stringify(value)}: supported values: ${supported}`);
  }
  if (typeof pattern === 'string' && !new RegExp(pattern).test(String(value))) {
    yield cause(`Invalid value: ${JSON.stringify(value)}: ${field} in body should match '${pattern}'`);
  }
  const size = typeof value === 'number' ? value : ((value as { length?: number } | null)?.length ?? 0);
  for (const [name, isWrong, describe] of bounds) {
    const bound = schema[name];
    if (typeof bound === 'number' && isWrong(size, bound)) yield cause(describe(bound, size, field));
  }
  for (const name of required as string[]) {
    if (isJson(value) && value[name] === undefined)
      yield { field: field === '' ? name : `${field}.${name}`, message: 'Required value' };
  }
  if (Array.isArray(value)) yield* duplicatesIn(schema, value, field);
}

function* duplicatesIn(schema: ApiSchema, list: readonly unknown[], field: string): Generator<SchemaCause> {
  const [listKey] = (schema['x-kubernetes-list-map-keys'] ?? []) as string[];
  if (listKey === undefined && schema['x-kubernetes-list-type'] !== 'set') return;
  for (const [index, item] of list.entries()) {
    const isSame = listKey === undefined ? (other: unknown) => other === item : hasKey(listKey, item);
    if (list.findIndex(isSame) < index)
      yield { field: `${field}[${index}]`, message: `Duplicate value: ${JSON.stringify(item)}` };
  }
}

const less = (size: number, bound: number): boolean => size < bound;
const more = (size: number, bound: number): boolean => size > bound;
type Describe = (bound: number, size: number, field: string) => string;
const bounds: readonly (readonly [keyword: string, isWrong: typeof less, describe: Describe])[] = [
  [
    'minimum',
    less,
    (bound, size, field) => `Invalid value: ${size}: ${field} in body should be greater than or equal to ${bound}`,
  ],
  [
    'maximum',
    more,
    (bound, size, field) => `Invalid value: ${size}: ${field} in body should be less than or equal to ${bound}`,
  ],
  [
    'minLength',
    less,
    (bound, _, field) => `Invalid value: "": ${field} in body should be at least ${bound} chars long`,
  ],
  [
    'minItems',
    less,
    (bound, size, field) => `Invalid value: ${size}: ${field} in body should have at least ${bound} items`,
  ],
  ['maxLength', more, (bound) => `Too long: may not be more than ${bound} bytes`],
  ['maxItems', more, (bound, size) => `Too many: ${size}: must have at most ${bound} items`],
];

function typeOf(value: unknown, wanted: string): string {
  if (Array.isArray(value)) return 'array';
  if (value === null) return 'null';
  if (typeof value === 'number') return wanted === 'integer' && Number.isInteger(value) ? 'integer' : 'number';
  return typeof value;
}

function hasKey(key: string, item: unknown): (other: unknown) => boolean {
  return (other) => isJson(other) && isJson(item) && other[key] === item[key];
}
