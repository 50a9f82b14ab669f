import { availableParallelism } from 'node:os';
import type { Worker } from 'node:worker_threads';
import type { Context } from '#context';
import { isPluginError, messageOf, PluginError } from '#errors';
import { interrupted } from '../http/networkErrors.ts';
import { startWorker } from '../workerThread.ts';
import type { Authorizer } from './auth/tokens.ts';
import type { RegistrySettings } from './session.ts';
import { fromPlainError, toPlainError, type Download, type FromWorker, type Relay, type ToWorker } from './worker.ts';

/** The code of the download thread in a build of one file. */
declare const __WORKER_SOURCE__: string | undefined;

interface Task {
  readonly download: Download | Relay;
  readonly onProgress: (present: number) => void;
  readonly done: PromiseWithResolvers<void>;
  /** The error that `onProgress` threw. */
  thrown?: { readonly error: unknown };
}

interface Thread {
  readonly worker: Worker;
  /** The largest number of concurrent downloads in this thread: its share of the limit for one registry. */
  readonly share: number;
  readonly tasks: Map<number, Task>;
  failure?: PluginError;
}

/** The size in bytes of the content for which one thread is enough. */
const smallTotal = 16 * 1024 * 1024;

/**
 * Threads that download, hash and write. Hashing takes most of the time on processors without instructions for it, so
 * one thread is too slow for a fast network. Threads have no credentials. They request each Authorization header from
 * the main thread. A thread starts when it has something to do, because that takes as much CPU time as hashing 16 MiB.
 */
export class DownloadThreads {
  readonly #threads = new Set<Thread>();
  /** The shares of the threads to start, the largest last. */
  readonly #shares: number[];
  readonly #queue: Task[] = [];
  /** The first downloads of the queue, the next one last: to remove the first item of a long array is costly. */
  #next: Task[] = [];
  readonly #settings: RegistrySettings;
  readonly #authorizer: Authorizer;
  readonly #context: Context;
  /** The reason why no more downloads are accepted; undefined while they are. */
  #end: PluginError | undefined;
  #count = 0;
  /** The size of all requested content, in bytes. */
  #total = 0;

  constructor(
    settings: RegistrySettings,
    authorizer: Authorizer,
    context: Context,
    processors = availableParallelism(),
  ) {
    this.#settings = settings;
    this.#authorizer = authorizer;
    this.#context = context;
    // A second thread needs a processor of its own, beside the one of the main thread and the kernel’s work.
    const count = Math.max(1, Math.min(2, processors - 1, settings.maxPerRegistry));
    this.#shares = Array.from({ length: count }, (_, index) => Math.floor((settings.maxPerRegistry + index) / count));
    context.signal.addEventListener('abort', this.#interrupt);
    if (context.signal.aborted) this.#interrupt();
  }

  /** Queues a download (see downloadInto) or a copy (see relayInto) for one of the threads. */
  download(download: Download | Relay, onProgress: (present: number) => void): Promise<void> {
    if (this.#end) return Promise.reject(this.#end);
    const task: Task = { download, onProgress, done: Promise.withResolvers<void>() };
    this.#queue.push(task);
    if (this.#total >= smallTotal * this.#threads.size) this.#start();
    this.#total += download.descriptor.size;
    this.#dispatch();
    return task.done.promise;
  }

  /** Ends the threads. Unfinished downloads reject with `interrupted`. Nothing is written afterwards. */
  async close(): Promise<void> {
    this.#context.signal.removeEventListener('abort', this.#interrupt);
    await this.#stop(new PluginError('interrupted', 'the downloads were stopped'));
  }

  readonly #interrupt = (): void => {
    void this.#stop(interrupted());
  };

  async #stop(reason: PluginError): Promise<void> {
    this.#end ??= reason;
    await Promise.all([...this.#threads].map(({ worker }) => worker.terminate()));
  }

  // Reject only after the thread has ended, because it writes nothing more then.
  #remove(thread: Thread): void {
    this.#threads.delete(thread);
    const reason = this.#end ?? thread.failure ?? new PluginError('internal', 'a download thread has ended');
    for (const task of thread.tasks.values()) task.done.reject(reason);
    if (this.#threads.size > 0) return;
    this.#end ??= reason;
    for (let task = this.#take(); task; task = this.#take()) task.done.reject(reason);
  }

  #start(): void {
    const share = this.#shares.pop();
    if (share === undefined) return;
    const settings: RegistrySettings = { ...this.#settings, maxPerRegistry: share };
    const source = typeof __WORKER_SOURCE__ === 'string' ? __WORKER_SOURCE__ : undefined;
    const worker = startWorker(source ?? new URL('./worker.ts', import.meta.url), settings, this.#context);
    const thread: Thread = { worker, share, tasks: new Map() };
    worker.on('message', (message: FromWorker) => {
      this.#receive(thread, message);
    });
    worker.on('error', (error) => {
      thread.failure = new PluginError('internal', `a download thread failed: ${messageOf(error)}`, { cause: error });
    });
    worker.on('exit', () => {
      this.#remove(thread);
    });
    this.#threads.add(thread);
  }

  #receive(thread: Thread, message: FromWorker): void {
    switch (message.kind) {
      case 'log':
        this.#context.log(message.level, message.message);
        return;
      case 'authorize': {
        const respond = (reply: ToWorker): void => {
          thread.worker.postMessage(reply);
        };
        const { id, request } = message;
        this.#authorizer.authorize(request).then(
          (header) => {
            respond({ kind: 'authorized', id, header });
          },
          (error: unknown) => {
            respond({ kind: 'refused', id, error: toPlainError(error) });
          },
        );
        return;
      }
      case 'progress':
        this.#report(thread.tasks.get(message.id), message.present);
        return;
      case 'finished':
      case 'failed': {
        const task = thread.tasks.get(message.id);
        thread.tasks.delete(message.id);
        if (task?.thrown) task.done.reject(task.thrown.error);
        else if (message.kind === 'finished') task?.done.resolve();
        else this.#fail(task, fromPlainError(message.error));
        this.#dispatch();
      }
    }
  }

  #fail(task: Task | undefined, error: Error): void {
    task?.done.reject(error);
    // Other content would not fit either.
    if (isPluginError(error, 'disk-full') || isPluginError(error, 'not-writable')) void this.#stop(error);
  }

  #report(task: Task | undefined, present: number): void {
    try {
      task?.onProgress(present);
    } catch (error) {
      // The thread still writes, so the error is thrown when it has finished.
      if (task) task.thrown ??= { error };
    }
  }

  #dispatch(): void {
    // The least busy thread comes first, so that a few large blobs spread over the threads.
    const free = [...this.#threads]
      .filter(({ tasks, share }) => tasks.size < share)
      .sort((a, b) => a.tasks.size - b.tasks.size);
    const thread = free[0];
    const task = thread && this.#take();
    if (!task) return;
    this.#count += 1;
    thread.tasks.set(this.#count, task);
    const message: ToWorker = { kind: 'download', id: this.#count, download: task.download };
    thread.worker.postMessage(message);
    this.#dispatch();
  }

  /** Removes and returns the next download of the queue. */
  #take(): Task | undefined {
    if (this.#next.length === 0) this.#next = this.#queue.splice(0).reverse();
    return this.#next.pop();
  }
}
