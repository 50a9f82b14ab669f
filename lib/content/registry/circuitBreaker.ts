import { PluginError } from '../../errors.ts';

/** The time without requests to a registry after its failure, in milliseconds. */
const defaultPause = 60_000;

/**
 * Stops requests to a registry after a request to it used up its retry budget without a useful response. Otherwise each
 * image would wait for a mirror that is down, and each blob for a registry that failed meanwhile.
 */
export class CircuitBreaker {
  readonly #pause: number;
  readonly #responses = new Map<string, number>();
  readonly #registries = new Map<string, { error: PluginError; until: number }>();

  constructor(pause: number = defaultPause) {
    this.#pause = pause;
  }

  /** Returns the number of useful responses of a registry. */
  responsesOf(registry: string): number {
    return this.#responses.get(registry) ?? 0;
  }

  /** Counts a useful response, or a part of one. */
  noteResponse(registry: string): void {
    this.#responses.set(registry, this.responsesOf(registry) + 1);
    this.#registries.delete(registry);
  }

  /** Stops requests to a registry, unless it has sent more useful responses than this number. */
  open(registry: string, error: PluginError, responses: number): void {
    if (this.responsesOf(registry) > responses) return;
    this.#registries.set(registry, { error, until: performance.now() + this.#pause });
  }

  isOpen(registry: string): boolean {
    return this.#registries.has(registry);
  }

  /** Throws the failure of a registry. Lets one request through after each pause, to test the registry. */
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
