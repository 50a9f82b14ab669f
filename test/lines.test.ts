import { expect } from 'chai';
import { joinParagraphs, Lines, listBelow, toLine, withoutUrlPasswords } from '../lib/text.ts';

describe('toLine', () => {
  it('makes one line of a text with line breaks of any kind', () => {
    for (const lineBreak of ['\n', '\r', '\r\n', '\v', '\f', '\u0085', '\u2028', '\u2029', '\n\n  '])
      expect(toLine(`a ${lineBreak}b${lineBreak}`)).to.equal('a b');
    expect(toLine('\n\n')).to.equal('');
    expect(toLine('  a\t b ')).to.equal('  a\t b ');
  });

  it('replaces characters that control a terminal or change the order of text', () => {
    expect(toLine('a\x1b[2Kb\x07\x9b1m\u202ec')).to.equal('a\ufffd[2Kb\ufffd\ufffd1m\ufffdc');
  });
});

describe('Lines', () => {
  it('have a line for each string, and the lines of others', () => {
    const inner = new Lines('b\nc', 'd');
    expect(new Lines(listBelow('a', ['b\nc', 'd']), new Lines()).lines).to.deep.equal(['a', '  b c', '  d']);
    expect(new Lines('a', inner).text).to.equal('a\nb c\nd');
    expect(Lines.split('a\n  b\n\nc\n').lines).to.deep.equal(['a', '  b', '', 'c']);
    expect(joinParagraphs('a', '', new Lines(), inner, 'e').lines).to.deep.equal(['a', '', 'b c', 'd', '', 'e']);
  });
});

describe('withoutUrlPasswords', () => {
  it('leaves out users and passwords however they are written', () => {
    for (const [text, expected] of [
      ['GET http://bob:pw@host:1/a failed', 'GET http://REDACTED@host:1/a failed'],
      ['http://bob:p@ssw0rd@proxy:3128', 'http://REDACTED@proxy:3128'],
      ["https://a:it's3cret@proxy", 'https://REDACTED@proxy'],
      ['https://user:HUNT/ER32@proxy:80', 'https://REDACTED@proxy:80'],
      ['https://user:HU#T?ER@proxy', 'https://REDACTED@proxy'],
      ['http://user:x@@proxy:80', 'http://REDACTED@proxy:80'],
      ['ssh+git://token@host/x', 'ssh+git://REDACTED@host/x'],
      ['--proxy=http://a:b@h1,http://c:d@h2', '--proxy=http://REDACTED@h1,http://REDACTED@h2'],
    ])
      expect(withoutUrlPasswords(text ?? ''), text).to.equal(expected);
  });

  it('leaves references and other URLs as they are', () => {
    for (const text of [
      'docker://quay.io:5000/a/b@sha256:0123',
      'docker://quay.io/a/b:4.20@sha256:0123',
      'https://host:6443/path?x=y:z',
      'https://[::1]:5000/v2/',
      'mail bob@example.com about http://host',
    ])
      expect(withoutUrlPasswords(text)).to.equal(text);
  });
});
