import { expect } from 'chai';
import { findSimilar } from '../../../cmd/cli/similar.ts';

describe('findSimilar', () => {
  const words = ['create', 'inspect', 'verify', 'serve', 'push', 'o'];
  for (const [word, similar] of [
    ['creat', 'create'],
    ['craete', 'create'],
    ['insp', 'inspect'],
    ['serv', 'serve'],
    ['verfy', 'verify'],
    ['psuh', 'push'],
    ['dance', undefined],
    ['z', undefined],
    ['', undefined],
  ] as const) {
    it(`takes ${word || 'nothing'} for ${similar ?? 'none of them'}`, () => {
      expect(findSimilar(word, words)).to.equal(similar);
    });
  }
});
