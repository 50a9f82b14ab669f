import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '#context';
import { messageOf } from '#errors';
import type { Cluster, ListOptions } from '../client.ts';
import type { StoredObject } from '../objects/storedObject.ts';

/** A kind to watch, and a selection of its objects; all by default. */
export interface ViewedKind extends Pick<ListOptions, 'namespace' | 'labelSelector'> {
  readonly apiVersion: string;
  readonly kind: string;
}

/** Holds the present objects of several kinds, and reports changes. */
export class ClusterView {
  readonly #cluster: Cluster;
  readonly #context: Context;
  readonly #onChange: () => void;
  readonly #objects = new Map<string, readonly StoredObject[]>();
  readonly #kinds: readonly ViewedKind[];
  readonly #retryPause: number;

  /** `retryPause`: the pause before a retry of a kind that is not served or must not be watched, in milliseconds. */
  constructor(
    cluster: Cluster,
    { kinds, retryPause }: { kinds: readonly ViewedKind[]; retryPause: number },
    onChange: () => void,
    context: Context,
  ) {
    this.#retryPause = retryPause;
    this.#cluster = cluster;
    this.#kinds = kinds;
    this.#onChange = onChange;
    this.#context = context;
  }

  /** Whether all kinds have been listed. */
  get complete(): boolean {
    return this.#kinds.every(({ kind }) => this.#objects.has(kind));
  }

  /** Returns the objects of a kind; none if the cluster does not serve it. */
  list(kind: string): readonly StoredObject[] {
    return this.#objects.get(kind) ?? [];
  }

  /** Watches until the signal is aborted. Never throws. */
  async run(): Promise<void> {
    await Promise.all(this.#kinds.map((kind) => this.#follow(kind)));
  }

  async #follow({ apiVersion, kind, ...which }: ViewedKind): Promise<void> {
    const { signal } = this.#context;
    for (;;) {
      try {
        if (await this.#cluster.findKind(apiVersion, kind)) {
          for await (const objects of this.#cluster.watch(apiVersion, kind, which)) this.#keep(kind, objects);
        }
        // An update may add the kind to the cluster.
        this.#keep(kind, []);
      } catch (error) {
        if (signal.aborted) return;
        this.#context.log('warn', `${kind} cannot be watched: ${messageOf(error)}`);
      }
      await sleep(this.#retryPause, undefined, { signal }).catch(() => undefined);
    }
  }

  #keep(kind: string, objects: readonly StoredObject[]): void {
    this.#objects.set(kind, objects);
    this.#onChange();
  }
}
