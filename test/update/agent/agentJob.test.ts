import { once } from 'node:events';
import { expect } from 'chai';
import { PluginError } from '../../../lib/errors.ts';
import { AgentJob, WorkShare } from '../../../lib/update/agent/agentJob.ts';
import { makeContext } from '../../support/context.ts';
import { until } from '../../support/until.ts';

describe('AgentJob', () => {
  const idle = (): Promise<void> => Promise.resolve();
  const fail = (): Promise<void> => Promise.reject(new PluginError('disk-full', 'it is full', { hint: 'Make room.' }));

  it('does one job at a time, and reports its end', async () => {
    const job = new AgentJob(makeContext());
    let end: () => void = () => undefined;
    job.start('load', 'loading', () => new Promise<void>((resolve) => (end = resolve)));
    job.start('pin', 'pinning', idle);
    expect([job.kind, job.name]).to.deep.equal(['load', 'loading']);
    const { ended } = job;
    expect(ended.aborted).to.equal(false);
    end();
    await until(() => ended.aborted);
    expect([job.kind, job.failure]).to.deep.equal([undefined, undefined]);
    job.start('pin', 'pinning', idle);
    await until(() => job.kind === undefined);
    // Reported once, also if it is read only later.
    expect([job.ended.aborted, job.ended.aborted]).to.deep.equal([true, false]);
  });

  it('keeps its error and advice, and does not retry at once', async () => {
    const context = makeContext();
    const job = new AgentJob(context);
    job.start('load', 'loading', fail);
    await until(() => job.failure !== undefined);
    expect(job.failure).to.equal('it is full (Make room.)');
    expect(context.lines.join()).to.contain('warn: loading: it is full (Make room.); trying again in 5 s');
    job.start('load', 'loading', idle);
    expect(job.kind).to.equal(undefined);
    job.clearFailure();
    job.start('load', 'loading', idle);
    await until(() => job.kind === undefined);
    expect(job.failure).to.equal(undefined);
  });

  it('logs a job that is retried without a result once, and again after a change', async () => {
    const context = makeContext();
    const job = new AgentJob(context);
    const run = async (name: string, outcome: boolean): Promise<void> => {
      job.start('fetch', name, () => Promise.resolve(outcome));
      await until(() => job.kind === undefined);
    };
    for (const outcome of [false, false, false, true, false]) await run('fetching', outcome);
    const lines = context.lines.filter((line) => line.endsWith('fetching'));
    expect(lines.map((line) => line.split(':')[0])).to.deep.equal(['info', 'debug', 'debug', 'debug', 'info']);
    await run('fetching the base', false);
    expect(context.lines.at(-1)).to.equal('info: fetching the base');
  });

  it('can be stopped, which is no failure', async () => {
    const job = new AgentJob(makeContext());
    job.start('fetch', 'fetching', async ({ signal }) => {
      await once(signal, 'abort');
    });
    await job.stop();
    expect([job.kind, job.failure]).to.deep.equal([undefined, undefined]);
    await job.stop();
  });
});

describe('WorkShare', () => {
  it('estimates the rest from the progress since its begin, after a while', () => {
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
