import { formatManifest } from '#config/manifest';
import { readSmallFile, readSmallInput, readDocuments } from '#content/files';
import { isPluginError, messageOf, PluginError } from '#errors';
import { isFields, type Fields } from '#fields';
import { camelCase, checkValue } from './arguments.ts';
import { namesOf, type Command, type ConfigFormat, type Option, type OptionRecord } from './command.ts';
import { imageSetKind, readImageSet, type ImageSetOptions } from './mirroring/imageSet.ts';
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

/** The values of a command line with those of a file, and what to warn of. */
export interface FiledValues {
  readonly values: Readonly<Record<string, unknown>>;
  readonly notes: readonly string[];
}

/**
 * Adds the options of a configuration file, or `-` for the standard input, that the command line does not have. Throws
 * the errors of readOptionFile, and `usage`.
 */
export async function addOptionFile(
  line: Readonly<Record<string, unknown>>,
  { options, config }: Pick<Command, 'options' | 'config'>,
  stdin: AsyncIterable<Buffer>,
): Promise<FiledValues> {
  const option = config && options[config.option];
  const path = config && line[config.option];
  if (!option || typeof path !== 'string') return { values: line, notes: [] };
  await checkValue(`--${config.option}`, option, path);
  const limit = limits.length;
  const bytes = path === '-' ? await readSmallInput(stdin, limit) : await readSmallFile(path, limit);
  const where = path === '-' ? 'the standard input' : path;
  const { values: fields, notes } = await readOptionFile(bytes.toString(), where, options, config);
  const { alternatives } = config;
  const isChosen = alternatives.some((name) => line[name] !== undefined);
  const isReplaced = (name: string): boolean =>
    line[name] !== undefined ||
    (isChosen &&
      (alternatives.includes(name) || options[name]?.needs?.every((each) => alternatives.includes(each)) === true));
  return { values: { ...line, ...Object.fromEntries([...fields].filter(([name]) => !isReplaced(name))) }, notes };
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
): Promise<ImageSetOptions> {
  const object = parseObject(text, path);
  if (isImageSet(object)) {
    const set = readImageSet(object, path, options);
    for (const [name, value] of set.values) await checkField(path, name, options[name], value);
    return set;
  }
  const spec = readSpec(object, path, format);
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
    if (values.has(name)) throw invalid(path, `spec.${field} is given twice, under two names`);
    await checkField(path, `spec.${field}`, option, value);
    values.set(name, value);
  }
  return { values, notes: [] };
}

/** Returns whether an object is a configuration of oc-mirror. Throws `unsupported` for one that deletes. */
function isImageSet({ apiVersion: version, kind }: Fields): boolean {
  if (typeof version !== 'string' || !version.startsWith(`${imageSetKind.group}/`)) return false;
  if (kind === imageSetKind.kind) return true;
  throw new PluginError('unsupported', `a ${String(kind)} of oc-mirror has no counterpart here`, {
    hint: 'To remove releases from a registry: oc adm-release-mirror-config prune.',
  });
}

/** Formats a configuration file with those arguments that differ from their defaults. */
export function formatOptionFile(
  args: Readonly<Record<string, unknown>>,
  options: OptionRecord,
  format: ConfigFormat & Required<Pick<ConfigFormat, 'kind' | 'name'>>,
): string {
  const fields = listConfigOptions(options, format).flatMap(([name, option]) => {
    const value = args[camelCase(name)];
    const isDefault = value === undefined || value === (option.default ?? false);
    return isDefault || (Array.isArray(value) && value.length === 0) ? [] : [[fieldOf(name, option), value] as const];
  });
  const object = { apiVersion, kind: format.kind, metadata: { name: format.name }, spec: Object.fromEntries(fields) };
  return formatManifest(object).trimEnd();
}

function parseObject(text: string, path: string): Fields {
  let values: unknown[];
  try {
    ({ values } = readDocuments(text, limits, true));
  } catch (cause) {
    throw invalid(path, messageOf(cause), cause);
  }
  const [object] = values;
  if (values.length !== 1 || !isFields(object)) throw invalid(path, 'it does not have exactly one object');
  return object;
}

function readSpec(object: Fields, path: string, { kind }: ConfigFormat): Fields {
  const validFields = ['apiVersion', 'kind', 'metadata', 'spec'];
  const unknown = Object.keys(object).find((field) => !validFields.includes(field));
  if (unknown !== undefined) throw unknownField(path, unknown, unknown, validFields);
  if (kind === undefined || object['apiVersion'] !== apiVersion || object['kind'] !== kind) {
    const own = kind === undefined ? '' : `apiVersion ${apiVersion} and kind ${kind}, or `;
    throw invalid(path, `it must have ${own}kind ${imageSetKind.kind} of oc-mirror`);
  }
  const spec = object['spec'] ?? {};
  if (!isFields(spec)) throw invalid(path, 'spec is not an object');
  return spec;
}

async function checkField(path: string, field: string, option: Option | undefined, value: unknown): Promise<void> {
  if (!option) throw invalid(path, `${field} is not an option of this command`);
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
