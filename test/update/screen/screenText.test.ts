import { expect } from 'chai';
import { codeOf } from '../../../lib/update/screen/screenCode.ts';
import { describeScreen, plainVersion, screenSize, type ScreenFacts } from '../../../lib/update/screen/screenText.ts';
import { factsWith, goodSteps, otherSteps, reportSteps, screenReasons } from '../../support/project/screens.ts';

const linesOf = (facts: ScreenFacts): readonly string[] => describeScreen(facts)?.lines ?? [];

describe('the screen of a node', () => {
  it('shows the task, whether the drive may be removed, and the version of the cluster', () => {
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

  it('asks for the drive at the end if the report is to be taken, and says when it is written', () => {
    const runs = 'This cluster runs 4.20.3 (code 5287).';
    expect(reportSteps.map(([, facts]) => linesOf(facts))).to.deep.equal([
      [runs, 'Insert the USB drive again to take the report with you.'],
      [runs, 'Writing the report. Do not remove the USB drive.'],
      [runs, 'The report is on the USB drive. You can remove it now.'],
    ]);
    expect(reportSteps.map(([, facts]) => describeScreen(facts)?.signal)).to.deep.equal(['quiet', 'busy', 'removable']);
    const aborted = linesOf(factsWith('aborted', { phase: 'Failed', report: 'wanted' }));
    expect(aborted.join(' ')).to.contain('Insert the USB drive again').and.contain(codeOf('aborted'));
    // A drive of an earlier update, which the cluster has left behind.
    expect(linesOf({ drive: 'none', report: 'written' })).to.deep.equal([
      linesOf(reportSteps[2]?.[1] ?? { drive: 'none' })[1],
    ]);
  });

  it('lets no report free a drive that is needed, and asks for no drive twice', () => {
    const needed = linesOf(factsWith('completed', { drive: 'needed', report: 'written' })).join(' ');
    expect(needed).to.contain('Do not remove the USB drive.').and.not.contain('You can remove');
    for (const reason of ['driveRemoved', 'driveNeeded', 'baseMissing', 'notAllowed'] as const)
      expect(linesOf(factsWith(reason, { report: 'wanted' })).join(' '), reason).not.to.contain('report');
  });

  it('never asks for the drive on a node that does not have it', () => {
    for (const [, facts] of otherSteps)
      expect(linesOf(facts).join(' ')).to.contain('Do not switch off').and.not.contain('USB');
  });

  it('fits a console of 80×24 without UTF-8, has no escape of agetty, and names the code of each reason', () => {
    const longest = { version: '99.999.999-rc.999', nodesReady: '1999/2000' } as const;
    for (const drive of ['none', 'needed', 'removable'] as const)
      for (const phase of [undefined, 'Loading', 'Upgrading'] as const) {
        const steps = [...goodSteps, ...otherSteps, ...reportSteps];
        const all = steps.map(([, facts]) => describeScreen({ ...facts, ...longest, drive }));
        for (const reason of screenReasons)
          for (const report of [undefined, 'wanted', 'writing', 'written'] as const) {
            const more = { ...longest, drive, report, ...(reason === 'completed' ? {} : { phase }) };
            const screen = describeScreen(factsWith(reason, more));
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
