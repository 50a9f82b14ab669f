import { expect } from 'chai';
import { parseDuration, parseSize } from '../../../cmd/cli/values.ts';
import { isPluginError } from '../../../lib/errors.ts';

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

describe('parseSize', () => {
  it('reads sizes as Kubernetes does', () => {
    const sizes = ['3900M', '4G', '4Gi', '700MB', '4.3GiB', '64Ki', '10k', '1'];
    expect(sizes.map(parseSize)).to.deep.equal([
      3_900_000_000,
      4_000_000_000,
      4 * 1024 ** 3,
      700_000_000,
      Math.floor(4.3 * 1024 ** 3),
      64 * 1024,
      10_000,
      1,
    ]);
  });

  it('knows each unit of Kubernetes, and no other', () => {
    const units = ['k', 'K', 'M', 'G', 'T', 'Ki', 'Mi', 'Gi', 'Ti'];
    const powers = [1, 1, 2, 3, 4].map((power) => 1000 ** power);
    const binary = [1, 2, 3, 4].map((power) => 1024 ** power);
    expect(units.map((unit) => parseSize(`1${unit}`))).to.deep.equal([...powers, ...binary]);
  });

  it('fits 4G on FAT32, whose files have at most 2³² - 1 bytes', () => {
    expect(parseSize('4G')).to.be.below(2 ** 32);
  });

  it('refuses everything else, and explains the format of sizes', () => {
    for (const text of ['', '0', '0.0001', '-1G', '4g', '3900m', '4 G', '1e9', '4Gib', 'G', '9999999T', '½G']) {
      try {
        expect.fail(`${text} is ${parseSize(text)}`);
      } catch (error) {
        expect(isPluginError(error, 'usage'), text).to.equal(true);
      }
    }
  });
});
