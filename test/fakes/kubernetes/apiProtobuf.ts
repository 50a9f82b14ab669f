import type { Json } from './apiPatch.ts';
import { Refusal } from './apiStatus.ts';

/** The media type that kubectl 1.33 and later sends when it creates built-in kinds. */
export const protobufType = 'application/vnd.kubernetes.protobuf';

/** The wire format (generated.proto of Kubernetes): the name of each field of a message, and how to read its value. */
type Message = Readonly<Record<number, readonly [name: string, read: (bytes: Buffer) => unknown] | undefined>>;

const text = (bytes: Buffer): string => bytes.toString();
const entry: Message = { 1: ['key', text], 2: ['value', text] };
const binaryEntry: Message = { 1: ['key', text], 2: ['value', (bytes) => bytes.toString('base64')] };
const metadata: Message = {
  1: ['name', text],
  2: ['generateName', text],
  3: ['namespace', text],
  11: ['labels', (bytes) => readPair(bytes, entry)],
  12: ['annotations', (bytes) => readPair(bytes, entry)],
};

/** The known kinds, which tests create with kubectl. */
const kinds: Readonly<Record<string, Message | undefined>> = {
  'v1/ConfigMap': {
    1: ['metadata', (bytes) => readMessage(bytes, metadata)],
    2: ['data', (bytes) => readPair(bytes, entry)],
    3: ['binaryData', (bytes) => readPair(bytes, binaryEntry)],
  },
};

/**
 * Reads an object from a protobuf body, in the form of JSON. Refuses an unknown kind as the server of a custom resource
 * does.
 */
export function readProtobuf(body: Buffer): Json {
  if (body.toString('latin1', 0, 4) !== 'k8s\0') throw new Refusal(400, 'BadRequest', 'the body has no magic number');
  const typeMeta: Message = { 1: ['apiVersion', text], 2: ['kind', text] };
  const envelope = readMessage(body.subarray(4), {
    1: ['type', (bytes) => readMessage(bytes, typeMeta)],
    2: ['raw', (bytes) => bytes],
  });
  const type = envelope['type'] as { apiVersion: string; kind: string };
  const message = kinds[`${type.apiVersion}/${type.kind}`];
  if (!message) throw new Refusal(415, 'UnsupportedMediaType', `${type.kind} cannot be read from ${protobufType}`);
  return { ...type, ...readMessage(envelope['raw'] as Buffer, message) };
}

/**
 * Returns the fields by name, and the entries of each map together. Leaves out numbers and empty texts, which mean
 * missing.
 */
function readMessage(bytes: Buffer, message: Message): Json {
  const result: Json = {};
  for (let at = 0; at < bytes.length;) {
    const tag = readNumber(bytes, at);
    const value = readNumber(bytes, tag.end);
    if (tag.value % 8 === 0) {
      at = value.end;
      continue;
    }
    if (tag.value % 8 !== 2) throw new Refusal(400, 'BadRequest', 'the body has a field of an unknown type');
    at = value.end + value.value;
    const [name, read] = message[Math.floor(tag.value / 8)] ?? [];
    const field = read?.(bytes.subarray(value.end, at));
    if (name === undefined || field === undefined || field === '') continue;
    const isPart = Array.isArray(field);
    result[name] = isPart ? { ...(result[name] as Json | undefined), ...Object.fromEntries([field]) } : field;
  }
  return result;
}

/** Reads an entry of a map. */
function readPair(bytes: Buffer, message: Message): [string, unknown] {
  const { key = '', value = '' } = readMessage(bytes, message) as { key?: string; value?: string };
  return [key, value];
}

function readNumber(bytes: Buffer, start: number): { readonly value: number; readonly end: number } {
  let [value, end] = [0, start];
  for (let scale = 1; ; scale *= 128) {
    const byte = bytes[end] ?? 0;
    value += (byte & 127) * scale;
    end += 1;
    if (byte < 128) return { value, end };
  }
}
