import type { Worker } from 'node:worker_threads';
import type { Context } from '#context';
import { messageOf, PluginError } from '#errors';
import { startWorker } from '../workerThread.ts';
import type { FromDigestWorker, ToDigestWorker } from './digestWorker.ts';
import type { ArchiveDigests, Volume } from './volumes.ts';

/** The code of the digest thread in a built program. */
declare const __DIGEST_WORKER_SOURCE__: string | undefined;

/** Computes the digests of an archive and of its volumes as VolumeHash does, in a separate thread. */
export class DigestThread {
  readonly #worker: Worker;
  /** The requests without a reply, the oldest first. */
  readonly #pending: PromiseWithResolvers<FromDigestWorker>[] = [];
  #failure: PluginError | undefined;

  constructor(volumes: readonly Pick<Volume, 'size'>[], context: Context) {
    const source = typeof __DIGEST_WORKER_SOURCE__ === 'string' ? __DIGEST_WORKER_SOURCE__ : undefined;
    const data = volumes.map(({ size }) => ({ size }));
    this.#worker = startWorker(source ?? new URL('./digestWorker.ts', import.meta.url), data, context);
    this.#worker.on('message', (reply: FromDigestWorker) => this.#pending.shift()?.resolve(reply));
    this.#worker.on('error', (cause) => {
      this.#fail(new PluginError('internal', `the digest thread failed: ${messageOf(cause)}`, { cause }));
    });
    this.#worker.on('exit', () => {
      this.#fail(new PluginError('internal', 'the digest thread has ended'));
    });
  }

  /** Hashes bytes in shared memory, which must not change until the promise settles. */
  update(bytes: Uint8Array): Promise<unknown> {
    return this.#request(bytes);
  }

  /** Returns the digests. Call it once, at the end. */
  async finish(): Promise<ArchiveDigests> {
    const digests = await this.#request('finish');
    if (digests === 'updated') throw new PluginError('internal', 'the digest thread gave no digests');
    return digests;
  }

  async close(): Promise<void> {
    await this.#worker.terminate();
  }

  #request(message: ToDigestWorker): Promise<FromDigestWorker> {
    const reply = Promise.withResolvers<FromDigestWorker>();
    // The caller may fail, or be interrupted, before it awaits the reply.
    reply.promise.catch(() => undefined);
    if (this.#failure) reply.reject(this.#failure);
    else this.#pending.push(reply);
    this.#worker.postMessage(message);
    return reply.promise;
  }

  #fail(failure: PluginError): void {
    this.#failure ??= failure;
    for (const reply of this.#pending.splice(0)) reply.reject(this.#failure);
  }
}
