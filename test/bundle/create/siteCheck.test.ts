import { expect } from 'chai';
import { checkReleasePath, checkSite, heldImagesOf } from '../../../lib/bundle/create/siteCheck.ts';
import type { SiteReport } from '../../../lib/config/siteReport.ts';
import { makeContext } from '../../support/context.ts';

const provenance = { versions: {}, sources: new Map<string, never>() };

/** Returns what is said about the updates of a site with an operator that supports OpenShift up to a minor version. */
function check(max: string, ...versions: readonly [from: string, ...to: string[]]): string[] {
  const context = makeContext();
  const [version, ...targets] = versions;
  const operators = [{ name: 'web', channel: 'fast', version: '1.0.3', catalog: 'own', maxOpenShiftVersion: max }];
  const site: SiteReport = {
    formatVersion: 1,
    created: '',
    tool: 'test',
    version,
    arch: 'x86_64',
    channel: '',
    history: [],
    nodes: [],
    operators,
    findings: [],
  };
  const gate = (minor: string) => ({ name: `ack-${minor}-kube-removals`, text: 'Migrate.' });
  const releases = targets.map((target, index) => {
    const gates = [gate(/^\d+\.\d+/.exec(target)?.[0] ?? '')];
    return { version: target, previous: [versions[index] ?? ''], gates, provenance };
  });
  checkSite({ ...site, acknowledgements: [gate('4.18')] }, releases, [], context);
  return context.lines;
}

describe('checkSite', () => {
  it('names the acknowledgements of each update to another minor version', () => {
    const lines = check('4.20', '4.18.20', '4.19.12', '4.19.14', '4.20.3');
    expect(lines).to.deep.equal([
      'warn: at the site: the update to 4.19.12 requires the acknowledgement ack-4.18-kube-removals: “Migrate.”',
      'warn: at the site: the update to 4.20.3 requires the acknowledgement ack-4.19-kube-removals: “Migrate.”',
    ]);
    expect(check('4.18', '4.18.20', '4.18.21')).to.deep.equal([]);
  });

  it('names the acknowledgements that operators will require on the way, by the report of the site', () => {
    const gateConditions = { platform: 'VSphere', hasMirrorSets: true, managedBootImages: [] };
    const context = makeContext();
    const releases = ['4.20.9', '4.21.4', '4.22.1'].map((version, index, all) => {
      return { version, previous: [all[index - 1] ?? '4.19.12'], gates: [], provenance };
    });
    const site: SiteReport = {
      formatVersion: 1,
      created: '',
      tool: 'test',
      version: '4.19.12',
      arch: 'x86_64',
      channel: '',
      history: [],
      nodes: [],
      operators: [],
      findings: [],
      gateConditions,
    };
    checkSite(site, releases, [], context);
    const names = context.lines.flatMap((line) => /will require.*(ack-[^:]*):/.exec(line)?.[1] ?? []);
    expect(names).to.deep.equal(['ack-4.20-sigstore-in-4.21', 'ack-4.21-boot-image-opt-out-in-4.22']);
  });

  it('names operators that do not support the new version, also after 4.x', () => {
    const said = (max: string, from: string, to: string): boolean =>
      check(max, from, to).some((line) => line.includes(`web 1.0.3 at the site supports OpenShift up to ${max}`));
    expect(said('4.19', '4.19.3', '4.20.3')).to.equal(true);
    expect(said('4.20', '4.19.3', '4.20.3')).to.equal(false);
    expect(said('4.21', '4.22.1', '5.0.0')).to.equal(true);
    expect(said('5.0', '4.22.1', '5.0.0')).to.equal(false);
  });
});

describe('checkReleasePath', () => {
  it('names a release without an update from the one before', () => {
    const context = makeContext();
    const releases = ['4.18.20', '4.19.12', '4.20.3'].map((version) => ({ version, previous: ['4.18.20'] }));
    checkReleasePath(releases, context);
    expect(context.lines).to.deep.equal([
      'warn: release 4.20.3 has no direct update from 4.19.12: no cluster can update by this bundle alone',
    ]);
  });
});

describe('heldImagesOf', () => {
  const release = `quay.io/ocp/release@sha256:${'a'.repeat(64)}`;
  const report = (history: SiteReport['history']): SiteReport => ({
    formatVersion: 1,
    created: '',
    tool: 'test',
    version: '4.19.3',
    arch: 'x86_64',
    channel: '',
    nodes: [],
    operators: [],
    findings: [],
    history,
    heldImages: { 'quay.io/ocp/etcd': ['b'.repeat(64)] },
  });
  const update = (version: string, image: string): SiteReport['history'][number] => ({
    version,
    image,
    state: 'Completed',
  });

  it('names the release that the site runs, and the images of all nodes', () => {
    const held = heldImagesOf(report([update('4.19.2', `${release.slice(0, -1)}c`), update('4.19.3', release)]));
    expect(held).to.deep.equal({
      version: '4.19.3',
      arch: 'x86_64',
      release,
      images: [`quay.io/ocp/etcd@sha256:${'b'.repeat(64)}`],
    });
  });

  it('names nothing if the history lacks the release, or has it by a tag', () => {
    for (const history of [[], [update('4.19.2', release)], [update('4.19.3', 'quay.io/ocp/release:4.19.3')]])
      expect(heldImagesOf(report(history))).to.equal(undefined);
  });
});
