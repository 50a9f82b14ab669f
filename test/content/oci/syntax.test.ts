import { expect } from 'chai';
import { parseAllDocuments } from 'yaml';
import { parseJson, withoutText } from '../../../lib/content/oci/syntax.ts';
import { messageOf } from '../../../lib/errors.ts';

/** Assembles texts of the parts of JSON, the same ones each time. */
function* assembleTexts(count: number): Generator<string> {
  const parts = [...String.raw`{ } [ ] : , " "a" \ \u12 0 1 - . e tru null`.split(' '), '\n', ' '];
  let state = 7;
  const next = (limit: number): number => (state = (state * 48_271) % 2_147_483_647) % limit;
  for (let round = 0; round < count; round++)
    yield Array.from({ length: 1 + next(9) }, () => parts[next(parts.length)] ?? '').join('');
}

/** Returns the longest beginning of a text that JSON.parse could continue. */
function validPrefix(text: string): string {
  let length = 0;
  while (length < text.length && isBeginning(text.slice(0, length + 1))) length += 1;
  return text.slice(0, length);
}

function isBeginning(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    // V8 reports a position at the end of a text for what may continue.
    const [, at] = / at position (\d+)/.exec(messageOf(error)) ?? [];
    return messageOf(error).includes('Unexpected end of JSON') || Number(at) >= text.length;
  }
}

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

  it('reports the end of the longest valid prefix of any text', () => {
    for (const text of assembleTexts(3000)) {
      const lines = validPrefix(text).split('\n');
      const place = `line ${lines.length}, column ${(lines.at(-1)?.length ?? 0) + 1}`;
      try {
        expect(JSON.stringify(parseJson(text)), text).to.equal(JSON.stringify(JSON.parse(text)));
      } catch (error) {
        expect(messageOf(error), text).to.equal(`malformed at ${place}`);
      }
    }
  });

  it('refuses nesting that code could not visit, and counts no brackets in texts', () => {
    const nested = (depth: number): string => '[{"a":'.repeat(depth / 2) + '1' + '}]'.repeat(depth / 2);
    expect(parseJson(nested(256))).to.be.an('array');
    expect(faultOf(nested(258))).to.equal('nested more than 256 levels at line 1, column 769');
    expect(parseJson(`["${'[\\"{'.repeat(1000)}\\\\", {}]`)).to.have.length(2);
  });

  it('takes no longer than half a second for 4 MB of any shape', () => {
    const size = 4 * 1024 * 1024;
    const shapes = {
      lists: '['.repeat(size),
      objects: '{"a":'.repeat(size / 5),
      text: `"${'a'.repeat(size)}`,
      escapes: `["${'\\"'.repeat(size / 2)}`,
      backslashes: `"${'\\'.repeat(size)}`,
      'repeated keys': `{${'"a":1,'.repeat(size / 6)}}`,
      'a number': `[${'1'.repeat(1_000_000)}x`,
      numbers: `[${'1,'.repeat(size / 2)}]`,
      lines: '\n'.repeat(size),
      siblings: `[${'[],'.repeat(size / 3)}]`,
    };
    for (const [name, text] of Object.entries(shapes)) {
      const start = process.cpuUsage();
      faultOf(text);
      const { user, system } = process.cpuUsage(start);
      // Four times the limit, because other tests run at the same time.
      expect((user + system) / 1000, name).to.be.below(2000);
    }
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
