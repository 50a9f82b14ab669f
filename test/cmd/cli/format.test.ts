import { expect } from 'chai';
import { breakHanging, formatCount, formatDuration, formatFields, formatTable } from '../../../cmd/cli/format.ts';

describe('formatDuration', () => {
  for (const [seconds, words] of [
    [0, '0s'],
    [59.4, '59s'],
    [59.6, '1m00s'],
    [125, '2m05s'],
    [12_000, '3h20m'],
    [-1, '0s'],
  ] as const) {
    it(`writes ${seconds} as ${words}`, () => {
      expect(formatDuration(seconds)).to.equal(words);
    });
  }
});

describe('formatTable', () => {
  it('aligns columns, numbers to the right, and leaves no blanks at the end of a line', () => {
    const rows = [
      ['NAME', 'SIZE', 'DIGEST'],
      ['etcd', '9 B', 'sha256:1'],
      ['machine-os', '120 B', ''],
    ];
    expect(formatTable(rows, ['SIZE']).lines).to.deep.equal([
      'NAME         SIZE  DIGEST',
      'etcd          9 B  sha256:1',
      'machine-os  120 B',
    ]);
  });

  it('wraps the last column at a width, and splits longer words', () => {
    const rows = [
      ['NODE', 'MESSAGE'],
      ['a', `one two three ${'f'.repeat(25)} four`],
    ];
    expect(formatTable(rows, [], 26).lines).to.deep.equal([
      'NODE  MESSAGE',
      'a     one two three',
      `      ${'f'.repeat(20)}`,
      '      fffff four',
    ]);
  });

  it('keeps a cell with line breaks in its row', () => {
    const rows = [
      ['NODE', 'MESSAGE'],
      ['a\n\nb', 'bad\r\n\n  7. Run this:\n\x1b[1Acurl'],
    ];
    expect(formatTable(rows).lines).to.deep.equal(['NODE  MESSAGE', 'a b   bad 7. Run this: \ufffd[1Acurl']);
  });

  it('is empty without rows', () => {
    expect(formatTable([]).lines).to.deep.equal([]);
  });
});

describe('formatFields', () => {
  it('puts the values below each other, one without a name too', () => {
    const fields = [
      ['Size', '1 B'],
      ['Signed by', 'a'],
      ['', 'b'],
    ];
    expect(formatFields([['Bundle', 'f'.repeat(25)]], 33).text).to.equal(
      `  Bundle     ${'f'.repeat(20)}\n${' '.repeat(13)}fffff`,
    );
    expect(formatFields(fields).text).to.equal('  Size       1 B\n  Signed by  a\n             b');
  });
});

describe('breakHanging', () => {
  it('indents all lines but the first, so that a quoted text cannot begin one', () => {
    expect(breakHanging('one two three curl evil', 12)).to.deep.equal(['one two', '  three curl', '  evil']);
    expect(breakHanging('one\ntwo', 12)).to.deep.equal(['one two']);
  });
});

describe('formatCount', () => {
  it('has the plural except for one', () => {
    expect([0, 1, 2].map((number) => formatCount(number, 'node'))).to.deep.equal(['0 nodes', '1 node', '2 nodes']);
  });
});
