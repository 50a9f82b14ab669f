import { expect } from 'chai';
import { readDocuments, readScalars } from '../../../lib/content/files/documents.ts';

const limits = { length: 4 * 1024 * 1024, tokens: 60_000 };

/** Returns the message of the error of reading a text; undefined if there is none. */
function faultOf(text: string, uniqueKeys = false): string | undefined {
  try {
    readDocuments(text, limits, uniqueKeys);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** `count` lines with different numbers. */
const lines = (count: number, line: (at: number) => string): string =>
  Array.from({ length: count }, (_, at) => `${line(at)}\n`).join('');

describe('readDocuments', () => {
  it('reads every document, and the last of repeated keys unless they must be unique', () => {
    expect(readDocuments('a: 1\n---\n{"b": [x]}\n', limits).values).to.deep.equal([{ a: 1 }, { b: ['x'] }]);
    expect(readDocuments('a: 1\na: 2\n', limits).values).to.deep.equal([{ a: 2 }]);
    expect(faultOf('b:\n  a: 1\n  a: 2\n', true)).to.equal('line 3 repeats a key');
    expect(faultOf('a: 1\n"a": 2\n', true)).to.equal('line 2 repeats a key');
    expect(faultOf('- a: 1\n- a: 2\n', true)).to.equal(undefined);
  });

  it('limits characters, tokens, aliases and nesting', () => {
    expect(faultOf('x'.repeat(5 * 1024 * 1024))).to.include('more than 4194304 characters');
    expect(faultOf(lines(300_000, (at) => `k${at}: 1`))).to.equal('it has more than 60000 YAML tokens');
    expect(faultOf(`- &a x\n${lines(1001, () => '- *a')}`)).to.equal('it has more than 1000 aliases');
    expect(faultOf(`- &a x\n${lines(101, () => '- *a')}`)).to.equal('aliases lead nowhere or multiply');
    expect(faultOf('- &a x\n- *a')).to.equal(undefined);
    expect(faultOf('['.repeat(20_000))).to.match(/^malformed/);
  });

  it('reads many unique keys without comparing each with all others, which would take minutes', () => {
    const text = lines(100_000, (at) => `k${at}: 1`);
    expect(Object.keys(readDocuments(text, { ...limits, tokens: 1_000_000 }, true).values[0] as object)).to.have.length(
      100_000,
    );
  });

  it('quotes no text in its errors', () => {
    for (const text of ['secret: [', '*secret', '"secret', 'a: &secret\n secret: *missing'])
      expect(faultOf(text), text)
        .to.match(/^(malformed|aliases)/)
        .and.to.not.include('secret');
  });
});

describe('readScalars', () => {
  it('finds scalars by their keys, with their places', () => {
    const text = 'A: x\nB:\n  C: 007\n  D: "q"\nE: [1]\n';
    const find = readScalars(text, limits);
    expect(find(['B', 'C'])).to.deep.include({ value: 7, source: '007', line: 3 });
    const { start = 0, end = 0, line } = find(['B', 'D']) ?? {};
    expect([text.slice(start, end), line]).to.deep.equal(['"q"', 4]);
    for (const keys of [['E'], ['B'], ['F'], ['A', 'B'], []]) expect(find(keys), keys.join()).to.equal(undefined);
    expect(readScalars('', limits)(['A'])).to.equal(undefined);
  });

  it('refuses repeated keys and several documents', () => {
    expect(() => readScalars('A: 1\nA: 2\n', limits)).to.throw('line 2 repeats a key');
    expect(() => readScalars('A: 1\n---\nA: 2\n', limits)).to.throw('more than one document');
  });
});
