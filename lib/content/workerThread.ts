import { Worker } from 'node:worker_threads';
import type { Context } from '#context';

/**
 * Starts a worker thread from its code, or from the URL of its module. Its young generation is small, because it moves
 * bytes and creates few objects.
 */
export function startWorker(code: string | URL, workerData: unknown, context: Context): Worker {
  const worker = new Worker(code, {
    workerData,
    eval: typeof code === 'string',
    stdin: false,
    stdout: true,
    stderr: true,
    resourceLimits: { maxYoungGenerationSizeMb: 8 },
  });
  // Only Node.js and packages write warnings to these streams.
  for (const stream of [worker.stdout, worker.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      context.log('debug', chunk.toString().trimEnd());
    });
  }
  return worker;
}
