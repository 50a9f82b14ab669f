import { expect } from 'chai';
import { MinimumThroughput } from '../../../lib/content/http/idleTimeout.ts';

describe('MinimumThroughput', () => {
  let now: number;
  let throughput: MinimumThroughput;
  beforeEach(() => {
    now = 0;
    throughput = new MinimumThroughput(8000, { now: () => now });
  });

  /** Checks at each interval, while `rate` bytes arrive in each second. */
  const receive = (rate: number, seconds: number, start = 0): boolean[] => {
    const checks: boolean[] = [];
    for (let passed = 2; passed <= seconds; passed += 2) {
      now += throughput.interval;
      checks.push(throughput.isTooSlow(start + rate * passed));
    }
    return checks;
  };

  it('takes 1 KiB/s, and refuses less at the end of each window', () => {
    expect(receive(1024, 16)).to.not.include(true);
    throughput.restart(0);
    expect(receive(1023, 8)).to.deep.equal([false, false, false, true]);
    expect(throughput.description).to.equal('sent less than 1 KiB/s for 8 s');
  });

  it('judges each window without the bytes of the one before', () => {
    expect(receive(100_000, 8)).to.not.include(true);
    expect(receive(1, 8, 800_000).at(-1)).to.equal(true);
  });

  it('leaves an answer of which nothing comes to the limit on silence', () => {
    expect(receive(0, 16)).to.not.include(true);
  });

  it('counts from a restart on', () => {
    expect(receive(1, 6)).to.not.include(true);
    throughput.restart(6);
    expect(receive(1, 6, 6)).to.not.include(true);
  });

  it('restarts if this process did not check for long', () => {
    now += 60_000;
    expect(throughput.isTooSlow(1)).to.equal(false);
    expect(receive(1, 6, 1)).to.not.include(true);
  });
});
