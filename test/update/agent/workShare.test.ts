import { expect } from 'chai';
import { WorkShare } from '../../../lib/update/agent/agentJob.ts';

describe('WorkShare', () => {
  it('estimates the rest from what was done since its begin, after a while', () => {
    let now = 0;
    const work = new WorkShare(1000, 500, () => now);
    work.add(100);
    now = 9000;
    expect(work.share).to.deep.equal({ percent: 60, secondsLeft: undefined });
    now = 20_000;
    expect(work.share).to.deep.equal({ percent: 60, secondsLeft: 80 });
  });

  it('is never 100 % before everything is done, and unknown if there is nothing to do', () => {
    const work = new WorkShare(10_000);
    work.add(9_999);
    expect(work.share?.percent).to.equal(99);
    work.add(1);
    expect(work.share).to.deep.equal({ percent: 100, secondsLeft: undefined });
    expect(new WorkShare(0).share).to.equal(undefined);
  });
});
