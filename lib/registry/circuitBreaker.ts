import { PluginError } from '../errors.ts';

/** How long a registry that was given up is not asked, in milliseconds. */
const defaultPause = 60_000;

/**
 * The registries that are not waited for: each gave no answer of use for as long as patience with one request lasted. A mirror that is
 * down must not be waited for with each image, nor a registry that went down with each of the thousand blobs that are left.
 */
export class CircuitBreaker {
  readonly #pause: number;
  readonly #responses = new Map<string, number>();
  readonly #registries = new Map<string, { error: PluginError; until: number }>();

  constructor(pause: number = defaultPause) {
    this.#pause = pause;
  }

  /** How many answers of use a registry has given. */
  responsesOf(registry: string): number {
    return this.#responses.get(registry) ?? 0;
  }

  /** Notes an answer of use, or a part of one. */
  noteResponse(registry: string): void {
    this.#responses.set(registry, this.responsesOf(registry) + 1);
    this.#registries.delete(registry);
  }

  /** Gives a registry up, unless it has answered since it had given so many answers. */
  open(registry: string, error: PluginError, responses: number): void {
    if (this.responsesOf(registry) > responses) return;
    this.#registries.set(registry, { error, until: performance.now() + this.#pause });
  }

  isOpen(registry: string): boolean {
    return this.#registries.has(registry);
  }

  /** Throws what a registry was given up for; now and then it lets a request find out whether that is still so. */
  check(registry: string): void {
    const failure = this.#registries.get(registry);
    if (!failure) return;
    if (performance.now() < failure.until) {
      const { code, message, hint } = failure.error;
      throw new PluginError(code, `no further requests to ${registry}: ${message}`, { hint, cause: failure.error });
    }
    failure.until = performance.now() + this.#pause;
  }
}
