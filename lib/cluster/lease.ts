import { setTimeout as sleepFor } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Written } from '#config/manifest';
import type { Clock } from '#content/http';
import { checkInterrupted, type Context } from '#context';
import { isPluginError, messageOf } from '#errors';
import { fieldsOf } from '#fields';
import type { Cluster } from './client.ts';
import type { StoredObject } from './objects/storedObject.ts';

type LeaseSpec = NonNullable<Written<'Lease'>['spec']>;

interface StoredLease extends StoredObject {
  readonly spec?: LeaseSpec;
}

/** A Lease, and a contender for it. Times are in milliseconds. */
export interface LeaseOptions {
  readonly name: string;
  readonly namespace: string;
  readonly identity: string;
  /** The time for which the Lease excludes others after a renewal, in full seconds; default 40 s. */
  readonly duration?: number | undefined;
  /** The pause between two renewals; default a fifth of the duration. */
  readonly retryPeriod?: number | undefined;
  /**
   * The average pause between two attempts to take a held Lease; by default the pause between renewals. With many
   * contenders, each needs few attempts.
   */
  readonly acquirePeriod?: number | undefined;
  /** The clock; by default the monotonic clock of the system. */
  readonly clock?: Clock;
}

/** The part of the duration after which a leader that cannot renew stops. Another may start only later. */
const deadlineShare = 0.75;
/** The time limit for releasing the Lease, in milliseconds. */
const releaseTime = 5000;

const monotonicClock: Clock = {
  now: () => performance.now(),
  sleep: (time, signal) => sleepFor(time, undefined, { signal }),
};

/**
 * Runs `lead` each time it gets the Lease. If it loses the Lease, aborts the signal of `lead` and contends again.
 * Releases the Lease and ends when `lead` returns. Creates a missing Lease. Throws the errors of `lead`, and
 * `interrupted`.
 */
export async function leadWithLease(
  cluster: Cluster,
  options: LeaseOptions,
  context: Context,
  lead: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const lease = new Lease(cluster, options, context);
  for (;;) {
    while (!(await lease.tryToTake())) await lease.pause();
    context.log('info', `${options.identity} leads: it has the Lease ${options.name}`);
    if (await lease.keepDuring(lead)) return;
    context.log('info', `${options.identity} no longer leads`);
  }
}

/**
 * One contender for a Lease, after client-go’s leader election. A Lease excludes others for its duration since this
 * contender saw it change, by its own clock. The clocks of other contenders do not matter.
 */
class Lease {
  readonly #cluster: Cluster;
  readonly #options: LeaseOptions;
  readonly #context: Context;
  readonly #clock: Clock;
  readonly #duration: number;
  /** The Lease as this contender has last written it, until a write fails. */
  #own: StoredLease | undefined;
  #seen: LeaseSpec = {};
  #seenAt = 0;
  /** When the last successful take or renewal began. Its answer may be late, and others count from its write. */
  #renewedAt = 0;

  constructor(cluster: Cluster, options: LeaseOptions, context: Context) {
    this.#cluster = cluster;
    this.#options = options;
    this.#context = context;
    this.#clock = options.clock ?? monotonicClock;
    this.#duration = options.duration ?? 40_000;
  }

  /** Takes or renews the Lease; false if another contender holds it, or the request failed. Throws `interrupted`. */
  async tryToTake(): Promise<boolean> {
    const { identity } = this.#options;
    const begun = this.#clock.now();
    // A renewal needs no read: the write fails if another contender has changed the Lease.
    const known = this.#own;
    this.#own = undefined;
    try {
      const lease = known ?? (await this.#read(this.#cluster));
      if (!lease) return await this.#create();
      const { spec = {} } = lease;
      this.#note(spec);
      if (this.#isTaken()) return false;
      const { acquireTime, leaseTransitions } = spec;
      const isOwn = spec.holderIdentity === identity;
      const now = microTime();
      const stored = await this.#cluster.update({
        ...lease,
        spec: {
          ...spec,
          holderIdentity: identity,
          leaseDurationSeconds: Math.ceil(this.#duration / 1000),
          acquireTime: isOwn ? (acquireTime ?? now) : now,
          renewTime: now,
          leaseTransitions: (leaseTransitions ?? 0) + (isOwn ? 0 : 1),
        } satisfies LeaseSpec,
      });
      this.#note(fieldsOf(stored['spec']));
      this.#own = stored;
      this.#renewedAt = begun;
      return true;
    } catch (error) {
      checkInterrupted(this.#context.signal);
      // Another contender was faster.
      if (isPluginError(error, 'conflict')) return known ? await this.tryToTake() : false;
      this.#context.log('debug', `cannot take the Lease ${this.#options.name}: ${messageOf(error)}`);
      return false;
    }
  }

  /**
   * Waits until the next attempt, for a random time, so that contenders do not wait equally long. Throws `interrupted`.
   */
  async pause(): Promise<void> {
    const { signal } = this.#context;
    const period = this.#options.acquirePeriod ?? this.#retryPeriod;
    await this.#clock.sleep(period * (0.75 + Math.random() / 2), signal).catch(() => undefined);
    checkInterrupted(signal);
  }

  /** Runs `lead`, and renews the Lease meanwhile. Returns true if `lead` returned, false if the Lease is lost. */
  async keepDuring(lead: (signal: AbortSignal) => Promise<void>): Promise<boolean> {
    const [lost, ended] = [new AbortController(), new AbortController()];
    const signal = AbortSignal.any([lost.signal, this.#context.signal]);
    const watching = AbortSignal.any([signal, ended.signal]);
    const renewing = this.#renew(watching, lost);
    try {
      await lead(signal);
      return true;
    } catch (error) {
      if (lost.signal.aborted && isPluginError(error, 'interrupted')) return false;
      throw error;
    } finally {
      ended.abort();
      await renewing;
      if (!lost.signal.aborted) await this.#release();
    }
  }

  get #retryPeriod(): number {
    return this.#options.retryPeriod ?? this.#duration / 5;
  }

  /** Renews until the signal is aborted. Aborts `lost` if another contender holds the Lease, or at the deadline. */
  async #renew(signal: AbortSignal, lost: AbortController): Promise<void> {
    const watchDeadline = async (): Promise<void> => {
      while (!signal.aborted) {
        const remaining = this.#renewedAt + this.#duration * deadlineShare - this.#clock.now();
        if (remaining <= 0) lost.abort();
        else await this.#clock.sleep(remaining, signal).catch(() => undefined);
      }
    };
    const watching = watchDeadline();
    for (;;) {
      await this.#clock.sleep(this.#retryPeriod, signal).catch(() => undefined);
      if (signal.aborted) return watching;
      const isRenewed = await this.tryToTake().catch(() => false);
      if (!isRenewed && this.#isTaken()) lost.abort();
    }
  }

  /** Releases the Lease, so that another contender can take it immediately. */
  async #release(): Promise<void> {
    const { name, identity } = this.#options;
    const cluster = this.#cluster.detached(AbortSignal.timeout(releaseTime));
    try {
      const lease = await this.#read(cluster);
      if (lease?.spec?.holderIdentity !== identity) return;
      const released: LeaseSpec = { ...lease.spec, holderIdentity: '', leaseDurationSeconds: 1 };
      await cluster.update({ ...lease, spec: released });
    } catch (error) {
      this.#context.log('debug', `cannot release the Lease ${name}: ${messageOf(error)}`);
    }
  }

  #read(cluster: Cluster): Promise<StoredLease | undefined> {
    const { name, namespace } = this.#options;
    return cluster.read({ apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name, namespace } });
  }

  /** Creates a Lease that was deleted. The next attempt takes it. */
  async #create(): Promise<false> {
    const { name, namespace } = this.#options;
    const metadata = { name, namespace };
    const lease: Written<'Lease'> = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata, spec: {} };
    await this.#cluster.create(lease);
    this.#context.log('warn', `created the Lease ${name} in ${namespace}, which was missing`);
    return false;
  }

  #note(spec: LeaseSpec): void {
    if (isDeepStrictEqual(spec, this.#seen)) return;
    this.#seen = spec;
    this.#seenAt = this.#clock.now();
  }

  #isTaken(): boolean {
    const { holderIdentity: holder = '', leaseDurationSeconds = 0 } = this.#seen;
    if (holder === '' || holder === this.#options.identity) return false;
    return this.#clock.now() < this.#seenAt + leaseDurationSeconds * 1000;
  }
}

/** Returns the present time as a MicroTime, which has six decimals. */
function microTime(): string {
  return new Date().toISOString().replace('Z', '000Z');
}
