import { expect } from 'chai';
import { awaitThat } from '../../../lib/update/record/poolRollout.ts';
import { makeContext } from '../../support/context.ts';

describe('awaitThat', () => {
  const now = Date.now;
  afterEach(() => {
    Date.now = now;
  });

  it('logs a reason to wait when it changes, and every minute', async () => {
    let time = now();
    Date.now = () => time;
    const reasons = ['1 of 3', '1 of 3', '1 of 3', '2 of 3', '2 of 3', '2 of 3', '2 of 3', undefined];
    const logged: string[] = [];
    const log = (_: string, message: string): void => void logged.push(`${(time - start) / 1000} s ${message}`);
    const start = time;
    const find = (): Promise<string | undefined> => {
      time += 25_000;
      return Promise.resolve(reasons.shift());
    };
    await awaitThat(find, { timeout: 600_000, interval: 0 }, { ...makeContext(), log });
    expect(logged).to.deep.equal(['25 s waiting: 1 of 3', '100 s waiting: 2 of 3', '175 s waiting: 2 of 3']);
  });
});
