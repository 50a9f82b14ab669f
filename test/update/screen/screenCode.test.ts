import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { listTopics } from '../../../cmd/cli/explanations.ts';
import { ordinaryReasons } from '../../../lib/update/record/conditions.ts';
import { checkDigit, codeOf, isMisread, reasonOfUpdate } from '../../../lib/update/screen/screenCode.ts';
import { expectGolden } from '../../support/program/golden.ts';
import { screenReasons } from '../../support/project/screens.ts';

const codes = screenReasons.map(codeOf);

describe('the codes of screens', () => {
  it('never change their meaning, and none is used twice', async () => {
    // Codes of earlier versions stay here.
    await expectGolden(
      'screen-codes.txt',
      `${screenReasons
        .map((reason) => `${codeOf(reason)} ${reason}`)
        .sort()
        .join('\n')}\n`,
    );
    expect(new Set(codes).size).to.equal(codes.length);
  });

  it('are four digits, of which one that is read wrongly, or two that changed places, are noticed', () => {
    for (const code of codes) {
      expect(code).to.match(/^[1-9]{3}[1-9]$/);
      expect(checkDigit(code.slice(0, 3))).to.equal(code.slice(3));
      for (let at = 0; at < 4; at += 1) {
        for (const digit of '0123456789') {
          const read = code.slice(0, at) + digit + code.slice(at + 1);
          expect(isMisread(read), `${read} for ${code}`).to.equal(read !== code);
        }
        const [first = '', second = ''] = code.slice(at, at + 2);
        const read = code.slice(0, at) + second + first + code.slice(at + 2);
        // Places that do not exist, and equal digits, change nothing.
        if (read !== code)
          expect(isMisread(read) || !codes.some((each) => each === read), `${read} for ${code}`).to.equal(true);
      }
    }
  });

  it('have an explanation each, and none explains another one', async () => {
    const explained = listTopics().flatMap(({ kind, name }) => (kind === 'screen' ? [name] : []));
    expect(explained).to.have.members(codes);
    const page = await readFile(new URL('../../../docs/screen-codes.md', import.meta.url), 'utf8');
    for (const part of ['Facts', 'Remedy', 'Ask for'])
      expect(page.split(`- **${part}.**`), part).to.have.length(codes.length + 1);
  });

  it('cover each reason of an update that needs a person', () => {
    const conditions = ['Verified', 'Ready', 'Loaded', 'Pinned', 'BackedUp', 'Updated'];
    const reasons = listTopics().filter(({ kind, of = '' }) => kind === 'reason' && conditions.includes(of));
    expect(reasons).not.to.be.empty;
    for (const { name, text } of reasons) {
      const isOver = /^(Nothing|Wait)/.test(text) || ordinaryReasons.includes(name);
      if (!isOver) expect(reasonOfUpdate(name), name).not.to.equal(undefined);
    }
  });
});
