import { expect } from 'chai';
import {
  type Check,
  type Finding,
  type Subject,
  ignoreFindings,
  nameIgnore,
  requireIgnorable,
} from '../../lib/cluster/finding.ts';
import { blocks } from '../../lib/cluster/version/platformStops.ts';
import { failureOf } from '../support/program/failure.ts';

const web = { kind: 'PodDisruptionBudget', name: 'web', namespace: 'shop' };
const blocker = (check: Check, subject: Subject): Finding => ({
  check,
  ...blocks('drain'),
  subject,
  message: '',
  advice: '',
});

describe('ignored findings', () => {
  it('are named by their check, and by an object in any of its forms', () => {
    const names = ['drains', 'drains:web', 'drains:shop/web', 'drains:PodDisruptionBudget/web'];
    for (const name of [...names, 'drains:poddisruptionbudget/shop/web']) {
      const { findings, unused } = ignoreFindings([blocker('drains', web)], [name]);
      expect([findings[0]?.ignored, unused], name).to.deep.equal([true, []]);
    }
    for (const name of ['nodes', 'drains:api', 'drains:other/web', 'drains:node/web', 'drains:']) {
      const { findings, unused } = ignoreFindings([blocker('drains', web)], [name]);
      expect([findings[0]?.ignored, unused], name).to.deep.equal([undefined, [name]]);
    }
  });

  it('are not needed if they are no blockers, or gone', () => {
    const warning: Finding = { check: 'drains', severity: 'warning', subject: web, message: '', advice: '' };
    const { findings, unused } = ignoreFindings([warning], ['drains', 'space']);
    expect([findings, unused]).to.deep.equal([[warning], ['drains', 'space']]);
  });

  it('are never about trust', async () => {
    for (const check of ['bundle', 'path', 'signatures'] as const) {
      const finding = blocker(check, { kind: 'ClusterVersion', name: 'version' });
      expect(ignoreFindings([finding], [check, `${check}:version`]).findings).to.deep.equal([finding]);
      expect(nameIgnore(finding)).to.equal(undefined);
      const error = await failureOf(
        Promise.resolve().then(() => requireIgnorable(`${check}:version`)),
        'usage',
      );
      expect(error.message).to.equal(`findings of ${check} cannot be ignored: they are about trust`);
    }
  });

  it('have names of known checks only, without blanks', async () => {
    for (const name of ['drains', 'nodes:node/worker-0']) requireIgnorable(name);
    for (const name of ['', 'everything', 'drains:', 'drains:a b', 'drains:\u001b[2J', ':web'])
      await failureOf(
        Promise.resolve().then(() => requireIgnorable(name)),
        'usage',
      );
  });

  it('have the names that the advice prints', () => {
    expect(nameIgnore(blocker('drains', web))).to.equal('drains:poddisruptionbudget/shop/web');
    expect(nameIgnore(blocker('nodes', { kind: 'Node', name: 'worker-0' }))).to.equal('nodes:node/worker-0');
    expect(nameIgnore(blocker('nodes', { kind: 'Node', name: '' }))).to.equal('nodes');
  });
});
