import { expect } from 'chai';
import { layOutTreemap } from '../../../../cmd/upgrade-bundle/report/reportFigure.ts';

const area = { x: 10, y: 20, width: 600, height: 400 };

describe('layOutTreemap', () => {
  it('gives each item an area in proportion to its weight, inside the whole', () => {
    const items = [6, 6, 4, 3, 2, 2, 1].map((weight) => ({ weight }));
    const tiles = layOutTreemap(items, area);
    for (const { item, x, y, width, height } of tiles) {
      expect(width * height).to.be.closeTo((item.weight / 24) * 600 * 400, 1e-6);
      expect(x).to.be.at.least(10 - 1e-9);
      expect(y).to.be.at.least(20 - 1e-9);
      expect(x + width).to.be.at.most(610 + 1e-9);
      expect(y + height).to.be.at.most(420 + 1e-9);
    }
  });

  it('lays out the example of the paper as the paper does', () => {
    const items = [6, 6, 4, 3, 2, 2, 1].map((weight) => ({ weight }));
    const tiles = layOutTreemap(items, { x: 0, y: 0, width: 6, height: 4 });
    const places = tiles.map(({ x, y, width, height }) =>
      [x, y, width, height].map((value) => Number(value.toFixed(2))),
    );
    expect(places).to.deep.equal([
      [0, 0, 3, 2],
      [0, 2, 3, 2],
      [3, 0, 1.71, 2.33],
      [4.71, 0, 1.29, 2.33],
      [3, 2.33, 1.2, 1.67],
      [4.2, 2.33, 1.2, 1.67],
      [5.4, 2.33, 0.6, 1.67],
    ]);
  });

  it('leaves out items of size 0, and draws nothing without items', () => {
    expect(layOutTreemap([{ weight: 0 }, { weight: 5 }], area)).to.have.length(1);
    expect(layOutTreemap([{ weight: 0 }], area)).to.deep.equal([]);
  });

  it('stays finite with weights of every size', () => {
    const items = Array.from({ length: 300 }, (_, index) => ({ weight: 2 ** (index % 53) }));
    for (const { x, y, width, height } of layOutTreemap(items, area)) {
      for (const value of [x, y, width, height]) expect(value).to.be.within(0, 700);
    }
  });
});
