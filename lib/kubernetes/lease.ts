import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { checkInterrupted, type Context } from '../context.ts';
import { isPluginError, messageOf } from '../errors.ts';
import type { Cluster } from './client.ts';
import type { StoredObject } from './fields.ts';
import { fieldsOf, textOf, type Fields } from './fields.ts';

/** Which Lease, and who wants it. Times are in milliseconds. */
export interface LeaseOptions {
  readonly name: string;
  readonly namespace: string;
  readonly identity: string;
  /** How long one that is not renewed keeps others out, full seconds; default 40 s. */
  readonly duration?: number | undefined;
  /** The pause between two renewals; default a fifth of the duration. */
  readonly retryPeriod?: number | undefined;
  /** The pause between two looks at one that somebody else has, more or less; default the same. Where there are many, they need not look often. */
  readonly lookPeriod?: number | undefined;
}

/** Of the duration: who has not renewed for so long stops leading, well before somebody else may begin. */
const deadlineShare = 0.75;
const farewellTime = 5000;

/**
 * Leads whenever it gets the Lease, and until it loses it: then the signal of `lead` is aborted, and it waits for its turn again. Ends, and gives
 * the Lease up, when `lead` ends by itself; throws what that throws, and `interrupted` when the context is. The Lease has to exist.
 */
export async function leadWithLease(
  cluster: Cluster,
  options: LeaseOptions,
  context: Context,
  lead: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const lease = new Lease(cluster, options, context);
  for (;;) {
    // Not all at the same moment.
    while (!(await lease.tryToTake())) await pause(lease.lookPeriod * (0.75 + Math.random() / 2), context.signal);
    context.log('info', `${options.identity} leads, as the Lease ${options.name} says`);
    if (await lease.keepDuring(lead)) return;
    context.log('info', `${options.identity} leads no longer`);
  }
}

/**
 * One contender for a Lease, as client-go’s leader election has it: a holder is believed for as long as the Lease says since this contender saw
 * it change, by its own clock. What the clocks of others say does not matter.
 */
class Lease {
  readonly retryPeriod: number;
  readonly lookPeriod: number;
  readonly #cluster: Cluster;
  readonly #options: LeaseOptions;
  readonly #context: Context;
  readonly #duration: number;
  #seen: Fields = {};
  #seenAt = 0;
  #missed = false;

  constructor(cluster: Cluster, options: LeaseOptions, context: Context) {
    this.#cluster = cluster;
    this.#options = options;
    this.#context = context;
    this.#duration = options.duration ?? 40_000;
    this.retryPeriod = options.retryPeriod ?? this.#duration / 5;
    this.lookPeriod = options.lookPeriod ?? this.retryPeriod;
  }

  /** Takes or renews it; false when somebody else has it, or it could not be done. Throws `interrupted`. */
  async tryToTake(): Promise<boolean> {
    const { name, namespace, identity } = this.#options;
    try {
      const metadata = { name, namespace };
      const found = await this.#cluster.read({ apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata });
      if (!found) return this.#miss();
      const spec = fieldsOf(found['spec']);
      this.#look(spec);
      if (this.#isTaken(spec)) return false;
      const { acquireTime, leaseTransitions } = spec;
      const mine = spec['holderIdentity'] === identity;
      const now = microTime();
      await this.#write(found, {
        holderIdentity: identity,
        leaseDurationSeconds: Math.ceil(this.#duration / 1000),
        acquireTime: mine ? (acquireTime ?? now) : now,
        renewTime: now,
        leaseTransitions: Number(leaseTransitions ?? 0) + (mine ? 0 : 1),
      });
      return true;
    } catch (error) {
      checkInterrupted(this.#context.signal);
      // Somebody was faster.
      if (isPluginError(error, 'conflict')) return false;
      this.#context.log('debug', `the Lease ${name} cannot be had: ${messageOf(error)}`);
      return false;
    }
  }

  #miss(): false {
    const { name, namespace } = this.#options;
    if (!this.#missed)
      this.#context.log('warn', `${namespace} has no Lease ${name}: nobody can lead until it is there`);
    this.#missed = true;
    return false;
  }

  /** Leads and renews; true when `lead` has ended by itself, false when the Lease is lost. */
  async keepDuring(lead: (signal: AbortSignal) => Promise<void>): Promise<boolean> {
    const [lost, ended] = [new AbortController(), new AbortController()];
    const signal = AbortSignal.any([lost.signal, this.#context.signal]);
    const deadline = setTimeout(() => {
      lost.abort();
    }, this.#duration * deadlineShare);
    const renewing = this.#renew(AbortSignal.any([signal, ended.signal]), () => deadline.refresh(), lost);
    try {
      await lead(signal);
      return true;
    } catch (error) {
      if (lost.signal.aborted && isPluginError(error, 'interrupted')) return false;
      throw error;
    } finally {
      ended.abort();
      clearTimeout(deadline);
      await renewing;
      if (!lost.signal.aborted) await this.#giveUp();
    }
  }

  async #renew(signal: AbortSignal, onRenewed: () => void, lost: AbortController): Promise<void> {
    for (;;) {
      await sleep(this.retryPeriod, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      const taken = await this.tryToTake().catch(() => false);
      if (taken) onRenewed();
      else if (this.#isTaken(this.#seen)) lost.abort();
    }
  }

  /** So that the next one need not wait until it runs out. */
  async #giveUp(): Promise<void> {
    const { name, namespace, identity } = this.#options;
    const cluster = this.#cluster.within(AbortSignal.timeout(farewellTime));
    try {
      const metadata = { name, namespace };
      const found = await cluster.read({ apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata });
      const spec = fieldsOf(found?.['spec']);
      if (!found || spec['holderIdentity'] !== identity) return;
      await cluster.update({ ...found, spec: { ...spec, holderIdentity: '', leaseDurationSeconds: 1 } });
    } catch (error) {
      this.#context.log('debug', `the Lease ${name} was not given up: ${messageOf(error)}`);
    }
  }

  async #write(found: StoredObject, spec: Fields): Promise<void> {
    const stored = await this.#cluster.update({ ...found, spec: { ...fieldsOf(found['spec']), ...spec } });
    this.#look(fieldsOf(stored['spec']));
  }

  #look(spec: Fields): void {
    if (isDeepStrictEqual(spec, this.#seen)) return;
    this.#seen = spec;
    this.#seenAt = performance.now();
  }

  #isTaken({ holderIdentity, leaseDurationSeconds }: Fields): boolean {
    const holder = textOf(holderIdentity);
    if (holder === undefined || holder === this.#options.identity) return false;
    return performance.now() < this.#seenAt + Number(leaseDurationSeconds ?? 0) * 1000;
  }
}

async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  await sleep(milliseconds, undefined, { signal }).catch(() => undefined);
  checkInterrupted(signal);
}

/** Now, with the six digits that a MicroTime has. */
function microTime(): string {
  return new Date().toISOString().replace('Z', '000Z');
}
