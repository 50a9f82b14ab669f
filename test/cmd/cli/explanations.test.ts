import { expect } from 'chai';
import { findTopics, formatSection, formatTopic, listTopics } from '../../../cmd/cli/explanations.ts';
import { errorCodes } from '../../../lib/errors.ts';
import { allRules } from '../../../lib/readiness/lint/rules.ts';
import { conditionTypes } from '../../../lib/update/record/conditions.ts';
import { phases } from '../../../lib/update/record/upgradeBundle.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('explain', () => {
  it('has a page for each error code, in plain lines', () => {
    for (const topic of listTopics()) {
      const page = formatTopic(topic, 80);
      if (topic.kind === 'code') expect(page, topic.name).to.match(/^[^\n].*\n\nUsual causes:/s);
      expect(page, topic.name).to.not.match(topic.kind === 'code' ? /\*\*|\]\(|\|/ : /\*\*|\]\(/);
      expect(
        page.split('\n').filter((line) => line.length > 80 && line.trim().includes(' ')),
        topic.name,
      ).to.deep.equal([]);
    }
    const codes = listTopics().flatMap(({ kind, name }) => (kind === 'code' ? [name] : []));
    expect(codes).to.deep.equal(Object.keys(errorCodes));
  });

  it('explains each phase, condition and reason of an update, and each rule of lint', () => {
    const named = (kind: string): string[] => [
      ...new Set(listTopics().flatMap((topic) => (topic.kind === kind ? [topic.name] : []))),
    ];
    expect(named('phase')).to.deep.equal(phases);
    expect(named('rule')).to.include.members(allRules.map(({ id }) => id));
    expect(named('condition')).to.have.members([...conditionTypes]);
    expect(named('reason')).to.include.members(['WaitingForNodes', 'NoProgress', 'AcceptRisks', 'Resumed']);
    expect(findTopics('held').map(({ kind, of }) => [kind, of])).to.deep.equal([
      ['phase', undefined],
      ['reason', 'Updated'],
    ]);
  });

  it('explains the code in a pasted line', async () => {
    for (const [text, names] of [
      ['error (tls): the certificate of a.test:443 has expired', ['tls']],
      ['2026-11-28T10:00:00Z ERROR (disk-full) no space', ['disk-full']],
      ['{"level":"error","message":"m","code":"busy"}', ['busy']],
      [
        'Updated    False   WaitingForNodes  pool worker has updated 1 of 3 nodes',
        ['Updated', 'Updated', 'WaitingForNodes'],
      ],
      ['blocker  pull-always  deployment/web: pulls at every start', ['pull-always']],
      ['PULL-ALWAYS', ['pull-always']],
      ['more: oc adm-upgrade-bundle explain digest-mismatch', ['digest-mismatch']],
      ['error (tls):', ['tls']],
      ['(tls)', ['tls']],
      ['“Held”,', ['Held']],
      ['failed with not-found', ['not-found']],
      ['7392', ['7392']],
      ['Call your administrator and read the code: 7392', ['7392']],
      ['This cluster runs 4.20.3 (code 5287).', ['5287']],
    ] as const)
      expect([...new Set(findTopics(text).map(({ name }) => name))], text).to.deep.equal([...new Set(names)]);
    const { hint } = await failureOf(
      Promise.resolve().then(() => findTopics('pul-always')),
      'usage',
    );
    expect(hint).to.equal('Did you mean pull-always?');
    await failureOf(
      Promise.resolve().then(() => findTopics('a conflict of opinions')),
      'usage',
    );
  });

  it('explains a code that a technician reads out: facts, remedy, and questions', async () => {
    const { stdout } = await executeProgram('oc-adm_upgrade_bundle', ['explain', '7392']);
    expect(stdout).to.match(/^7392: A USB drive holds another bundle.*\n\nFacts: .*\nRemedy: .*\nAsk for: /s);
    const { code, stderr } = await executeProgram('oc-adm_upgrade_bundle', ['explain', '7393']);
    expect(code).to.equal(2);
    expect(stderr).to.contain('no screen shows the code 7393: one of its digits is wrong');
    expect(stderr).to.match(/hint: Have the code read out again, digit by digit\.\n$/);
  });

  it('lists the codes, and suggests one for a misspelt one', async () => {
    const listed = (await executeProgram('oc-adm_upgrade_bundle', ['explain'])).stdout;
    expect(listed).to.match(/^CODE +MEANING\nusage +The command line is invalid\.\n/);
    const { code, stderr } = await executeProgram('oc-adm_upgrade_bundle', ['explain', 'tlss']);
    expect(code).to.equal(2);
    expect(stderr).to.match(/hint: Did you mean tls\?\n$/);
  });

  it('takes a code in any case, or the line of an error, and suggests a similar code', async () => {
    for (const text of ['tls', 'TLS', 'error (tls): the certificate of a.test:443 has expired'])
      expect((await executeProgram('oc-adm_upgrade_bundle', ['explain', text])).stdout).to.match(/^tls: /);
    const { code, stderr } = await executeProgram('oc-adm_upgrade_bundle', ['explain', 'unreachabel']);
    expect(code).to.equal(2);
    expect(stderr).to.equal('error (usage): <code>: nothing explains “unreachabel”\nhint: Did you mean unreachable?\n');
  });

  it('joins the lines of a paragraph, makes items of a table, and keeps the addresses of links', () => {
    const section =
      'One\ntwo [page](how-to/a.md), [site](https://a.test/b) and [part](#c).\n\n' +
      '- **Cause.** It is\n  long.\n\n| a | b | c |\n| --- | --- | --- |\n| x | y | z |\n';
    expect(formatSection(section, 80).trimEnd().split('\n')).to.deep.equal([
      'One two docs/how-to/a.md, site (https://a.test/b) and part.',
      '',
      'Cause: It is long.',
      '',
      '  - x: y - z',
    ]);
    for (const line of formatSection(`- ${'word '.repeat(20)}`, 30).split('\n'))
      expect(line)
        .to.match(/^(?:- | {2})\S.*$/)
        .and.to.have.length.at.most(30);
  });
});
