import { parentPort, workerData, type MessagePort } from 'node:worker_threads';
import { VolumeHash, type ArchiveDigests } from './volumes.ts';

/** A message to the digest thread: the next bytes, in shared memory, or the end. */
export type ToDigestWorker = Uint8Array | 'finish';

/** A message from the digest thread: the bytes have been read, or the result. */
export type FromDigestWorker = 'updated' | ArchiveDigests;

function serveDigests(port: MessagePort, volumes: readonly { readonly size: number }[]): void {
  const hash = new VolumeHash(volumes);
  port.on('message', (message: ToDigestWorker) => {
    if (message !== 'finish') hash.update(message);
    const reply: FromDigestWorker = message === 'finish' ? hash.finish() : 'updated';
    port.postMessage(reply);
  });
}

if (parentPort) serveDigests(parentPort, workerData as readonly { readonly size: number }[]);
