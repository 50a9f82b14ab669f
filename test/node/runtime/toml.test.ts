import { expect } from 'chai';
import { readToml, stringsOf } from '../../../lib/node/runtime/storageConfig.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('readToml', () => {
  it('reads tables, dotted keys, lists and tables of the same name', () => {
    const values = readToml('a.b = "1"\n[c]\nd = ["2", "3"]\n[[r]]\np = "4"\n[[r]]\np = "5"\n', 'x.conf');
    expect(['a.b', 'c.d', 'r.p'].map((key) => stringsOf(values, key))).to.deep.equal([['1'], ['2', '3'], ['4', '5']]);
    expect(stringsOf(values, 'c.e')).to.equal(undefined);
  });

  it('tells an empty list from none', () => {
    expect(stringsOf(readToml('[c]\nd = []\n', 'x.conf'), 'c.d')).to.deep.equal([]);
  });

  it('names the line of an invalid file, and never its text', async () => {
    const error = await failureOf(
      Promise.resolve().then(() => readToml('a = 1\npassword = secret\n', 'x.conf')),
      'invalid-file',
    );
    expect(error.message).to.equal('x.conf is not valid TOML: line 2');
  });
});
