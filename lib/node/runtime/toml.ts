import { parse, TomlError } from 'smol-toml';
import { PluginError } from '../../errors.ts';
import { listOf, textOf, type Fields } from '../../fields.ts';

/** The values of a TOML file by their keys: `storage.options.additionalimagestores`. */
export type TomlValues = ReadonlyMap<string, readonly unknown[]>;

/**
 * Reads a TOML file. A key of several tables with the same name has the values of all of them. Throws `invalid-file`
 * with the line number, but without the text, which may have passwords.
 */
export function readToml(text: string, where: string): TomlValues {
  const values = new Map<string, unknown[]>();
  const collect = (value: unknown, key: string): void => {
    if (Array.isArray(value) && value.some(isTable)) for (const each of value) collect(each, key);
    else if (isTable(value))
      for (const [name, each] of Object.entries(value)) collect(each, key === '' ? name : `${key}.${name}`);
    else values.set(key, [...(values.get(key) ?? []), ...(Array.isArray(value) ? (value as unknown[]) : [value])]);
  };
  collect(parseToml(text, where), '');
  return values;
}

/**
 * Reads the mirrors of each registry in a registries.conf, by its prefix or location, in the order in which to try them.
 * Throws as readToml.
 */
export function readRegistries(text: string, where: string): ReadonlyMap<string, readonly string[]> {
  return new Map(
    listOf(parseToml(text, where)['registry']).map(({ prefix, location, mirror }) => [
      textOf(prefix) || String(location),
      listOf(mirror).map((each) => String(each['location'])),
    ]),
  );
}

/** Returns the strings among the values of a key; undefined if the file does not set it. */
export function stringsOf(values: TomlValues, key: string): string[] | undefined {
  return values.get(key)?.filter((value) => typeof value === 'string');
}

function parseToml(text: string, where: string): Fields {
  try {
    return parse(text);
  } catch (cause) {
    if (!(cause instanceof TomlError)) throw cause;
    throw new PluginError('invalid-file', `${where} is not valid TOML: line ${cause.line}`);
  }
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);
}
