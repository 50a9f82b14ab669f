import { PluginError } from '../../../lib/errors.ts';

/** Parses an address with a port, such as `127.0.0.1:5000` or `[::1]:0`. Throws `usage`. */
export function parseListen(text: string): { host: string; port: number } {
  const [, bracketed, plain, digits] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]+)):([0-9]{1,5})$/.exec(text) ?? [];
  const host = bracketed ?? plain;
  const port = Number(digits);
  if (host !== undefined && port <= 65535) return { host, port };
  throw new PluginError('usage', `--listen ${text} is not an address with a port, such as 127.0.0.1:5000 or [::1]:0`);
}
