import { expect } from 'chai';
import {
  parseRetryAfter,
  retry,
  RetryBudget,
  TransientError,
  type Clock,
  type RetryOptions,
} from '../../../lib/content/http/retry.ts';
import { PluginError } from '../../../lib/errors.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

const fast = { baseDelay: 1, longestDelay: 2 };
const unreachable = new PluginError('unreachable', 'q.io cannot be reached');
const busy = (retryAfter?: number) => new TransientError('rate-limited', 'q.io is busy', { retryAfter });

/** Returns a clock on which waiting takes no time. */
function makeClock(): Clock {
  let time = Date.UTC(2026, 0, 1, 12);
  return {
    now: () => time,
    sleep: (wait) => {
      time += wait;
      return Promise.resolve();
    },
  };
}

/** Returns the number of failures before one is thrown. */
async function failuresOf(options: RetryOptions, error: Error): Promise<number> {
  const budget = new RetryBudget(options, makeContext());
  for (let count = 1; count < 1000; count += 1) {
    try {
      await budget.waitAfter(error);
    } catch {
      return count;
    }
  }
  return Infinity;
}

describe('RetryBudget', () => {
  it('retries transient errors for a number of attempts', async () => {
    expect(await failuresOf({ ...fast, attempts: 4 }, unreachable)).to.equal(4);
    expect(await failuresOf({ ...fast, attempts: 4 }, busy())).to.equal(4);
    expect(await failuresOf({ ...fast, attempts: 4 }, busy(0))).to.equal(4);
  });

  it('throws every other error at once', async () => {
    expect(await failuresOf(fast, new PluginError('denied', 'no'))).to.equal(1);
    expect(await failuresOf(fast, new Error('no'))).to.equal(1);
  });

  it('resets after real progress, not after a few bytes', async () => {
    const budget = new RetryBudget({ ...fast, attempts: 2 }, makeContext());
    await budget.waitAfter(unreachable);
    budget.progress(70_000);
    await budget.waitAfter(unreachable);
    budget.progress(60_000);
    await failureOf(budget.waitAfter(unreachable), 'unreachable');
  });

  it('waits as long as servers ask, up to a sum', async () => {
    expect(await failuresOf({ ...fast, clock: makeClock(), attempts: 2, longestWait: 20_000 }, busy(5000))).to.equal(4);
    for (const [asked, words] of [
      [3_600_000, '60 min, longer than the limit of 10 min'],
      [24 * 3_600_000, '24 h, longer'],
      [Infinity, 'months, longer'],
    ] as const) {
      const error = await failureOf(new RetryBudget({}, makeContext()).waitAfter(busy(asked)), 'rate-limited');
      expect(error.message).to.contain(`q.io is busy; it asks to wait ${words}`);
    }
  });

  it('warns of a server that makes it wait for ten seconds, each minute, and gives up after ten', async () => {
    const clock = makeClock();
    const context = makeContext();
    const budget = new RetryBudget({ clock }, context);
    const start = clock.now();
    const warnings: [number, string][] = [];
    const endured = (async () => {
      for (;;) {
        const before = context.lines.length;
        await budget.waitAfter(busy(1000));
        const line = context.lines.slice(before).find((each) => each.startsWith('warn'));
        if (line !== undefined) warnings.push([clock.now() - start, line]);
      }
    })();
    const error = await failureOf(endured, 'rate-limited');
    expect(clock.now() - start).to.be.within(595_000, 600_000);
    expect(warnings).to.have.length.within(9, 11);
    expect(warnings[0]?.[0]).to.be.within(10_000, 12_000);
    const time = (after: number): string => new Date(start + after).toTimeString().slice(0, 8);
    expect(warnings[0]?.[1]).to.equal(
      `warn: q.io is busy; waiting since ${time(0)}, until ${time(600_000)} (10 min) at most`,
    );
    expect(error.message).to.contain(`it has asked to wait since ${time(0)}, for the limit of 10 min`);
    expect(context.lines.filter((line) => line.startsWith('info'))).to.deep.equal([]);
  });

  it('warns once of a server that makes many operations wait, immediately if the wait is long', async () => {
    const clock = makeClock();
    const context = makeContext();
    const warnings = { last: -Infinity };
    for (let count = 0; count < 3; count += 1) {
      await new RetryBudget({ clock: { ...clock, sleep: () => Promise.resolve() } }, context, warnings).waitAfter(
        busy(30_000),
      );
    }
    expect(context.lines.filter((line) => line.startsWith('warn'))).to.have.length(1);
  });

  it('resets its count after progress', async () => {
    const clock = makeClock();
    const budget = new RetryBudget({ clock, longestWait: 10_000 }, makeContext());
    for (let count = 0; count < 10; count += 1) {
      await budget.waitAfter(busy(5000));
      budget.progress(70_000);
    }
  });

  it('announces each wait, and ends it with the signal', async () => {
    const context = makeContext();
    const waiting = new RetryBudget({ baseDelay: 60_000, longestDelay: 60_000 }, context).waitAfter(unreachable);
    expect(context.lines).to.have.length(1);
    expect(context.lines[0]).to.match(/^info: q\.io cannot be reached; retrying in \d+ s$/);
    context.interrupt();
    await failureOf(waiting, 'interrupted');
  });
});

describe('retry', () => {
  it('waits after each failure, until the action succeeds', async () => {
    let tries = 0;
    const waits: unknown[] = [];
    const wait = async (error: unknown): Promise<void> => {
      await Promise.resolve();
      waits.push(error);
    };
    const action = (): Promise<unknown> =>
      (tries += 1) < 3 ? Promise.reject(unreachable) : Promise.resolve([...waits]);
    expect(await retry(action, wait)).to.deep.equal([unreachable, unreachable]);
  });
});

describe('parseRetryAfter', () => {
  it('reads seconds and dates', () => {
    expect(parseRetryAfter('120')).to.equal(120_000);
    const inAMinute = new Date(Date.now() + 60_000).toUTCString();
    expect(parseRetryAfter(inAMinute)).to.be.within(50_000, 60_000);
    expect(parseRetryAfter('Wed, 21 Oct 2015 07:28:00 GMT')).to.equal(0);
  });

  it('ignores anything else', () => {
    for (const text of ['soon', '-5', '5.5', '1e3', '', 'Wed, 99 Foo 2015 99:99:99 GMT']) {
      expect(parseRetryAfter(text), text).to.equal(undefined);
    }
    expect(parseRetryAfter(undefined)).to.equal(undefined);
  });
});
