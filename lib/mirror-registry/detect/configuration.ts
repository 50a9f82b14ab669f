import { isScalar, LineCounter, parseDocument } from 'yaml';
import { PluginError } from '../../errors.ts';
import type { Inherited } from '../installation.ts';

/** A Quay configuration: values by their path, with the line each is on. */
export interface Configuration {
  readonly path: string;
  /** The value at a path of keys, as the text that stands in the file; undefined where there is none. */
  get(...keys: string[]): Inherited<string> | undefined;
}

/** Reads config.yaml of a Quay. Only single values are looked at; the file is never written. Throws `invalid-file`. */
export function readQuayConfiguration(path: string, text: string): Configuration {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, intAsBigInt: true });
  const [error] = document.errors;
  if (error) {
    const place = `${path}:${error.linePos?.[0].line ?? 1}`;
    throw new PluginError('invalid-file', `${place} is not YAML: ${error.message.split('\n')[0] ?? ''}`, {
      hint: 'Quay itself does not start with such a file: mend it first.',
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
      // A date or bytes, which YAML could mean too, are no setting of interest.
      const text = typeof value === 'string' ? value : /^(number|bigint|boolean)$/.test(typeof value) && node.source;
      return typeof text === 'string' ? { value: text, file: path, line } : undefined;
    },
  };
}

/** Splits `host`, `host:port`, `[address]:port` or a bare IPv6 address; the host has no brackets. */
export function splitHostname(text: string): { host: string; port: number | undefined } {
  const bracketed = /^\[([^\]]+)\](?::(\d+))?$/.exec(text);
  const plain = /^([^:]*)(?::(\d+))?$/.exec(text);
  const [, host = text, port] = bracketed ?? plain ?? [];
  return { host, port: port === undefined ? undefined : Number(port) };
}

/** The host’s side of a `--publish`: `8443:8443`, `10.0.0.5:8443:8443/tcp`, `[::1]:443:8443`; undefined when none is stated. */
export function publishedPort(publish: string): number | undefined {
  const found = /(?:^|:)(\d+):\d+(?:\/\w+)?$/.exec(publish);
  return found ? Number(found[1]) : undefined;
}
