import { formatManifest } from '../../lib/config/manifest.ts';
import { isPluginError, messageOf, PluginError } from '../../lib/errors.ts';
import { isFields, type Fields } from '../../lib/fields.ts';
import { readSmallFile, readSmallInput } from '../../lib/content/files/smallFile.ts';
import { readDocuments } from '../../lib/content/files/documents.ts';
import { camelCase, checkValue } from './arguments.ts';
import { namesOf, type Command, type ConfigFormat, type Option, type OptionRecord } from './command.ts';
import { findSimilar } from './similar.ts';

const apiVersion = 'upgrade-bundle.openshift.io/v1alpha1';
const limits = { length: 1024 * 1024, tokens: 100_000 };

/**
 * Returns the name of an option in a configuration file: `pullSecret`, and in the plural if the option may be repeated:
 * `operators`.
 */
export function fieldOf(name: string, { repeatable }: Option): string {
  return repeatable ? `${camelCase(name)}s` : camelCase(name);
}

/** Returns the options that a configuration file can have. */
export function listConfigOptions(options: OptionRecord, { option, without }: ConfigFormat): [string, Option][] {
  return Object.entries(options).filter(([name]) => name !== option && !without.includes(name));
}

/**
 * Adds the options of a configuration file, or `-` for the standard input, that the command line does not have. Throws the errors of readOptionFile,
 * and `usage`.
 */
export async function addOptionFile(
  line: Readonly<Record<string, unknown>>,
  { options, config }: Pick<Command, 'options' | 'config'>,
  stdin: AsyncIterable<Buffer>,
): Promise<Readonly<Record<string, unknown>>> {
  const option = config && options[config.option];
  const path = config && line[config.option];
  if (!option || typeof path !== 'string') return line;
  await checkValue(`--${config.option}`, option, path);
  const limit = limits.length;
  const bytes = path === '-' ? await readSmallInput(stdin, limit) : await readSmallFile(path, limit);
  const where = path === '-' ? 'the standard input' : path;
  const fields = await readOptionFile(bytes.toString(), where, options, config);
  const { alternatives } = config;
  const isChosen = alternatives.some((name) => line[name] !== undefined);
  const used = [...fields].filter(([name]) => line[name] === undefined && !(isChosen && alternatives.includes(name)));
  return { ...line, ...Object.fromEntries(used) };
}

/**
 * Reads the options in a configuration file, by their names. Throws `invalid-file` for another format, an unknown field
 * and an invalid value. `path` is for messages.
 */
async function readOptionFile(
  text: string,
  path: string,
  options: OptionRecord,
  format: ConfigFormat,
): Promise<Map<string, unknown>> {
  const spec = parseSpec(text, path, format);
  const fields = new Map(
    listConfigOptions(options, format).flatMap(([name, option]) =>
      namesOf([name, option]).flatMap((each) => (each.length > 1 ? [[fieldOf(each, option), name] as const] : [])),
    ),
  );
  const values = new Map<string, unknown>();
  for (const [field, value] of Object.entries(spec)) {
    const name = fields.get(field);
    const option = name === undefined ? undefined : options[name];
    if (name === undefined || !option) throw unknownField(path, `spec.${field}`, field, [...fields.keys()]);
    if (values.has(name)) throw invalid(path, `spec.${field} is there by another name too`);
    await checkField(path, `spec.${field}`, option, value);
    values.set(name, value);
  }
  return values;
}

/** Formats a configuration file with those arguments that differ from their defaults. */
export function formatOptionFile(
  args: Readonly<Record<string, unknown>>,
  options: OptionRecord,
  format: ConfigFormat,
): string {
  const fields = listConfigOptions(options, format).flatMap(([name, option]) => {
    const value = args[camelCase(name)];
    const isDefault = value === undefined || value === (option.default ?? false);
    return isDefault || (Array.isArray(value) && value.length === 0) ? [] : [[fieldOf(name, option), value] as const];
  });
  const object = { apiVersion, kind: format.kind, metadata: { name: format.name }, spec: Object.fromEntries(fields) };
  return formatManifest(object).trimEnd();
}

function parseSpec(text: string, path: string, { kind }: ConfigFormat): Fields {
  let values: unknown[];
  try {
    ({ values } = readDocuments(text, limits, true));
  } catch (cause) {
    throw invalid(path, messageOf(cause), cause);
  }
  const [object] = values;
  if (values.length !== 1 || !isFields(object)) throw invalid(path, 'it does not have exactly one object');
  const validFields = ['apiVersion', 'kind', 'metadata', 'spec'];
  const unknown = Object.keys(object).find((field) => !validFields.includes(field));
  if (unknown !== undefined) throw unknownField(path, unknown, unknown, validFields);
  if (object['apiVersion'] !== apiVersion || object['kind'] !== kind) {
    throw invalid(path, `it must have apiVersion ${apiVersion} and kind ${kind}`);
  }
  const spec = object['spec'] ?? {};
  if (!isFields(spec)) throw invalid(path, 'spec is not an object');
  return spec;
}

async function checkField(path: string, field: string, option: Option, value: unknown): Promise<void> {
  const { type, repeatable } = option;
  const name = `${path}: ${field}`;
  if (repeatable && !Array.isArray(value)) throw invalid(path, `${field} must be a list`);
  for (const each of repeatable ? (value as unknown[]) : [value]) {
    if (typeof each !== type) {
      const isScalar = type === 'string' && ['number', 'boolean'].includes(typeof each);
      const hint = isScalar ? 'Put the value in quotes, because YAML reads it as something else.' : undefined;
      const noun = { string: 'text', number: 'a number', boolean: 'true or false' }[type];
      throw new PluginError('invalid-file', `${name} must be ${noun}`, { hint });
    }
    try {
      await checkValue(name, option, each);
    } catch (error) {
      if (!isPluginError(error, 'usage')) throw error;
      throw new PluginError('invalid-file', error.lines, { hint: error.hint, cause: error.cause });
    }
  }
}

function unknownField(path: string, where: string, field: string, validFields: readonly string[]): PluginError {
  const similar = findSimilar(field, validFields);
  return new PluginError('invalid-file', `${path} has an unknown field ${where}`, {
    hint: similar === undefined ? `It can have ${validFields.join(', ')}.` : `Did you mean ${similar}?`,
  });
}

function invalid(path: string, why: string, cause?: unknown): PluginError {
  return new PluginError('invalid-file', `${path}: ${why}`, { cause });
}
