import { expect } from 'chai';
import { formatBytes } from '../lib/text.ts';

describe('formatBytes', () => {
  for (const [bytes, words] of [
    [0, '0 B'],
    [1023, '1023 B'],
    [1024, '1.0 KiB'],
    [1536, '1.5 KiB'],
    [102_400, '100 KiB'],
    [Math.ceil(99.95 * 1024), '100 KiB'],
    [Math.floor(99.95 * 1024) - 1, '99.9 KiB'],
    [1024 ** 2 - 1, '1.0 MiB'],
    [387 * 1024 ** 3, '387 GiB'],
    [5 * 1024 ** 6, '5120 PiB'],
  ] as const) {
    it(`writes ${bytes} as ${words}`, () => {
      expect(formatBytes(bytes)).to.equal(words);
    });
  }
});
