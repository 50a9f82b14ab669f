import { isDeepStrictEqual } from 'node:util';
import { isItemKey, keyLists, unkeyLists } from './apiListMaps.ts';
import { isJson, type Json } from './apiPatch.ts';
import type { ApiSchema } from './apiSchema.ts';
import { Refusal } from './apiStatus.ts';

/**
 * The managers of fields of an object, in the form of `metadata.managedFields`. Lists without keys count as one field.
 */
interface ManagedFields {
  manager: string;
  operation: 'Apply' | 'Update';
  apiVersion: string;
  time: string;
  fieldsType: 'FieldsV1';
  fieldsV1: Json;
  subresource?: 'status';
}

/** The manager that writes, and the part of the object. */
export interface Author {
  readonly manager: string;
  readonly status?: boolean;
}

const unmanaged =
  /^(apiVersion|kind|metadata\.(name|namespace|uid|resourceVersion|generation|creationTimestamp|managedFields))$/;

type Leaf = readonly [path: readonly string[], value: unknown];

/** Yields every leaf of an object that a manager can own. */
function* leavesOf(value: unknown, path: readonly string[] = []): Generator<Leaf> {
  if (isJson(value) && (path.length === 0 || Object.keys(value).length > 0)) {
    for (const [key, below] of Object.entries(value)) {
      if (!unmanaged.test([...path, key].join('.'))) yield* leavesOf(below, [...path, key]);
    }
  } else yield [path, value];
}

const keyOf = (path: readonly string[]): string => JSON.stringify(path);

function toFields(paths: readonly (readonly string[])[]): Json {
  const root: Json = {};
  for (const path of paths) {
    let at = root;
    for (const part of path) at = (at[isItemKey(part) ? part : `f:${part}`] ??= {}) as Json;
  }
  return root;
}

function* fromFields(fields: Json, path: readonly string[] = []): Generator<readonly string[]> {
  const entries = Object.entries(fields);
  if (entries.length === 0 && path.length > 0) yield path;
  for (const [key, below] of entries) yield* fromFields(below as Json, [...path, isItemKey(key) ? key : key.slice(2)]);
}

function entriesOf(object: Json): ManagedFields[] {
  return ((object['metadata'] as Json)['managedFields'] as ManagedFields[] | undefined) ?? [];
}

function valueAt(object: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>((value, part) => (isJson(value) ? value[part] : undefined), object);
}

function entry(
  { manager, status }: Author,
  operation: 'Apply' | 'Update',
  object: Json,
  paths: readonly (readonly string[])[],
): ManagedFields {
  return {
    manager,
    operation,
    apiVersion: String(object['apiVersion']),
    time: new Date().toISOString().replace(/\.\d+/, ''),
    fieldsType: 'FieldsV1' as const,
    fieldsV1: toFields(paths),
    ...(status === true && { subresource: 'status' }),
  };
}

function isBy({ manager, status }: Author, operation: 'Apply' | 'Update'): (known: ManagedFields) => boolean {
  return (known) =>
    known.manager === manager &&
    known.operation === operation &&
    (known.subresource === 'status') === (status === true);
}

/** Records an ordinary write by a manager. It owns the changed fields from then on. */
export function noteUpdate(
  objectBefore: Json | undefined,
  object: Json,
  author: Author,
  schema: ApiSchema | undefined,
): void {
  const before = keyLists(schema, objectBefore) as Json | undefined;
  const after = keyLists(schema, object) as Json;
  const changed = [...leavesOf(after)].filter(([path, value]) => !isDeepStrictEqual(valueAt(before, path), value));
  const mine = entriesOf(before ?? after).find(isBy(author, 'Update'));
  const taken = new Set(changed.map(([path]) => keyOf(path)));
  const others = entriesOf(before ?? { metadata: {} })
    .filter((known) => known !== mine)
    .map((known) => without(known, (path) => taken.has(keyOf(path)) || valueAt(after, path) === undefined))
    .filter(({ fieldsV1 }) => Object.keys(fieldsV1).length > 0);
  const kept = [...fromFields(mine?.fieldsV1 ?? {})].filter((path) => valueAt(after, path) !== undefined);
  const paths = [...new Map([...kept, ...changed.map(([path]) => path)].map((path) => [keyOf(path), path])).values()];
  const metadata = object['metadata'] as Json;
  metadata['managedFields'] = paths.length > 0 ? [...others, entry(author, 'Update', after, paths)] : others;
}

function without(known: ManagedFields, drop: (path: readonly string[]) => boolean): ManagedFields {
  return { ...known, fieldsV1: toFields([...fromFields(known.fieldsV1)].filter((path) => !drop(path))) };
}

/**
 * Server-side apply: sets the stated fields, and removes fields that the same manager stated before and no other
 * manager owns. Refuses with 409 and `FieldManagerConflict` if another manager owns a field with another value, unless
 * forced.
 */
export function applyFields(
  objectBefore: Json,
  objectStated: Json,
  author: Author,
  force: boolean,
  schema: ApiSchema | undefined,
): Json {
  const before = keyLists(schema, objectBefore) as Json;
  const stated = keyLists(schema, objectStated) as Json;
  const mine = entriesOf(before).find(isBy(author, 'Apply'));
  const others = entriesOf(before).filter((known) => known !== mine);
  // An empty stated mapping removes no fields of other managers.
  const leaves = [...leavesOf(stated)].filter(([path, value]) => !isJson(value) || !hasFields(valueAt(before, path)));
  const conflicts = leaves.flatMap(([path, value]) => {
    if (isDeepStrictEqual(valueAt(before, path), value)) return [];
    return others
      .filter((known) => [...fromFields(known.fieldsV1)].some((owned) => overlaps(owned, path)))
      .map((known) => ({ known, path }));
  });
  if (conflicts.length > 0 && !force) throw conflict(conflicts);

  const after = structuredClone(before);
  const statedKeys = new Set(leaves.map(([path]) => keyOf(path)));
  for (const path of fromFields(mine?.fieldsV1 ?? {})) {
    const shared = others.some((known) =>
      [...fromFields(known.fieldsV1)].some((owned) => keyOf(owned) === keyOf(path)),
    );
    if (!statedKeys.has(keyOf(path)) && !shared) remove(after, path);
  }
  for (const [path, value] of leaves) set(after, path, value);
  const lost = new Set(conflicts.map(({ path }) => keyOf(path)));
  const remaining = others
    .map((known) => without(known, (path) => lost.has(keyOf(path))))
    .filter(({ fieldsV1 }) => Object.keys(fieldsV1).length > 0);
  const metadata = after['metadata'] as Json;
  metadata['managedFields'] = [
    ...remaining,
    entry(
      author,
      'Apply',
      after,
      leaves.map(([path]) => path),
    ),
  ];
  return unkeyLists(schema, after) as Json;
}

function hasFields(value: unknown): boolean {
  return isJson(value) && Object.keys(value).length > 0;
}

function overlaps(owned: readonly string[], path: readonly string[]): boolean {
  return owned.every((part, index) => path[index] === undefined || path[index] === part);
}

function conflict(conflicts: readonly { known: ManagedFields; path: readonly string[] }[]): Refusal {
  const causes = conflicts.map(({ known, path }) => ({
    reason: 'FieldManagerConflict',
    message: `conflict with "${known.manager}" using ${known.apiVersion}`,
    field: `.${path.join('.')}`,
  }));
  const lines = causes.map(({ message, field }) => `${message}: ${field}`);
  const count = `${lines.length} conflict${lines.length > 1 ? 's' : ''}`;
  return new Refusal(409, 'Conflict', `Apply failed with ${count}: ${lines.join('\n')}`, { causes });
}

function set(object: Json, path: readonly string[], value: unknown): void {
  let at = object;
  for (const part of path.slice(0, -1)) at = isJson(at[part]) ? at[part] : (at[part] = {});
  at[path.at(-1) ?? ''] = structuredClone(value);
}

function remove(object: Json, path: readonly string[]): void {
  const parent = valueAt(object, path.slice(0, -1));
  if (isJson(parent)) Reflect.deleteProperty(parent, path.at(-1) ?? '');
}
