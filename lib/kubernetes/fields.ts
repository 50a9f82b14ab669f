import type { KubernetesObject } from '../config/manifest.ts';
import { isFields, type Fields } from './kubeconfigMerge.ts';

/** An object as the cluster keeps it. */
export interface StoredObject extends KubernetesObject {
  readonly metadata: KubernetesObject['metadata'] & {
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly [field: string]: unknown;
  };
}

export type { Fields } from './kubeconfigMerge.ts';

/** The mapping that a value is, for reading on without asking whether it is one: anything else has no fields. */
export function fieldsOf(value: unknown): Fields {
  return isFields(value) ? value : {};
}

/** The mappings of a list; anything else has none. */
export function listOf(value: unknown): Fields[] {
  return Array.isArray(value) ? value.filter(isFields) : [];
}

/** The texts of a list; anything else has none. */
export function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === 'string') : [];
}

/** A text that says something; undefined for anything else. */
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

/** The conditions of an object’s status by their types. */
export function conditionsOf(object: Readonly<Record<string, unknown>>): ReadonlyMap<string, Condition> {
  const { conditions } = fieldsOf(object['status']);
  return new Map(
    listOf(conditions).map(({ type, status, reason, message }) => [
      String(type),
      { status: String(status), reason: textOf(reason) ?? '', message: textOf(message) ?? '' },
    ]),
  );
}
