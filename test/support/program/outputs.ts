import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { callOf, commandNameOf, defaultName, defaultOf, type Program } from '../../../cmd/cli/command.ts';
import { isFields } from '../../../lib/fields.ts';
import { findFault, type Schema } from '../../../lib/schema.ts';
import { bundleSpec, bundleStatus } from '../../../lib/update/record/upgradeBundle.ts';

const file = fileURLToPath(new URL('../../golden/outputs.json', import.meta.url));

/** One field of an output. */
export interface Field {
  /** Names such as `string`, `object[]`, `date` (RFC 3339) and `manifest` (a Kubernetes object). */
  readonly types: readonly string[];
  /** Whether some outputs have the object of the field without the field. */
  readonly optional: boolean;
  readonly description: string;
  /** The format of its value, if the library states it. */
  readonly statement?: Schema | undefined;
}

/**
 * The fields of an output by their paths: `images[].name`, `components.*` for the values of a map, `[]` for the items
 * of an output that is a list.
 */
export type Fields = ReadonlyMap<string, Field>;

/** Commands that print a line with an object for each event. */
export const streams: readonly string[] = ['oc adm-upgrade-bundle watch', 'oc adm-upgrade-bundle status --watch'];

/** The paths of objects whose keys are data, such as names of components. */
const maps: readonly string[] = [
  'signatures',
  'base.images',
  'mirrors[].sizes',
  'versions',
  'provenance.versions',
  'provenance.sources',
];

/** The paths of objects with a format of their own. */
const opaque: readonly string[] = ['metadata', 'spec', 'status', 'predicate', 'report'];

/** The formats that the library states, by their paths in the outputs of `status`. */
const statements: ReadonlyMap<string, Schema> = new Map<string, Schema>([
  ['spec', bundleSpec],
  ['status', bundleStatus],
]);

/** Commands that print a list of objects in some cases, in place of one object. */
export const lists: readonly string[] = ['oc adm-release-mirror-config'];

/** Returns the fields of the JSON that each command prints, by the words that call the command and its action. */
export function readOutputs(): Map<string, Fields> {
  const calls = JSON.parse(readFileSync(file, 'utf8')) as Record<string, Record<string, string>>;
  return new Map(
    Object.entries(calls).map(([call, lines]) => {
      const stated = call.startsWith('oc adm-upgrade-bundle status') ? statements : new Map<string, Schema>();
      const fields = [...parseFields(lines)].map(
        ([path, field]) => [path, { ...field, statement: stated.get(path) }] as const,
      );
      return [call, new Map(fields)];
    }),
  );
}

/** Reads fields from lines such as `"size?": "number: The size in bytes"`, where `?` marks an optional field. */
export function parseFields(lines: Readonly<Record<string, string>>): Fields {
  return new Map(
    Object.entries(lines).map(([name, text]) => {
      const [, types = '', description = ''] = /^([^:]*)(?:: (.*))?$/.exec(text) ?? [];
      return [name.replace('?', ''), { types: types.split(' | '), optional: name.endsWith('?'), description }];
    }),
  );
}

/**
 * Expects the JSON that a command line printed to have the fields of test/golden/outputs.json. With UPDATE_GOLDEN in
 * the environment, adds new commands, fields and types to the file instead. Review it before the commit.
 */
export function expectOutput(program: Program, args: readonly string[], stdout: string): void {
  if (!/ (-o|--output|--format)[= ]?json( |$)/.test(` ${args.join(' ')}`) || stdout === '') return;
  const call = callFor(program, args);
  const outputs = readOutputs();
  for (const item of parse(call, stdout)) {
    const known = outputs.get(call);
    const printed = fieldsOf(item);
    for (const [path, { statement }] of known ?? []) {
      const value = isFields(item) ? item[path] : undefined;
      if (statement && value !== undefined) expect(findFault(statement, value), `${call}: ${path}`).to.equal(undefined);
    }
    if (process.env['UPDATE_GOLDEN']) outputs.set(call, known ? merge(known, printed) : printed);
    else
      expect(differences(known ?? new Map(), printed), `${call} differs from test/golden/outputs.json`).to.deep.equal(
        [],
      );
  }
  if (process.env['UPDATE_GOLDEN']) write(outputs);
}

function write(outputs: ReadonlyMap<string, Fields>): void {
  const calls = [...outputs].sort(([a], [b]) => (a < b ? -1 : 1)).map(([call, fields]) => [call, formatFields(fields)]);
  writeFileSync(file, `${JSON.stringify(Object.fromEntries(calls), null, 2)}\n`);
}

function formatFields(fields: Fields): Record<string, string> {
  return Object.fromEntries(
    [...fields].map(([path, { types, optional, description }]) => [
      optional ? `${path}?` : path,
      types.join(' | ') + (description === '' ? '' : `: ${description}`),
    ]),
  );
}

function callFor(program: Program, args: readonly string[]): string {
  const [named] = args.flatMap((arg) => program.commands.find((entry) => commandNameOf(entry) === arg) ?? []);
  const entry = named ?? defaultOf(program);
  expect(entry, args.join(' ')).not.to.equal(undefined);
  if (!entry) return defaultName;
  const action = /<(action|what)>/.test(entry.usage) ? [args[args.indexOf(commandNameOf(entry)) + 1]] : [];
  const call = callOf(program, entry);
  const forms = args.flatMap((arg) =>
    arg === '-w' ? '--watch' : (/^--(watch|sign-key|to-mirror|end|restore)\b/.exec(arg)?.[0] ?? []),
  );
  return [call, ...action, ...forms].join(' ');
}

/** Reads one document, or of a stream a document from each line. */
function parse(call: string, stdout: string): unknown[] {
  const texts = streams.includes(call) ? stdout.trimEnd().split('\n') : [stdout];
  const documents = texts.map((text) => JSON.parse(text) as unknown);
  return lists.includes(call) ? documents.flat() : documents;
}

/** Returns the fields of a value, without those within Kubernetes objects. */
export function fieldsOf(value: unknown, path = ''): Fields {
  if (Array.isArray(value)) {
    const items = value.map((item): Fields => new Map([...field(`${path}[]`, item), ...fieldsOf(item, `${path}[]`)]));
    const all = [...items.reduce<Fields>(merge, new Map())];
    return new Map(all.filter(([each]) => path === '' || each !== `${path}[]`));
  }
  if (typeof value !== 'object' || value === null || opaque.includes(path)) return new Map();
  if (path !== '' && isManifest(value)) return new Map();
  if (maps.includes(path)) {
    const items = Object.values(value).map(
      (item): Fields => new Map([...field(`${path}.*`, item), ...fieldsOf(item, `${path}.*`)]),
    );
    return items.reduce<Fields>(merge, new Map());
  }
  for (const name of Object.keys(value)) expect(name, `${path} may be a map`).to.match(/^_?[a-z][A-Za-z0-9]*$/);
  return new Map(
    Object.entries(value).flatMap(([name, item]) => {
      const inner = path === '' ? name : `${path}.${name}`;
      return [...field(inner, item), ...fieldsOf(item, inner)];
    }),
  );
}

function field(path: string, value: unknown): [string, Field][] {
  return [[path, { types: typesOf(value), optional: false, description: '' }]];
}

function typesOf(value: unknown): string[] {
  if (Array.isArray(value))
    return value.length === 0 ? ['[]'] : [...new Set(value.flatMap(typesOf))].map((type) => `${type}[]`);
  if (typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(value))
    return ['date'];
  if (value !== null && typeof value === 'object') return [isManifest(value) ? 'manifest' : 'object'];
  return [value === null ? 'null' : typeof value];
}

/** Returns whether a value is a Kubernetes object, and not only a reference to one. */
function isManifest(value: object): boolean {
  const { apiVersion, kind, metadata = {}, outcome: _, ...rest } = value as Record<string, unknown>;
  const { name: _name, namespace: _namespace, ...others } = metadata as Record<string, unknown>;
  return Boolean(apiVersion && kind) && Object.keys({ ...rest, ...others }).length > 0;
}

/** Returns the fields that are missing, new or of another type. An empty list has the type of any list. */
export function differences(known: Fields, printed: Fields): string[] {
  const missing = [...known].filter(([path, { optional }]) => {
    return !optional && (printed.get(path)?.optional ?? hasParent(printed, path));
  });
  const others = [...printed].filter(([path, { types }]) => {
    const allowed = known.get(path)?.types ?? [];
    return !types.every(
      (type) =>
        allowed.includes(type) ||
        (type === 'date' && allowed.includes('string')) ||
        (type === '[]' && allowed.some((each) => each.endsWith('[]'))),
    );
  });
  return [...missing.map(([path]) => path), ...others.map(([path, { types }]) => `${path}: ${types.join(' | ')}`)];
}

const parentPattern = /^(?:(.*?)((?:\[\])*)\.)?[^.]*$/;

/** Returns whether an output has the object that a field belongs to. */
function hasParent(fields: Fields, path: string): boolean {
  if (path === '[]' || path.endsWith('.*')) return false;
  const [, parent = '', lists = ''] = parentPattern.exec(path) ?? [];
  if (parent + lists === '') return true;
  return [
    fields.get(parent)?.types.includes(`object${lists}`),
    fields.get(parent + lists)?.types.includes('object'),
  ].includes(true);
}

function merge(known: Fields, printed: Fields): Fields {
  return new Map(
    mergePaths(known, printed).map((path) => {
      const [a, b] = [known.get(path), printed.get(path)];
      const all = new Set([...(a?.types ?? []), ...(b?.types ?? [])]);
      const types = [...all].filter((type) => {
        if (type === '[]') return all.size === 1 || ![...all].some((each) => each !== '[]' && each.endsWith('[]'));
        return type !== 'date' || !all.has('string');
      });
      const isMissing = (!a && hasParent(known, path)) || (!b && hasParent(printed, path));
      const optional = a?.optional === true || b?.optional === true || isMissing;
      return [path, { types: types.sort(), optional, description: a?.description ?? '' }];
    }),
  );
}

/** Puts new paths after those with the same parent. */
function mergePaths(known: Fields, printed: Fields): string[] {
  const paths = [...known.keys()];
  for (const path of printed.keys()) {
    if (known.has(path)) continue;
    const [, parent = '', lists = ''] = parentPattern.exec(path) ?? [];
    const after = paths.findLastIndex(
      (each) => parent === '' || each === parent || each.startsWith(`${parent}${lists}.`),
    );
    paths.splice(after + 1, 0, path);
  }
  return paths;
}
