import { execFileSync } from 'node:child_process';
import { expect } from 'chai';
import { shellCommand, shellWord } from '../lib/text.ts';

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
