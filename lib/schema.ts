import { isFields, type Fields } from './fields.ts';

/** The type of the values that a schema accepts; it has no value. */
declare const type: unique symbol;

/** Limits of a value, and annotations for OpenAPI. Lengths are in characters. */
interface Limits<Value> {
  readonly description?: string;
  readonly default?: boolean | object;
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxItems?: number;
  readonly format?: 'date-time' | 'int64';
  readonly 'x-kubernetes-list-type'?: 'map' | 'set';
  readonly 'x-kubernetes-list-map-keys'?: readonly string[];
  readonly 'x-kubernetes-validations'?: readonly { readonly rule: string; readonly message: string }[];
  /** A condition that OpenAPI cannot state. Its schema is not for other programs. */
  where?(value: Value): boolean;
}

/** The statement of a format: a schema of OpenAPI v3. `Static` is its type, `matches` its test. */
export interface Schema<Value = unknown> extends Limits<Value> {
  readonly type: 'array' | 'boolean' | 'integer' | 'object' | 'string';
  readonly enum?: readonly unknown[];
  readonly nullable?: boolean;
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  /** The keys and values of a mapping. */
  readonly propertyNames?: Schema;
  readonly additionalProperties?: Schema;
  readonly [type]?: Value;
}

/** A field that may be absent. */
interface Optional<Value = unknown> {
  readonly optional: Schema<Value>;
}

type Properties = Readonly<Record<string, Schema | Optional>>;

/** The values that a schema accepts. */
export type Static<Stated> = Stated extends Schema<infer Value> ? Value : never;

type ObjectOf<Fields> = {
  readonly [Key in keyof Fields as Fields[Key] extends Schema ? Key : never]: Static<Fields[Key]>;
} & {
  readonly [Key in keyof Fields as Fields[Key] extends Optional ? Key : never]?: Fields[Key] extends Optional<
    infer Value
  >
    ? Value
    : never;
};

/** States a string. */
export function text<Value extends string = string>(limits?: Limits<Value>): Schema<Value> {
  return { type: 'string', ...limits };
}

/** States one of some strings, or of some numbers. */
export function choice<const Value extends string | number>(
  values: readonly Value[],
  limits?: Limits<Value>,
): Schema<Value> {
  return { type: typeof values[0] === 'string' ? 'string' : 'integer', enum: values, ...limits };
}

/** States a time as of RFC 3339. */
export function time(limits?: Limits<string>): Schema<string> {
  return { type: 'string', format: 'date-time', ...limits };
}

/** States an integer from 0 on. */
export function count(limits?: Limits<number>): Schema<number> {
  return { type: 'integer', format: 'int64', minimum: 0, ...limits };
}

/** States `true` or `false`. */
export function flag(limits?: Limits<boolean>): Schema<boolean> {
  return { type: 'boolean', ...limits };
}

/** States a list. */
export function list<Value>(items: Schema<Value>, limits?: Limits<readonly Value[]>): Schema<readonly Value[]> {
  return { type: 'array', items, ...limits };
}

/** States a mapping by the form of its keys and values. */
export function mapping<Key extends string, Value>(
  propertyNames: Schema<Key>,
  additionalProperties?: Schema<Value>,
): Schema<Readonly<string extends Key ? Record<Key, Value> : Partial<Record<Key, Value>>>> {
  return { type: 'object', propertyNames, additionalProperties };
}

/** States a mapping with these fields, in the order in which they are written. Other keys may have any value. */
export function object<const Stated extends Properties>(
  fields: Stated,
  limits?: Limits<ObjectOf<Stated>>,
): Schema<ObjectOf<Stated>> {
  const stated = Object.entries(fields);
  const required = stated.flatMap(([key, field]) => ('optional' in field ? [] : [key]));
  return {
    type: 'object',
    ...(required.length > 0 && { required }),
    properties: Object.fromEntries(stated.map(([key, field]) => [key, 'optional' in field ? field.optional : field])),
    ...limits,
  };
}

/** States that a field may be absent. */
export function optional<Value>(schema: Schema<Value>): Optional<Value> {
  return { optional: schema };
}

/** States that a value may be null instead. */
export function nullable<Value>(schema: Schema<Value>): Schema<Value | null> {
  return { ...schema, nullable: true };
}

/** Returns whether a value has the form that a schema states. */
export function matches<Value>(schema: Schema<Value>, value: unknown): value is Value {
  return findFault(schema, value) === undefined;
}

/**
 * Returns the stated fields of a value from elsewhere, without others, so that these go nowhere; undefined if it has
 * another form.
 */
export function readStated<Value>(schema: Schema<Value>, value: unknown): Value | undefined {
  return matches(schema, value) ? (keepStated(schema, value) as Value) : undefined;
}

function keepStated({ properties, items, additionalProperties }: Schema, value: unknown): unknown {
  if (Array.isArray(value)) return items ? value.map((each) => keepStated(items, each)) : value;
  if (!isFields(value)) return value;
  const kept = Object.entries(value).flatMap(([key, inner]) => {
    const stated = properties ? Object.hasOwn(properties, key) && properties[key] : additionalProperties;
    return stated ? [[key, keepStated(stated, inner)]] : properties ? [] : [[key, inner]];
  });
  return Object.fromEntries(kept);
}

/** Returns the keys that lead to the first value in another form than a schema states; undefined if there is none. */
export function findFault(schema: Schema, value: unknown): readonly string[] | undefined {
  if (value === null && schema.nullable) return undefined;
  if (!hasType(schema, value)) return [];
  const inner = Array.isArray(value)
    ? findInList(schema, value)
    : isFields(value)
      ? findInFields(schema, value)
      : undefined;
  return inner ?? (schema.where?.(value) === false ? [] : undefined);
}

function findInList({ items }: Schema, values: readonly unknown[]): readonly string[] | undefined {
  if (!items) return undefined;
  for (let index = 0; index < values.length; index++) {
    const fault = findFault(items, values[index]);
    if (fault) return [String(index), ...fault];
  }
  return undefined;
}

function findInFields(schema: Schema, fields: Fields): readonly string[] | undefined {
  const { properties = {}, required = [], propertyNames, additionalProperties } = schema;
  for (const key of Object.keys(properties)) {
    const value = Object.hasOwn(fields, key) ? fields[key] : undefined;
    const stated = value !== undefined || required.includes(key) ? properties[key] : undefined;
    const fault = stated && findFault(stated, value);
    if (fault) return [key, ...fault];
  }
  if (!propertyNames) return undefined;
  for (const [key, value] of Object.entries(fields)) {
    const fault = findFault(propertyNames, key) ?? (additionalProperties && findFault(additionalProperties, value));
    if (fault) return [key, ...fault];
  }
  return undefined;
}

function hasType(schema: Schema, value: unknown): boolean {
  if (schema.enum) return schema.enum.includes(value);
  switch (schema.type) {
    case 'array':
      return Array.isArray(value) && value.length <= (schema.maxItems ?? Infinity);
    case 'object':
      return isFields(value);
    case 'string':
      return typeof value === 'string' && isTextOf(schema, value);
    case 'boolean':
      return typeof value === 'boolean';
    case 'integer':
      return (
        Number.isSafeInteger(value) &&
        Number(value) >= (schema.minimum ?? -Infinity) &&
        Number(value) <= (schema.maximum ?? Infinity)
      );
  }
}

function isTextOf({ pattern, minLength = 0, maxLength = Infinity, format }: Schema, value: string): boolean {
  // A length counts characters, not code units.
  const length = minLength > 0 || value.length > maxLength ? Array.from(value).length : value.length;
  if (length < minLength || length > maxLength) return false;
  if (format === 'date-time' && Number.isNaN(Date.parse(value))) return false;
  return pattern === undefined || expressionOf(pattern).test(value);
}

const expressions = new Map<string, RegExp>();

/** Returns the compiled form of a pattern. Lists of a bundle have thousands of digests. */
function expressionOf(pattern: string): RegExp {
  const expression = expressions.get(pattern) ?? new RegExp(pattern, 'u');
  expressions.set(pattern, expression);
  return expression;
}
