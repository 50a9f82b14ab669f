import { isDeepStrictEqual } from 'node:util';
import type { ApiKind } from './apiKinds.ts';
import type { ApiObject } from './apiObjects.ts';
import { isJson, type Json } from './apiPatch.ts';
import { checkSchema } from './apiSchema.ts';
import { Refusal } from './apiStatus.ts';

/** Throws the errors 422 (and 400 for malformed content) of a real server, for the cases in tests. */
export function validate(kind: ApiKind, object: ApiObject, before?: ApiObject): void {
  const { name } = object.metadata;
  const causes: { field: string; message: string }[] = [];
  if (!/^[a-z0-9]([a-z0-9.:-]*[a-z0-9])?$/.test(name) || name.length > 253) {
    const message =
      `Invalid value: "${name}": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric ` +
      "characters, '-' or '.'";
    causes.push({ field: 'metadata.name', message });
  }
  causes.push(...metadataCauses(object, before));
  if (kind.kind === 'Lease') causes.push(...leaseCauses(object));
  if (kind.kind === 'ConfigMap') causes.push(...configMapCauses(object, before));
  if (kind.kind === 'Event') causes.push(...eventCauses(object));
  if (kind.schema) causes.push(...checkSchema(kind.schema, object, before));
  if (causes.length === 0) return;
  const listed = causes.map(({ field, message }) => `${field || '<nil>'}: ${message}`).join(', ');
  const said = causes.length > 1 ? `[${listed}]` : listed;
  const words = `${kind.kind}${kind.group && '.'}${kind.group} "${name}" is invalid: ${said}`;
  throw new Refusal(422, 'Invalid', words, { name, kind: kind.kind, causes });
}

/** The fields of kinds that tests write with stray ones. Servers drop the others. */
const knownFields: Readonly<Record<string, readonly string[] | undefined>> = {
  ConfigMap: ['apiVersion', 'kind', 'metadata', 'data', 'binaryData', 'immutable'],
  Lease: ['apiVersion', 'kind', 'metadata', 'spec'],
};

/**
 * Returns an object of a built-in kind as the server decodes it: without unknown fields. Throws
 * 400 for a field of another type.
 */
export function decode(kind: ApiKind, object: ApiObject): ApiObject {
  const fields = kind.custom ? undefined : knownFields[kind.kind];
  if (!fields) return object;
  const known = Object.fromEntries(Object.entries(object).filter(([key]) => fields.includes(key))) as ApiObject;
  if (kind.kind === 'Lease' && isJson(known['spec'])) checkLeaseTypes(known['spec']);
  return known;
}

/** Throws 400 for a field of another type. Times need six digits of a second. */
function checkLeaseTypes(spec: Json): void {
  for (const field of ['acquireTime', 'renewTime']) {
    const value = spec[field];
    if (value === undefined || value === null) continue;
    if (typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/.test(value)) continue;
    throw undecodable('Lease', `parsing time ${JSON.stringify(value)} as "2006-01-02T15:04:05.000000Z07:00"`);
  }
  for (const field of ['leaseDurationSeconds', 'leaseTransitions'])
    if (spec[field] !== undefined && !Number.isInteger(spec[field]))
      throw undecodable('Lease', `cannot unmarshal ${typeof spec[field]} into Go struct field LeaseSpec.spec.${field}`);
}

function* leaseCauses({ spec }: ApiObject) {
  const { leaseDurationSeconds = 1, leaseTransitions = 0 } = (spec ?? {}) as Record<string, number | undefined>;
  const wrong = (field: string, value: number, bound: string) => ({
    field: `spec.${field}`,
    message: `Invalid value: ${value}: must be ${bound} 0`,
  });
  if (leaseDurationSeconds <= 0) yield wrong('leaseDurationSeconds', leaseDurationSeconds, 'greater than');
  if (leaseTransitions < 0) yield wrong('leaseTransitions', leaseTransitions, 'greater than or equal to');
}

/** The largest annotations of an object and data of a ConfigMap, in bytes. */
const [annotationLimit, configMapLimit] = [256 * 1024, 1024 * 1024];

function* metadataCauses({ metadata }: ApiObject, before: ApiObject | undefined) {
  for (const value of Object.values((metadata['labels'] ?? {}) as Record<string, string>)) {
    if (/^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/.test(value)) continue;
    yield {
      field: 'metadata.labels',
      message:
        `Invalid value: "${value}": a valid label must be an empty string or consist of alphanumeric characters, ` +
        "'-', '_' or '.'",
    };
  }
  const annotations = Object.entries((metadata['annotations'] ?? {}) as Record<string, string>);
  if (annotations.flat().join('').length > annotationLimit)
    yield { field: 'metadata.annotations', message: `Too long: may not be more than ${annotationLimit} bytes` };
  const [finalizers, known] = [metadata, before?.metadata].map((each) => (each?.['finalizers'] ?? []) as string[]);
  const added = finalizers?.filter((each) => !known?.includes(each)) ?? [];
  if (before?.metadata['deletionTimestamp'] !== undefined && added.length > 0)
    yield {
      field: 'metadata.finalizers',
      message:
        'Forbidden: no new finalizers can be added if the object is being deleted, found new ' +
        `finalizers ${JSON.stringify(added)}`,
    };
}

function* configMapCauses(object: ApiObject, before: ApiObject | undefined) {
  const { data = {}, binaryData = {} } = object as { data?: unknown; binaryData?: unknown };
  const texts = Object.values(data ?? {}).join('');
  if (Buffer.byteLength(texts) + (Object.values(binaryData ?? {}).join('').length * 3) / 4 > configMapLimit)
    yield { field: '', message: `Too long: may not be more than ${configMapLimit} bytes` };
  for (const [field, values] of Object.entries({ data, binaryData })) {
    if (!isJson(values)) throw undecodable('ConfigMap', `${field} is no map`);
    for (const [key, value] of Object.entries(values)) {
      if (typeof value !== 'string')
        throw undecodable(
          'ConfigMap',
          `cannot unmarshal ${typeof value} into Go struct field ConfigMap.${field} of type string`,
        );
      if (field === 'binaryData' && Buffer.from(value, 'base64').toString('base64') !== value)
        throw undecodable('ConfigMap', 'illegal base64 data');
      if (!/^[-._a-zA-Z0-9]+$/.test(key))
        yield {
          field: `${field}[${key}]`,
          message: `Invalid value: "${key}": a valid config key must consist of alphanumeric characters, '-', '_' or '.'`,
        };
      if (field === 'binaryData' && key in (data as object))
        yield { field: `data[${key}]`, message: `Invalid value: "${key}": duplicate of key present in binaryData` };
    }
  }
  if (
    before?.['immutable'] === true &&
    !isDeepStrictEqual([before['data'], before['binaryData']], [object['data'], object['binaryData']])
  ) {
    yield { field: 'data', message: 'Forbidden: field is immutable when `immutable` is set' };
  }
}

/** An event about an object without a namespace must be in `default`. */
function* eventCauses({ metadata, involvedObject }: ApiObject) {
  const { namespace = '' } = (isJson(involvedObject) ? involvedObject : {}) as { namespace?: string };
  if (metadata.namespace === (namespace || 'default')) return;
  yield {
    field: 'involvedObject.namespace',
    message: `Invalid value: "${namespace}": does not match event.namespace`,
  };
}

function undecodable(kind: string, why: string): Refusal {
  return new Refusal(400, 'BadRequest', `${kind} in version "v1" cannot be handled as a ${kind}: ${why}`);
}
