import type { KubernetesObject } from '#config/manifest';
import { fieldsOf, listOf, textOf, type Fields, textsOf } from '#fields';

/** An object as the cluster stores it. */
export interface StoredObject extends KubernetesObject {
  readonly metadata: KubernetesObject['metadata'] & {
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly [field: string]: unknown;
  };
}

/** Returns whether a text can be the name of a node or of another object: a DNS name in small letters. */
export function isObjectName(text: string): boolean {
  return /^[a-z\d](?:[a-z\d.-]{0,251}[a-z\d])?$/.test(text);
}

/** Returns the owner reference of the controller of an object: `{kind, name, …}`; undefined without one. */
export function controllerOf({ metadata }: KubernetesObject): Fields | undefined {
  return listOf(fieldsOf(metadata)['ownerReferences']).find(({ controller }) => controller === true);
}

/** Returns the time of the last occurrence of an Event, in milliseconds since 1970; NaN if it has none. */
export function timeOfEvent({ lastTimestamp, eventTime }: KubernetesObject): number {
  return Date.parse(textOf(lastTimestamp) ?? textOf(eventTime) ?? '');
}

/** A condition of an object’s status (`Available`, `Degraded`). */
interface Condition {
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

/**
 * Returns whether a label selector (`matchLabels`, `matchExpressions`) selects an object with these labels. Also reads
 * the operators of node selectors, `Gt` and `Lt`. An unknown operator selects nothing.
 */
export function isSelected(labels: Fields = {}, { matchLabels, matchExpressions }: Fields): boolean {
  const isEqual = Object.entries(fieldsOf(matchLabels)).every(([key, value]) => labels[key] === value);
  return isEqual && listOf(matchExpressions).every((requirement) => meets(labels, requirement));
}

function meets(labels: Fields, { key, operator, values }: Fields): boolean {
  const value = labels[String(key)];
  const given = textsOf(values);
  const isIn = typeof value === 'string' && given.includes(value);
  switch (operator) {
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    case 'In':
      return isIn;
    case 'NotIn':
      return !isIn;
    case 'Gt':
      return isInteger(value) && Number(value) > Number(given[0]);
    case 'Lt':
      return isInteger(value) && Number(value) < Number(given[0]);
    default:
      return false;
  }
}

function isInteger(value: unknown): boolean {
  return typeof value === 'string' && /^-?\d+$/.test(value);
}
