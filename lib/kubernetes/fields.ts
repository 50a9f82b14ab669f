import type { KubernetesObject } from '../config/manifest.ts';
import { isFields, type Fields } from './kubeconfigMerge.ts';

/** An object as the cluster stores it. */
export interface StoredObject extends KubernetesObject {
  readonly metadata: KubernetesObject['metadata'] & {
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly [field: string]: unknown;
  };
}

export type { Fields } from './kubeconfigMerge.ts';

/** Returns a value if it is a mapping, else an empty mapping. */
export function fieldsOf(value: unknown): Fields {
  return isFields(value) ? value : {};
}

/** Returns the mapping at a path of keys, such as `spec`, `desiredUpdate`; an empty mapping if there is none. */
export function fieldsAt(value: unknown, ...path: readonly string[]): Fields {
  return path.reduce((fields, key) => fieldsOf(fields[key]), fieldsOf(value));
}

/** Returns the mappings in a list; none for another value. */
export function listOf(value: unknown): Fields[] {
  return Array.isArray(value) ? value.filter(isFields) : [];
}

/** Returns the strings in a list; none for another value. */
export function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === 'string') : [];
}

/** Returns a string that is not empty; undefined for another value. */
export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** A condition of an object’s status (`Available`, `Degraded`). */
export interface Condition {
  /** `True`, `False` or `Unknown`. */
  readonly status: string;
  readonly reason: string;
  readonly message: string;
}

/** Returns the conditions of an object’s status by type. */
export function conditionsOf(object: Readonly<Record<string, unknown>>): ReadonlyMap<string, Condition> {
  const { conditions } = fieldsOf(object['status']);
  return new Map(
    listOf(conditions).map(({ type, status, reason, message }) => [
      String(type),
      { status: String(status), reason: textOf(reason) ?? '', message: textOf(message) ?? '' },
    ]),
  );
}
