import { isScalar, LineCounter, parseDocument } from 'yaml';
import { PluginError } from '../../errors.ts';
import type { Inherited } from '../installation.ts';
import { applyEdits } from './units.ts';

/** The configuration of Quay: values by path, each with its line number. */
export interface Configuration {
  readonly path: string;
  /** Returns the value at a path of keys, as written in the file; undefined if it is missing. */
  get(...keys: string[]): Inherited<string> | undefined;
}

/** Parses config.yaml of Quay. Throws `invalid-file`. */
export function readQuayConfiguration(path: string, text: string): Configuration {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, intAsBigInt: true });
  const [error] = document.errors;
  if (error) {
    const place = `${path}:${error.linePos?.[0].line ?? 1}`;
    throw new PluginError('invalid-file', `${place} is not valid YAML: ${error.message.split('\n')[0] ?? ''}`, {
      hint: 'Quay does not start with such a file. Fix it first.',
      cause: error,
    });
  }
  return {
    path,
    get: (...keys) => {
      const node = document.getIn(keys, true);
      if (!isScalar(node)) return undefined;
      const value: unknown = node.value;
      const line = lines.linePos(node.range?.[0] ?? 0).line;
      // Dates and binary values are not needed.
      const text = typeof value === 'string' ? value : /^(number|bigint|boolean)$/.test(typeof value) && node.source;
      return typeof text === 'string' ? { value: text, file: path, line } : undefined;
    },
  };
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
  readQuayConfiguration(path, text);
  const document = parseDocument(text);
  const edits = values.flatMap(([keys, value]) => {
    const node = document.getIn(keys, true);
    if (!isScalar(node) || !node.range || String(node.value) === value) return [];
    // A JSON string is a YAML string.
    return [{ start: node.range[0], end: node.range[1], text: JSON.stringify(value) }];
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
