import { execFileSync } from 'node:child_process';
import { expect } from 'chai';
import {
  shellCommand,
  shellWord,
  formatBytes,
  joinParagraphs,
  Lines,
  listBelow,
  toLine,
  withoutUrlPasswords,
} from '../lib/text.ts';

const hostile = [
  'upgrade-$(touch pwned).tar',
  'upgrade-`id`.tar',
  "it's.tar",
  'a b;c&d|e>f<g.tar',
  'two\nlines.tar',
  "escape\x1b]0;title\x07's\\.tar",
  'reversed\u202erat.exe',
  '~/x',
  '*',
  '!!',
];

describe('shellCommand', () => {
  it('keeps each value one word, also in a command for another shell', () => {
    for (const name of hostile) {
      const inner = shellCommand`printf %s ${name}`;
      const expected = shellWord(name).startsWith('./') ? `./${name}` : name;
      for (const command of [
        inner,
        shellCommand`sh -c ${inner}`,
        shellCommand`sh -c ${shellCommand`sh -c ${inner}`}`,
      ]) {
        if (command !== inner && inner.includes("$'")) continue;
        expect(execFileSync('bash', ['-c', command]).toString(), command).to.equal(expected);
      }
    }
    expect(shellCommand`oc adm uncordon ${'worker-0'}, now`).to.equal('oc adm uncordon worker-0, now');
    expect(shellCommand`x=${''}`).to.equal("x=''");
  });
});

describe('shellWord', () => {
  it('leaves plain paths as they are', () => {
    for (const path of ['upgrade-4.12.4-x86_64.tar', '/media/usb/mirror', 'a:b@c+d=e,f%g']) {
      expect(shellWord(path)).to.equal(path);
    }
  });

  for (const path of hostile) {
    it(`writes ${JSON.stringify(path)} as one word that a shell reads back and does not run`, () => {
      const word = shellWord(path);
      expect(word).not.to.match(/[\p{Cc}\p{Cf}]/u);
      const output = execFileSync('bash', ['-c', `printf %s ${word}`], { encoding: 'utf8', cwd: '/' });
      expect(output).to.equal(path);
    });
  }

  it('makes no option of a file name', () => {
    expect(shellWord('--to-command=id')).to.equal('./--to-command=id');
  });
});

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
