import { expect } from 'chai';
import { PluginError } from '../../lib/errors.ts';
import { parseRetryAfter, Patience, TransientError, type PatienceOptions } from '../../lib/store/patience.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/failure.ts';

const fast = { baseDelay: 1, longestDelay: 2 };
const unreachable = new PluginError('unreachable', 'q.io cannot be reached');
const busy = (retryAfter?: number) => new TransientError('rate-limited', 'q.io is busy', { retryAfter });

/** How many failures are endured before one is thrown. */
async function failuresOf(options: PatienceOptions, error: Error): Promise<number> {
  const patience = new Patience(options, makeContext());
  for (let count = 1; count < 1000; count += 1) {
    try {
      await patience.endure(error);
    } catch {
      return count;
    }
  }
  return Infinity;
}

describe('Patience', () => {
  it('endures transient errors for a number of attempts', async () => {
    expect(await failuresOf({ ...fast, attempts: 4 }, unreachable)).to.equal(4);
    expect(await failuresOf({ ...fast, attempts: 4 }, busy())).to.equal(4);
    expect(await failuresOf({ ...fast, attempts: 4 }, busy(0))).to.equal(4);
  });

  it('throws every other error at once', async () => {
    expect(await failuresOf(fast, new PluginError('denied', 'no'))).to.equal(1);
    expect(await failuresOf(fast, new Error('no'))).to.equal(1);
  });

  it('starts anew after real progress, not after a few bytes', async () => {
    const patience = new Patience({ ...fast, attempts: 2 }, makeContext());
    await patience.endure(unreachable);
    patience.progress(70_000);
    await patience.endure(unreachable);
    patience.progress(60_000);
    await failureOf(patience.endure(unreachable), 'unreachable');
  });

  it('waits as long as servers ask, up to a sum', async () => {
    expect(await failuresOf({ ...fast, attempts: 2, longestWait: 20 }, busy(5))).to.equal(5);
    const error = await failureOf(new Patience({}, makeContext()).endure(busy(3_600_000)), 'rate-limited');
    expect(error.message).to.contain('3600 s');
  });

  it('announces each wait, and ends it with the signal', async () => {
    const context = makeContext();
    const waiting = new Patience({ baseDelay: 60_000, longestDelay: 60_000 }, context).endure(unreachable);
    expect(context.lines).to.have.length(1);
    expect(context.lines[0]).to.match(/^info: q\.io cannot be reached; trying again in \d+ s$/);
    context.interrupt();
    await failureOf(waiting, 'interrupted');
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
    expect(parseRetryAfter('soon')).to.equal(undefined);
    expect(parseRetryAfter(undefined)).to.equal(undefined);
  });
});
