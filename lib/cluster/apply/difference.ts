import { isDeepStrictEqual } from 'node:util';
import type { KubernetesObject } from '#config/manifest';
import { isFields, withoutAbsent, type Fields } from '#fields';
import type { StoredObject } from '../objects/storedObject.ts';

type Path = readonly (string | number)[];

/** Fields that the server sets. In a manifest, they belong to an earlier object. */
const serverFields = new Set([
  'creationTimestamp',
  'deletionTimestamp',
  'generation',
  'managedFields',
  'resourceVersion',
  'selfLink',
  'uid',
]);

const lastApplied = 'kubectl.kubernetes.io/last-applied-configuration';

/** The limit of an API server for all annotations of an object, in bytes. */
const longestAnnotations = 256 * 1024;

/** Annotations that are not part of the content. */
const remarks = /^(upgrade-bundle\.openshift\.io\/|kubectl\.kubernetes\.io\/last-applied-configuration$)/;

/**
 * Returns the differences between a stored object and a manifest, one line each (`spec.replicas: 1 → 2`, the stored
 * value first). Only fields of the manifest count, but `data` and `binaryData` of ConfigMaps and Secrets must be the
 * same. Shortens long values, and hides those of Secrets.
 */
export function findDifferences(stored: StoredObject, manifest: KubernetesObject): string[] {
  const { kind } = manifest;
  return [...compare(stored, comparable(manifest), [], kind)].map(
    ({ path, theirs, ours }) =>
      `${formatPath(path)}: ${formatValue(theirs, path, kind)} → ${formatValue(ours, path, kind)}`,
  );
}

/** Returns whether a manifest only adds to a stored object, and replaces no value of it. */
export function isAddition(stored: StoredObject, manifest: KubernetesObject): boolean {
  return [...compare(stored, comparable(manifest), [], manifest.kind)].every(({ theirs }) => isEmpty(theirs));
}

interface Difference {
  readonly path: Path;
  readonly theirs: unknown;
  readonly ours: unknown;
}

/**
 * Returns the stored object with the fields of the manifest and the stored resourceVersion. Writing it removes all
 * differences, and keeps fields of other managers.
 */
export function mergeManifest(stored: StoredObject, manifest: KubernetesObject): StoredObject {
  const { labels, annotations } = manifest.metadata;
  const stated = comparable({
    ...manifest,
    metadata: { name: manifest.metadata.name, ...withoutAbsent({ labels, annotations }) },
  });
  const exact = exactFields(manifest.kind);
  const kept = Object.entries(stored).filter(([field]) => !exact.includes(field));
  return merge(Object.fromEntries(kept), stated) as StoredObject;
}

/**
 * Returns a manifest with the annotation that `kubectl apply` gives it, so that a later `oc apply` of the same file
 * reports `unchanged`. It is the manifest without this annotation, as Go encodes it (kubectl, GetModifiedConfiguration
 * in pkg/util/apply.go). `namespace` is that of the context for a namespaced kind. A manifest whose annotation would be
 * too long is returned as it is.
 */
export function withLastApplied(manifest: KubernetesObject, namespace?: string): KubernetesObject {
  const { [lastApplied]: _, ...annotations } = manifest.metadata.annotations ?? {};
  const metadata = { ...(namespace !== undefined && { namespace }), ...manifest.metadata, annotations };
  const text = encodeAsGo({ ...manifest, metadata });
  if (Buffer.byteLength(text) > longestAnnotations) return manifest;
  return { ...manifest, metadata: { ...manifest.metadata, annotations: { ...annotations, [lastApplied]: text } } };
}

/** Encodes as encoding/json of Go does: keys are sorted, characters of HTML are escaped, and the line has an end. */
function encodeAsGo(value: unknown): string {
  const escape = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return `${JSON.stringify(value, sortKeys).replace(/[<>&\u2028\u2029]/g, escape)}\n`;
}

function sortKeys(_key: string, value: unknown): unknown {
  if (!isFields(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function* compare(theirs: unknown, ours: unknown, path: Path, kind: string): Generator<Difference> {
  if (isFields(ours) && (isFields(theirs) || theirs === undefined || theirs === null)) {
    const exact = path.length === 0 ? exactFields(kind) : [];
    const keys = new Set([...Object.keys(ours), ...exact]);
    if (path.length === 1 && exactFields(kind).includes(String(path[0]))) {
      for (const key of Object.keys(theirs ?? {})) keys.add(key);
    }
    for (const key of [...keys].sort()) {
      if (path[0] === 'metadata' && path[1] === 'annotations' && remarks.test(key)) continue;
      const value = exact.includes(key) ? (ours[key] ?? {}) : ours[key];
      yield* compare(theirs?.[key], value, [...path, key], kind);
    }
  } else if (Array.isArray(ours) && Array.isArray(theirs)) {
    for (let index = 0; index < Math.max(ours.length, theirs.length); index += 1) {
      yield* compare(theirs[index], ours[index], [...path, index], kind);
    }
  } else if (!same(theirs, ours, path)) {
    yield { path, theirs, ours };
  }
}

function same(theirs: unknown, ours: unknown, path: Path): boolean {
  // The server omits empty values.
  if (isEmpty(theirs) && isEmpty(ours)) return true;
  if (path[0] === 'binaryData' && typeof theirs === 'string' && typeof ours === 'string') {
    return Buffer.from(theirs, 'base64').equals(Buffer.from(ours, 'base64'));
  }
  return isDeepStrictEqual(theirs, ours);
}

function isEmpty(value: unknown): boolean {
  return (
    value === undefined ||
    value === null ||
    (Array.isArray(value) && value.length === 0) ||
    (isFields(value) && Object.keys(value).length === 0)
  );
}

/** Returns the manifest without fields that the server sets, and with the `stringData` of a Secret as `data`. */
function comparable({ status: _status, metadata, ...content }: KubernetesObject): Fields {
  const kept = Object.entries(metadata).filter(([key]) => !serverFields.has(key) && key !== 'namespace');
  const { stringData, ...rest } = content;
  const written =
    content.kind === 'Secret' && isFields(stringData) ? { data: secretData(rest['data'], stringData) } : {};
  return { ...rest, ...written, metadata: Object.fromEntries(kept) };
}

function secretData(data: unknown, stringData: Fields): Fields {
  const encoded = Object.entries(stringData).map(
    ([key, value]) => [key, Buffer.from(String(value)).toString('base64')] as const,
  );
  return { ...(isFields(data) ? data : {}), ...Object.fromEntries<string>(encoded) };
}

function exactFields(kind: string): string[] {
  return kind === 'ConfigMap' || kind === 'Secret' ? ['binaryData', 'data'] : [];
}

function merge(theirs: unknown, ours: unknown): unknown {
  if (ours === undefined || ours === null) return theirs;
  if (!isFields(ours) || !isFields(theirs)) return ours;
  const merged = Object.entries(ours).map(([key, value]) => [key, merge(theirs[key], value)] as const);
  return { ...theirs, ...Object.fromEntries(merged) };
}

function formatPath(path: Path): string {
  return path
    .map((part, index) => {
      if (typeof part === 'number') return `[${part}]`;
      if (/^[A-Za-z_][\w-]*$/.test(part)) return `${index === 0 ? '' : '.'}${part}`;
      return `[${JSON.stringify(part)}]`;
    })
    .join('');
}

const longest = 80;

function formatValue(value: unknown, path: Path, kind: string): string {
  if (isEmpty(value)) return '(absent)';
  if (kind === 'Secret' && exactFields(kind).includes(String(path[0]))) return '(secret)';
  const text = JSON.stringify(value);
  if (text.length <= longest) return text;
  return `${text.slice(0, longest / 2)}…${text.slice(-longest / 2)} (${text.length} characters)`;
}
