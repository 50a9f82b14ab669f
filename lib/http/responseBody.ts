import type { Readable } from 'node:stream';
import type { PluginError } from '../errors.ts';

/** The most that is read of a body that nobody asked for, in bytes. */
export const errorBodyLimit = 64 * 1024;

/** Reads a body up to `limit` bytes; of a longer one, the rest is dropped with its connection. */
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

/** Lets a body fail with errors in our words instead of the system's. */
export function explainErrors(body: Readable, explain: (error: unknown) => PluginError): void {
  const destroy = body._destroy.bind(body);
  body._destroy = (error, callback) => {
    destroy(error, (after) => {
      callback(after && explain(after));
    });
  };
}
