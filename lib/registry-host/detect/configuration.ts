import { readScalars, type DocumentScalar } from '#content/files';
import { messageOf, PluginError } from '#errors';
import type { Inherited } from '../installation/installation.ts';
import { applyEdits } from './units.ts';

/** The configuration of Quay: values by path, each with its line number. */
export interface Configuration {
  readonly path: string;
  /** Returns the value at a path of keys, as written in the file; undefined if it is missing. */
  get(...keys: string[]): Inherited<string> | undefined;
}

/** Quay’s user can write the file. That of an installation has some hundred lines. */
const limits = { length: 4 * 1024 * 1024, tokens: 60_000 };

/** Parses config.yaml of Quay. Throws `invalid-file`. */
export function readQuayConfiguration(path: string, text: string): Configuration {
  const find = parse(path, text);
  return {
    path,
    get: (...keys) => {
      const { value, source, line = 1 } = find(keys) ?? {};
      // Dates and binary values are not needed.
      const written = typeof value === 'string' ? value : /^(number|boolean)$/.test(typeof value) ? source : undefined;
      return written === undefined ? undefined : { value: written, file: path, line };
    },
  };
}

function parse(path: string, text: string): (keys: readonly string[]) => DocumentScalar | undefined {
  try {
    return readScalars(text, limits);
  } catch (cause) {
    const isHuge = cause instanceof RangeError;
    const why = isHuge ? 'is larger than a configuration of Quay can be' : 'is not valid YAML';
    throw new PluginError('invalid-file', `${path} ${why}: ${messageOf(cause)}`, {
      hint: isHuge ? 'Remove what is not a setting.' : 'Quay does not start with such a file. Fix it first.',
      cause,
    });
  }
}

/**
 * Replaces values of config.yaml at paths of keys; the rest stays byte for byte. Values that are missing are not added.
 * Throws `invalid-file`.
 */
export function editQuayConfiguration(
  path: string,
  text: string,
  values: readonly (readonly [keys: readonly string[], value: string])[],
): string {
  const find = parse(path, text);
  const edits = values.flatMap(([keys, value]) => {
    const scalar = find(keys);
    if (!scalar || String(scalar.value) === value) return [];
    // A JSON string is a YAML string.
    return [{ start: scalar.start, end: scalar.end, text: JSON.stringify(value) }];
  });
  return applyEdits(text, edits);
}

/**
 * Splits `host`, `host:port`, `[address]:port` or an IPv6 address without brackets. The returned host has no brackets.
 */
export function splitHostname(text: string): { host: string; port: number | undefined } {
  const bracketed = /^\[([^\]]+)\](?::(\d+))?$/.exec(text);
  const plain = /^([^:]*)(?::(\d+))?$/.exec(text);
  const [, host = text, port] = bracketed ?? plain ?? [];
  return { host, port: port === undefined ? undefined : Number(port) };
}

/**
 * Returns the port of the host in a `--publish`: `8443:8443`, `10.0.0.5:8443:8443/tcp`, `[::1]:443:8443`; undefined if
 * it has none.
 */
export function publishedPort(publish: string): number | undefined {
  const match = /(?:^|:)(\d+):\d+(?:\/\w+)?$/.exec(publish);
  return match ? Number(match[1]) : undefined;
}
