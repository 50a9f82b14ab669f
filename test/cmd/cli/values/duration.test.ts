import { expect } from 'chai';
import { parseDuration } from '../../../../cmd/cli/values.ts';

describe('parseDuration', () => {
  it('reads seconds, minutes and hours', () => {
    for (const [text, time] of [
      ['90s', 90_000],
      ['10m', 600_000],
      ['24h', 86_400_000],
      ['10', 10_000],
      ['1m30s', 90_000],
      ['1.5h', 5_400_000],
      ['500ms', 500],
      ['0', 0],
      ['0s', 0],
    ] as const)
      expect(parseDuration(text), text).to.equal(time);
  });

  it('refuses everything else', () => {
    for (const text of ['', '-5m', '1.h', '30s1', '25h', '10 m', 'm', '1d', '99999999999s', 'soon']) {
      expect(() => parseDuration(text), text).to.throw('is not a time');
    }
  });
});
