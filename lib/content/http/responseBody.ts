import type { Readable } from 'node:stream';
import type { PluginError } from '../../errors.ts';

/** The limit for reading a body that was not requested, in bytes. */
export const errorBodyLimit = 64 * 1024;

/** Reads a body up to `limit` bytes. Drops the rest of a longer body with its connection. */
export async function readBody({ body }: { readonly body: Readable }, limit: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    length += chunk.length;
    if (length >= limit) break;
  }
  return Buffer.concat(chunks).subarray(0, limit);
}

/** Makes a body fail with explained errors instead of system errors. */
export function explainErrors(body: Readable, explain: (error: unknown) => PluginError): void {
  const destroy = body._destroy.bind(body);
  body._destroy = (error, callback) => {
    destroy(error, (after) => {
      callback(after && explain(after));
    });
  };
}
