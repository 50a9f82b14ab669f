import { expect } from 'chai';
import { codeOf } from '../../../lib/update/screen/screenCode.ts';
import { describeScreen, plainVersion, screenSize, type ScreenFacts } from '../../../lib/update/screen/screenText.ts';
import { factsWith, goodSteps, otherSteps, screenReasons } from '../../support/project/screens.ts';

const linesOf = (facts: ScreenFacts): readonly string[] => describeScreen(facts)?.lines ?? [];

describe('the screen of a node', () => {
  it('says what happens, whether the drive may be removed, and what the cluster runs', () => {
    expect(goodSteps.map(([, facts]) => linesOf(facts))).to.deep.equal([
      [
        'Update 4.20.3 was found on the USB drive.',
        'Checking it: 34 %, about 4 minutes left.',
        'Do not remove the USB drive.',
      ],
      ['Copying update 4.20.3 to this node: 60 %, about 12 minutes left.', 'Do not remove the USB drive.'],
      ['Copying update 4.20.3 to the nodes: 2 of 3 have it.', 'Do not remove the USB drive.'],
      [
        'All nodes of this cluster have update 4.20.3.',
        'You can remove the USB drive now.',
        'It starts soon. Do not switch off.',
      ],
      ['Updating this cluster to 4.20.3. Nodes restart by themselves.', 'Do not switch off.'],
      ['This cluster runs 4.20.3 (code 5287).'],
    ]);
  });

  it('never asks for the drive on a node that does not have it', () => {
    for (const [, facts] of otherSteps)
      expect(linesOf(facts).join(' ')).to.contain('Do not switch off').and.not.contain('USB');
  });

  it('fits a console of 80×24 without UTF-8, has no escape of agetty, and names the code of each reason', () => {
    const longest = { version: '99.999.999-rc.999', nodesReady: '1999/2000' } as const;
    for (const drive of ['none', 'needed', 'removable'] as const)
      for (const phase of [undefined, 'Loading', 'Upgrading'] as const) {
        const all = [...goodSteps, ...otherSteps].map(([, facts]) => describeScreen({ ...facts, ...longest, drive }));
        for (const reason of screenReasons) {
          const screen = describeScreen(
            factsWith(reason, { ...longest, drive, ...(reason === 'completed' ? {} : { phase }) }),
          );
          expect(screen?.lines.join(' '), reason).to.contain(codeOf(reason));
          all.push(screen);
        }
        for (const screen of all) {
          const lines = screen?.lines ?? [];
          // With the empty lines before and after them.
          expect(lines.length + 2, lines.join('\n')).to.be.at.most(screenSize.lines);
          for (const line of lines) {
            expect(line).to.match(/^[\x20-\x5b\x5d-\x7e]*$/);
            // A line of full length would be cut.
            expect(line.length, line).to.be.below(screenSize.columns);
          }
        }
      }
  });

  it('shows no version in a form that OpenShift does not use, which may carry a message', () => {
    for (const version of ['4.20.3-call.0900.123456', '4.20.3\\n', '4.20', '4.20.3-\u001b[31m', '1.2.3-rc.1-x'])
      expect(plainVersion(version), version).to.equal(undefined);
    for (const version of ['4.20.3', '4.21.0-ec.2', '4.20.0-rc.10']) expect(plainVersion(version)).to.equal(version);
  });

  it('says nothing while nothing is found, and before another node has the update', () => {
    expect(describeScreen({ drive: 'none' })).to.equal(undefined);
    expect(describeScreen({ drive: 'none', phase: 'Detected' })).to.equal(undefined);
    expect(describeScreen({ drive: 'none', phase: 'Verified' })).to.equal(undefined);
  });

  it('keeps the words about the drive and the power beside a reason', () => {
    const said = linesOf(factsWith('noProgress', { phase: 'Upgrading', drive: 'removable' })).join(' ');
    expect(said).to.contain('You can remove the USB drive now.').and.contain('Do not switch off.');
  });
});
