/** The rate below which a node counts as slow if no other rate is known, in bytes per second. */
const usualRate = 1024 * 1024;
/** The lowest rate that agents accept, in bytes per second: they leave slower clients, too. */
const leastRate = 64 * 1024;
/** A node that sends less than this part of the rate of another one counts as slow. */
const leastPart = 1 / 4;
/** The bytes from which a rate says something. */
const leastBytes = 1024 * 1024;
/**
 * The time in which a node must reach its rate, in milliseconds; longer for one that is asked as the last. It doubles
 * each time that a node was too slow, up to `longest`, because all nodes may be busy.
 */
const usualWindows = { first: 4000, last: 30_000, longest: 60_000 };
/** How many times a node must be too slow before it is asked while others only have no free place. */
const leastSlow = 3;
/** The time in which a node is not asked again before others, in milliseconds. */
const pauses = { slow: 60_000, wrong: 10 * 60_000 } as const;

/** What an agent has seen of another node. */
interface Standing {
  /** The bytes per second that it sent last. */
  readonly rate: number | undefined;
  /** It is asked after others until then. */
  readonly until: number | undefined;
  /** How many times in succession it was too slow. */
  readonly slow: number;
}

/** The rates of other nodes, and which of them sent something wrong. It is forgotten when the agent ends. */
export class PeerStandings {
  readonly #standings = new Map<string, Standing>();
  readonly #windows: typeof usualWindows;

  constructor(windows = usualWindows) {
    this.#windows = windows;
  }

  /** Returns whether a node is asked after others. */
  isLast(name: string): boolean {
    return (this.#standings.get(name)?.until ?? -Infinity) > performance.now();
  }

  /** Notes how a transfer from a node ended. `rate`: its mean, in bytes per second; `bytes`: what it sent. */
  note(name: string, outcome: PeerOutcome, rate: number, bytes: number): void {
    const isMeasured = bytes >= leastBytes || outcome === 'slow';
    const pause = outcome === 'slow' || outcome === 'wrong' ? pauses[outcome] : 0;
    const { rate: before, until, slow = 0 } = this.#standings.get(name) ?? {};
    this.#standings.set(name, {
      rate: isMeasured ? rate : before,
      slow: outcome === 'slow' ? slow + 1 : outcome === 'complete' ? 0 : slow,
      until: outcome === 'complete' ? undefined : pause > 0 ? performance.now() + pause : until,
    });
  }

  /** Returns the limit for a node that is asked first: a part of what the fastest other node sent. */
  limitFor(name: string): RateLimit {
    const others = [...this.#standings].flatMap(([other, { rate }]) => (other === name ? [] : (rate ?? [])));
    const best = Math.max(0, ...others);
    const { first, longest } = this.#windows;
    const window = Math.min(longest, first * 2 ** (this.#standings.get(name)?.slow ?? 0));
    return { rate: best >= leastRate ? best * leastPart : usualRate, window };
  }

  /**
   * Returns the limit for a slow node if no other node sends. Undefined if it hardly sends: others may be less busy
   * soon. `isOtherBusy`: another node only has no free place. It is waited for, but not forever: it may lie.
   */
  lastLimitFor(name: string, isOtherBusy: boolean): RateLimit | undefined {
    const { rate = 0, slow = 0 } = this.#standings.get(name) ?? {};
    if (rate < leastRate || (isOtherBusy && slow < leastSlow)) return undefined;
    const limit = { rate: Math.max(leastRate, rate * leastPart), window: this.#windows.last };
    return isOtherBusy ? { ...limit, longest: this.#windows.longest } : limit;
  }

  /** Sorts nodes by what they sent, the fastest first. */
  sortByRate<T extends { readonly name: string }>(nodes: readonly T[]): T[] {
    const rateOf = ({ name }: T): number => this.#standings.get(name)?.rate ?? 0;
    return nodes.toSorted((a, b) => rateOf(b) - rateOf(a));
  }
}

/** The end of a transfer from a node. `busy`: it has no free place. */
export type PeerOutcome = 'complete' | 'slow' | 'wrong' | 'refused' | 'busy';

/** The lowest rate (bytes per second) over each window (milliseconds), and the longest time of a transfer. */
export interface RateLimit {
  readonly rate: number;
  readonly window: number;
  readonly longest?: number;
}

/** The interval of the measurement, in milliseconds. */
const interval = 250;

/**
 * Measures what a node sends, and aborts a signal below a limit. Does not count a time in which this process was
 * blocked.
 */
export class PeerPace implements Disposable {
  readonly #stop = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly #start = performance.now();
  #since = this.#start;
  #checked = this.#start;
  #recent = 0;
  #bytes = 0;

  /** `reason`: the reason of the signal; by default an AbortError. */
  constructor({ rate, window, longest = Infinity }: RateLimit, reason?: Error) {
    this.#timer = setInterval(() => {
      const now = performance.now();
      if (now - this.#start > longest) this.#stop.abort(reason);
      const isLate = now - this.#checked > 2 * interval;
      this.#checked = now;
      if (!isLate && now - this.#since < window) return;
      if (!isLate && this.#recent < (rate * (now - this.#since)) / 1000) this.#stop.abort(reason);
      this.#since = now;
      this.#recent = 0;
    }, interval);
    this.#timer.unref();
  }

  /** Aborted if the node is too slow. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** The mean rate, in bytes per second. */
  get rate(): number {
    return (this.#bytes / Math.max(1, performance.now() - this.#start)) * 1000;
  }

  /** All bytes that were counted. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Counts bytes that the node sent. */
  count(bytes: number): void {
    this.#recent += bytes;
    this.#bytes += bytes;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}
