import { isDeepStrictEqual } from 'node:util';
import type { ApiKind } from './apiKinds.ts';
import type { ApiObject } from './apiObjects.ts';
import { isJson } from './apiPatch.ts';
import { checkSchema } from './apiSchema.ts';
import { Refusal } from './apiStatus.ts';

/** Throws the errors 422 (and 400 for malformed content) of a real server, for the cases in tests. */
export function validate(kind: ApiKind, object: ApiObject, before?: ApiObject): void {
  const { name } = object.metadata;
  const causes: { field: string; message: string }[] = [];
  if (!/^[a-z0-9]([a-z0-9.:-]*[a-z0-9])?$/.test(name) || name.length > 253) {
    const message = `Invalid value: "${name}": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'`;
    causes.push({ field: 'metadata.name', message });
  }
  if (kind.kind === 'ConfigMap') causes.push(...configMapCauses(object, before));
  if (kind.kind === 'Event') causes.push(...eventCauses(object));
  if (kind.schema) causes.push(...checkSchema(kind.schema, object, before));
  if (causes.length === 0) return;
  const listed = causes.map(({ field, message }) => `${field || '<nil>'}: ${message}`).join(', ');
  const words = `${kind.kind}${kind.group && '.'}${kind.group} "${name}" is invalid: ${listed}`;
  throw new Refusal(422, 'Invalid', words, { name, kind: kind.kind, causes });
}

function* configMapCauses(object: ApiObject, before: ApiObject | undefined) {
  const { data = {}, binaryData = {} } = object as { data?: unknown; binaryData?: unknown };
  for (const [field, values] of Object.entries({ data, binaryData })) {
    if (!isJson(values)) throw undecodable(`${field} is no map`);
    for (const [key, value] of Object.entries(values)) {
      if (typeof value !== 'string')
        throw undecodable(`cannot unmarshal ${typeof value} into Go struct field ConfigMap.${field} of type string`);
      if (field === 'binaryData' && Buffer.from(value, 'base64').toString('base64') !== value)
        throw undecodable('illegal base64 data');
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

function undecodable(why: string): Refusal {
  return new Refusal(400, 'BadRequest', `ConfigMap in version "v1" cannot be handled as a ConfigMap: ${why}`);
}
