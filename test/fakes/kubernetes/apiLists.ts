import { Readable } from 'node:stream';
import type { Answer } from '../http/faults.ts';
import { apiVersionOf, type ApiKind } from './apiKinds.ts';
import type { ApiObject, ApiObjects, Change } from './apiObjects.ts';
import { isJson } from './apiPatch.ts';
import { Refusal } from './apiStatus.ts';

/** What a list had when its first page was read, by the token of the next page. */
const snapshots = new WeakMap<ApiObjects, Map<string, readonly ApiObject[]>>();

/**
 * Returns a list: filtered by labels and fields, in pages with `limit` and `continue` (410 if the history of a page is
 * gone). All pages are of the revision of the first one.
 */
export function listObjects(objects: ApiObjects, kind: ApiKind, namespace: string, query: URLSearchParams): object {
  const token = query.get('continue');
  const { from, revision } = token
    ? (decode(token) as { from: number; revision: number })
    : { from: 0, revision: objects.revision };
  if (revision < objects.oldest) {
    throw new Refusal(
      410,
      'Expired',
      'The provided continue parameter is too old to display a consistent list result.',
    );
  }
  const kept = snapshots.get(objects) ?? new Map<string, readonly ApiObject[]>();
  snapshots.set(objects, kept);
  const matching = kept.get(token ?? '') ?? objects.list(kind, namespace, selector(query));
  const limit = Number(query.get('limit') ?? 0) || Infinity;
  const items = matching.slice(from, from + limit);
  const rest = matching.length - from - items.length;
  const next = rest > 0 ? encode({ from: from + items.length, revision, page: kept.size }) : '';
  if (next !== '') kept.set(next, matching);
  const metadata = {
    resourceVersion: String(revision),
    ...(next !== '' && { continue: next, remainingItemCount: rest }),
  };
  // As in a real list, the items have no kind.
  const bare = kind.custom ? items : items.map(({ apiVersion: _, kind: __, ...item }) => item);
  return { kind: `${kind.kind}List`, apiVersion: apiVersionOf(kind), metadata, items: bare };
}

/** Returns a list with the metadata of its objects only. */
export function omitContent(list: object): object {
  const { items, metadata } = list as { items: readonly ApiObject[]; metadata: object };
  const own = { apiVersion: 'meta.k8s.io/v1', kind: 'PartialObjectMetadata' };
  return {
    ...own,
    kind: `${own.kind}List`,
    metadata,
    items: items.map((each) => ({ ...own, metadata: each.metadata })),
  };
}

/**
 * Responds to a watch: one JSON object in each line, from a revision on (without one, existing objects come first),
 * without a limit or for `timeoutSeconds`. Sends bookmarks if requested: at the beginning, and after each change of
 * other objects.
 */
export function watchObjects(
  objects: ApiObjects,
  kind: ApiKind,
  namespace: string,
  query: URLSearchParams,
  present: (object: ApiObject) => object = (object) => object,
): Answer {
  const from = Number(query.get('resourceVersion') || 0);
  const headers = { 'content-type': 'application/json' };
  if (from > 0 && from < objects.oldest) {
    const expired = new Refusal(410, 'Expired', `too old resource version: ${from} (${objects.oldest})`);
    return { status: 200, headers, body: Buffer.from(line({ type: 'ERROR', object: expired.object })) };
  }
  const wanted = selector(query);
  /** Returns a change as this watch sees it: an object that begins or ceases to match is new or gone. */
  const noticed = ({ type, kind: other, object, before = object }: Change): WatchEvent | undefined => {
    const isOther = other.group !== kind.group || other.resource !== kind.resource;
    if (isOther || (namespace !== '' && object.metadata.namespace !== namespace)) return undefined;
    const [matched, matches] = [wanted(before), wanted(object)];
    if (!matches) return matched ? { type: 'DELETED', object: present(object) } : undefined;
    return { type: matched ? type : 'ADDED', object: present(object) };
  };
  const bookmark = (): string => {
    const metadata = { resourceVersion: String(objects.revision) };
    return line({ type: 'BOOKMARK', object: { apiVersion: apiVersionOf(kind), kind: kind.kind, metadata } });
  };
  const bookmarks = query.get('allowWatchBookmarks') === 'true';
  const open = (): Readable => {
    const stream = new Readable({ read: () => undefined });
    const existing = objects.list(kind, namespace, wanted);
    if (from === 0) for (const object of existing) stream.push(line({ type: 'ADDED', object: present(object) }));
    else
      for (const change of objects.history) {
        const event = change.revision > from ? noticed(change) : undefined;
        if (event) stream.push(line(event));
      }
    if (bookmarks) stream.push(bookmark());
    const tell = (change: Change): void => {
      const event = noticed(change);
      if (event) stream.push(line(event));
      else if (bookmarks) stream.push(bookmark());
    };
    objects.on('change', tell);
    const seconds = Number(query.get('timeoutSeconds') ?? 0);
    const timer = seconds > 0 ? setTimeout(() => stream.push(null), seconds * 1000) : undefined;
    return stream.once('close', () => {
      objects.off('change', tell);
      clearTimeout(timer);
    });
  };
  return { status: 200, headers, body: { size: Infinity, open } };
}

interface WatchEvent {
  readonly type: string;
  readonly object: object;
}

function line({ type, object }: WatchEvent): string {
  return `${JSON.stringify({ type, object })}\n`;
}

/**
 * Returns a predicate for `labelSelector` (=, ==, !=, in, notin, exists) and `fieldSelector` (any field; a real server
 * supports some fields of each kind).
 */
function selector(query: URLSearchParams): (object: ApiObject) => boolean {
  const labels = (query.get('labelSelector') ?? '').split(/,(?![^(]*\))/).filter((part) => part !== '');
  const fields = (query.get('fieldSelector') ?? '').split(',').filter((part) => part !== '');
  return (object) =>
    labels.every((part) => matchesLabel(part.trim(), (object.metadata['labels'] ?? {}) as Record<string, string>)) &&
    fields.every((part) => {
      const [, path = '', not, value = ''] = /^([^=!]+)(!)?==?(.*)$/.exec(part) ?? [];
      const actual = path.split('.').reduce<unknown>((at, part) => (isJson(at) ? at[part] : undefined), object);
      return ((actual ?? '') === value) === (not === undefined);
    });
}

function matchesLabel(part: string, labels: Readonly<Record<string, string>>): boolean {
  const [, setKey, setWord, list = ''] = /^(\S+)\s+(in|notin)\s+\((.*)\)$/.exec(part) ?? [];
  if (setKey !== undefined) {
    const found = list.split(',').some((value) => value.trim() === labels[setKey]);
    return found === (setWord === 'in');
  }
  const [, key = part, not, value] = /^([^=!]+)(!)?==?(.*)$/.exec(part) ?? [];
  if (value === undefined) return part.startsWith('!') ? !(part.slice(1) in labels) : part in labels;
  return (labels[key] === value) === (not === undefined);
}

function encode(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}

function decode(token: string): unknown {
  return JSON.parse(Buffer.from(token, 'base64url').toString());
}
