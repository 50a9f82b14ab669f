import { execFileSync } from 'node:child_process';
import { expect } from 'chai';
import { shellWord } from '../lib/shellWord.ts';

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
