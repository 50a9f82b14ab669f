import { Cluster } from '../../../lib/cluster/client.ts';

const never = new Promise<never>(() => undefined);

/** Commands on a node that only read: the process of its container runtime, and what asked for which image. */
const isReading = /^(?:chroot \/host systemctl show|\[ ! -e) /;

/**
 * A client that is killed after a step. A step changes something: it is a write to the cluster, or a command on a node.
 * A kill between two others leaves what the kill before left.
 */
export class KilledCluster {
  readonly cluster: Cluster;
  readonly #killAt: number;
  readonly #kill: () => void;
  #isDead = false;
  steps = 0;

  /** `kill` ends the process, or the connections of the client: it is never answered again. */
  constructor(cluster: Cluster, killAt: number, kill: () => void) {
    this.#killAt = killAt;
    this.#kill = kill;
    this.cluster = this.#wrap(cluster);
  }

  #wrap(cluster: Cluster): Cluster {
    return new Proxy(cluster, {
      get: (target, name) => {
        const method: unknown = Reflect.get(target, name, target);
        if (typeof method !== 'function') return method;
        return (...args: unknown[]): unknown => {
          const result: unknown = this.#isDead && name !== Symbol.dispose ? never : Reflect.apply(method, target, args);
          if (result instanceof Cluster) return this.#wrap(result);
          return result instanceof Promise ? this.#follow(String(name), args, result) : result;
        };
      },
    });
  }

  async #follow(name: string, args: readonly unknown[], result: Promise<unknown>): Promise<unknown> {
    await Promise.allSettled([result]);
    // A request that was on its way at the kill can end after it.
    if (!this.#isDead && isStep(name, args)) this.steps += 1;
    if (this.steps > 0 && this.steps === this.#killAt && !this.#isDead) {
      this.#isDead = true;
      this.#kill();
    }
    return this.#isDead ? never : result;
  }
}

function isStep(name: string, [first]: readonly unknown[]): boolean {
  const { kind, command = [] } = first as { readonly kind?: string; readonly command?: readonly string[] };
  if (name === 'exec') return !isReading.test(command[2] ?? '');
  // The checks create objects too, which nothing keeps.
  return name === 'patch' || name === 'evict' || (name === 'create' && kind === 'Event');
}
