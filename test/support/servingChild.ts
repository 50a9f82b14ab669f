import { open } from 'node:fs/promises';
import { readChunks } from '../../lib/content/files/fileRange.ts';
import { serveContent } from '../../lib/content/server.ts';
import { makeContext } from './context.ts';

/** Serves a file of a given size as `/file`. Prints its port and, if asked, its memory. */
const [, , path = '', size = ''] = process.argv;
const context = makeContext();
const handle = await open(path);
const file = {
  size: Number(size),
  chunks: (start: number, length: number) => readChunks(handle, path, start, length, context.signal),
};
const { port } = await serveContent(() => undefined, { files: new Map([['/file', file]]) }, context);
process.send?.(port);
process.on('message', () => process.send?.(process.memoryUsage.rss()));
process.on('disconnect', () => process.exit());
