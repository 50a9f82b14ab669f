import { expect } from 'chai';
import { parseAllDocuments } from 'yaml';
import { messageOf } from '../../lib/errors.ts';
import { parseJson, withoutText } from '../../lib/oci/syntax.ts';

describe('parseJson', () => {
  const faultOf = (text: string): string => {
    try {
      parseJson(text);
    } catch (error) {
      return messageOf(error);
    }
    throw new Error('it was taken');
  };

  it('parses JSON', () => {
    expect(parseJson('{"a": [1, "x"]}')).to.deep.equal({ a: [1, 'x'] });
  });

  it('reports the position of malformed text, and does not quote it', () => {
    const cases: [string, string][] = [
      ['', 'line 1, column 1'],
      ['root:x:0:0:root:/root:/bin/bash\n', 'line 1, column 1'],
      ['{"a": secret}', 'line 1, column 7'],
      ['{\n  "a": 1,\n  secret\n}', 'line 3, column 3'],
      ['{"a": "secret', 'line 1, column 14'],
      ['{"a": "secret\u0001"}', 'line 1, column 14'],
      ['{} secret', 'line 1, column 4'],
      [`[${'1,'.repeat(500)}secret]`, 'line 1, column 1002'],
    ];
    for (const [text, place] of cases) expect(faultOf(text), text).to.equal(`malformed at ${place}`);
  });
});

describe('withoutText', () => {
  it('keeps the place in a YAML text, and nothing of that', () => {
    const [error] = parseAllDocuments('a: 1\nsecret: [token\n')[0]?.errors ?? [];
    expect(messageOf(error)).to.include('token');
    expect(withoutText(error).message).to.equal('malformed at line 3, column 1');
    expect(withoutText(new ReferenceError('Unresolved alias: secret')).message).to.equal('malformed');
  });
});
