import { expect } from 'chai';
import {
  formatSiteReport,
  parseSiteReport,
  siteReportLimit,
  formatSiteText,
  type SiteReport,
} from '../../lib/config/siteReport.ts';
import { digestOf, hexOf } from '../../lib/content/oci/reference.ts';
import { failureOf } from '../support/program/failure.ts';

const report: SiteReport = {
  formatVersion: 1,
  created: '2026-11-01T00:00:00Z',
  tool: 'test/1',
  version: '4.19.3',
  arch: 'x86_64',
  channel: 'stable-4.19',
  history: [],
  findings: [],
  nodes: [1, 2].map((index) => ({ name: `n${index}`, architecture: 'amd64', free: index * 100 * 2 ** 30 })),
  operators: [
    { name: 'web', channel: 'fast', version: '1.0.3', catalog: 'redhat-operators', maxOpenShiftVersion: '4.19' },
    { name: 'logs', channel: '', version: '6.1.0', catalog: 'own' },
  ],
};

describe('the report of a site', () => {
  it('is below 1 MB for 500 nodes, 250 images and 2,000 findings', () => {
    const digests = Array.from({ length: 250 }, (_, index) => hexOf(digestOf(String(index))));
    const large: SiteReport = {
      ...report,
      nodes: Array.from({ length: 500 }, (_, index) => ({
        name: `worker-${index}.ocp.site.example.com`,
        architecture: 'amd64',
        capacity: 2 ** 40,
        free: 2 ** 38,
        os: 'Red Hat Enterprise Linux CoreOS 419.96.202602011200-0',
      })),
      heldImages: { 'quay.io/openshift-release-dev/ocp-v4.0-art-dev': digests },
      findings: Array.from({ length: 2000 }, (_, index) => ({
        severity: 'warning',
        object: `Deployment/namespace-${index}/application`,
        message: `pulls quay.io/example/team/application-${index}:latest at every start: ${'x'.repeat(100)}`,
      })),
    };
    const text = formatSiteReport(large);
    expect(text.length).to.be.lessThan(siteReportLimit);
    expect(parseSiteReport(text, 'x')).to.deep.equal(large);
  });

  it('is refused without a digest', () => {
    for (const text of ['{}', '{"formatVersion":1}'])
      expect(() => parseSiteReport(text, 'x.json')).to.throw(/it has no digest/);
  });

  it('is refused if it was changed', async () => {
    const changed = formatSiteReport(report).replace('4.19.3', '4.19.4');
    await failureOf(
      Promise.resolve().then(() => parseSiteReport(changed, 'site.json')),
      'invalid-file',
    );
  });

  describe('as text', () => {
    const text = formatSiteText(report);

    it('has the facts that can be typed, in a few short lines', () => {
      expect(text.length).to.be.lessThan(300);
      const parsed = parseSiteReport(text, 'site.txt');
      expect(parsed).to.deep.include({ version: '4.19.3', arch: 'x86_64', channel: 'stable-4.19' });
      expect(parsed.operators).to.deep.equal(report.operators);
      expect(parsed.nodes).to.have.length(2);
      expect(parsed.nodes[0]?.free).to.equal(100 * 2 ** 30);
    });

    it('may have other blanks', () => {
      const blanks = text.replaceAll(' ', '   ').replaceAll('\n', '\r\n\n');
      expect(parseSiteReport(blanks, 'site.txt')).to.deep.equal(parseSiteReport(text, 'site.txt'));
    });

    const faults: readonly (readonly [title: string, change: (text: string) => string, message: RegExp])[] = [
      ['a mistyped line', (all) => all.replace('web fast', 'web fats'), /line 5: it is mistyped/],
      ['a line without its check', (all) => all.replace(/ #\w+\n/, '\n'), /line 1: it is mistyped/],
      ['a missing line', (all) => all.replace(/operator web.*\n/, ''), /line 6: lines before it are missing/],
      ['no end', (all) => all.replace(/end .*\n/, ''), /its last line is missing/],
      ['another text', () => '', /does not begin with/],
    ];
    for (const [title, change, message] of faults) {
      it(`is refused with ${title}`, async () => {
        const error = await failureOf(
          Promise.resolve().then(() => parseSiteReport(change(text), 'site.txt')),
          'invalid-file',
        );
        expect(error.message).to.match(message);
      });
    }
  });
});
