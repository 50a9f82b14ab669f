import { expect } from 'chai';
import {
  describeImages,
  describeWindow,
  formatTitle,
  problemsOf,
  viewStatus,
} from '../../../../cmd/upgrade-bundle/status/statusView.ts';
import {
  abortAnnotation,
  upgradeBundleKind,
  type NodeProgress,
  type Phase,
  type UpgradeBundle,
} from '../../../../lib/update/record/upgradeBundle.ts';

const name = '4.19.4-x86-64';

function bundleIn(
  phase: Phase,
  status: Partial<UpgradeBundle['status']> = {},
  { annotations = {}, ...spec }: Partial<UpgradeBundle['spec']> & { annotations?: Record<string, string> } = {},
): UpgradeBundle {
  const digest = `sha256:${'a'.repeat(64)}` as const;
  return {
    ...upgradeBundleKind,
    metadata: { name, annotations },
    spec: { bundle: { digest }, hold: false, ...spec },
    status: { phase, version: '4.19.4', ...status },
  };
}
const node = (each: string, phase: NodeProgress['phase'], message?: string): NodeProgress => {
  const isLoaded = phase === 'Loaded';
  const counts = { imagesLoaded: isLoaded ? 190 : 95, imagesTotal: 190, bytes: 1 };
  return { name: each, phase, ...counts, ...(message !== undefined && { message }) };
};
const condition = (type: string, status: 'True' | 'False', reason: string, message: string) => {
  return { type, status, reason, message, lastTransitionTime: '2026-01-01T00:00:00Z' };
};
const view = (bundle: UpgradeBundle | undefined, more: Partial<Parameters<typeof viewStatus>[0]> = {}) =>
  viewStatus({ bundle, elapsed: undefined, mirrors: [], ...more });

describe('the view of a status', () => {
  it('leads with the decision that an update waits for, and the command that makes it', () => {
    const command = `oc patch upgradebundle 4.19.4-x86-64 --type=merge --patch='{"spec":{"acknowledge":["ack-4.18-x"]}}'`;
    const message = `the update to 4.19.4 requires the acknowledgement ack-4.18-x: “Look.”. Allow it: ${command}`;
    const required = (type: string, reason: string) => [condition(type, 'False', reason, message)];
    const ready = view(bundleIn('Verified', { conditions: required('Ready', 'AcknowledgementRequired') }));
    expect(ready.title).to.equal('4.19.4-x86-64: Verified, a decision is needed');
    expect(ready.problem).to.deep.equal([['Decision', message]]);
    expect(ready.accent).to.equal('bad');
    const updating = view(bundleIn('Upgrading', { conditions: required('Updated', 'RiskNotAccepted') }));
    expect(updating.title).to.contain('a decision is needed');
    const usual = view(bundleIn('Upgrading', { conditions: required('Updated', 'Updating') }));
    expect([usual.title, usual.problem, usual.accent]).to.deep.equal(['4.19.4-x86-64: Upgrading', [], 'busy']);
  });

  it('counts nodes that have not reported yet', () => {
    const bundle = bundleIn('Loading', { nodes: [node('master-0', 'Loaded')], nodesReady: '1/3', progress: '33%' });
    expect(formatTitle(bundle)).to.equal('4.19.4-x86-64: Loading, 1 of 3 nodes ready, 33%');
    expect(formatTitle(bundleIn('Loading'))).to.equal('4.19.4-x86-64: Loading');
  });

  it('estimates the rest of an update from 5 percent on', () => {
    const title = (progress: string | undefined, elapsed?: number): string =>
      formatTitle(bundleIn('Upgrading', progress === undefined ? {} : { progress }), elapsed);
    expect(title('20%', 600)).to.equal('4.19.4-x86-64: Upgrading, 20%, 10m00s elapsed, about 40m00s left');
    expect(title('4%', 600)).to.equal('4.19.4-x86-64: Upgrading, 4%, 10m00s elapsed');
    expect(title('100%', 600)).to.equal('4.19.4-x86-64: Upgrading, 100%, 10m00s elapsed');
    expect(title(undefined, 600)).to.equal('4.19.4-x86-64: Upgrading, 10m00s elapsed');
    expect(title('20%')).to.equal('4.19.4-x86-64: Upgrading, 20%');
  });

  it('names the first failed node and the number of others, and sorts failed nodes first', () => {
    const nodes = [node('a', 'Loaded'), node('b', 'Failed', 'full'), node('c', 'Waiting'), node('d', 'Failed')];
    const { title, problem, nodes: sorted } = view(bundleIn('Loading', { nodes }));
    expect(title).to.contain('2 nodes failed');
    expect(problem[0]).to.deep.equal(['Problem', 'b: full; 1 more node']);
    expect(problem[1]?.[0]).to.equal('Next');
    expect(sorted.map((each) => each.name)).to.deep.equal(['b', 'd', 'c', 'a']);
  });

  it('shows the failure of an update that has failed, and not its other problems', () => {
    const conditions = [
      condition('Updated', 'False', 'DiskFull', 'worker-0 is full'),
      condition('Stalled', 'True', 'NoProgress', 'no progress'),
    ];
    const failed = bundleIn('Failed', { conditions, nodes: [node('a', 'Failed')] });
    expect(problemsOf(failed)).to.deep.equal([]);
    const { problem, accent } = view(failed);
    expect(problem[0]).to.deep.equal(['Problem', 'worker-0 is full']);
    expect(problem.map(([fact]) => fact)).to.deep.equal(['Problem', 'Next']);
    expect(accent).to.equal('bad');
    expect(view(bundleIn('Failed')).problem[0]).to.deep.equal(['Problem', 'the update has failed']);
  });

  it('has the request to abort, and the command that withdraws it', () => {
    const bundle = bundleIn('Loading', {}, { annotations: { [abortAnnotation]: 'true' } });
    expect(problemsOf(bundle)).to.deep.equal(['abort requested']);
    expect(view(bundle).problem).to.deep.equal([
      [
        'Abort',
        'the controller aborts the update; to withdraw the request: oc annotate upgradebundle ' +
          `${name} ${abortAnnotation}-`,
      ],
    ]);
  });

  it('has conditions in the color of their meaning', () => {
    const colors = (type: string) =>
      (['True', 'False'] as const).map(
        (status) =>
          view(bundleIn('Loading', { conditions: [condition(type, status, 'R', 'm')] })).conditions[0]?.accent,
      );
    expect(colors('Verified')).to.deep.equal(['good', 'doubtful']);
    expect(colors('Stalled')).to.deep.equal(['bad', 'good']);
    expect(colors('PoolsPaused')).to.deep.equal(['doubtful', 'good']);
  });

  it('tells an update that is held, until it has ended', () => {
    const held = (phase: Phase, hold = true): boolean =>
      view(bundleIn(phase, {}, { hold })).facts.some(([fact]) => fact === 'Held');
    expect([held('Loading'), held('Held', false), held('Loading', false), held('Completed')]).to.deep.equal([
      ...[true, true, false, false],
    ]);
  });

  it('says when a maintenance window lets the update begin', () => {
    const windows = ['Sat 22:00-04:00 UTC'];
    const [friday, night] = [Date.parse('2026-01-02T12:00:00Z'), Date.parse('2026-01-03T22:30:00Z')];
    const at = (time: number, needs = '2h', phase: Phase = 'Loaded'): string | undefined =>
      describeWindow(bundleIn(phase, {}, { windows, windowNeeds: needs }), time);
    expect(at(friday)).to.match(/^the update begins from .*22:00.* on$/);
    expect(at(night)).to.match(/^open until .*04:00/);
    expect(at(friday, '9h')).to.equal('none has 9h');
    expect([at(friday, '2h', 'Upgrading'), at(friday, '2h', 'Failed')]).to.deep.equal([undefined, undefined]);
    expect(describeWindow(bundleIn('Loaded'), friday)).to.equal(undefined);
    const wrong = bundleIn('Loaded', {}, { windows: ['Sat 22:00-04:00 Europe/Berln'] });
    expect(describeWindow(wrong, friday)).to.contain('Europe/Berln');
    const waiting = bundleIn(
      'Loaded',
      { conditions: [condition('Updated', 'False', 'OutsideWindow', 'not yet')] },
      { windows },
    );
    expect(view(waiting, { now: friday }).facts).to.deep.include(['Window', 'not yet']);
  });

  it('shows mirrors without an update, and the images that they lack', () => {
    const mirror = { node: 'a', versions: ['4.19.3', '4.19.4'], requests: 57, lacking: [] as string[] };
    const lacking = ['x@sha256:1', 'y@sha256:2', 'z@sha256:3'];
    const mirrors = [mirror, { ...mirror, content: 'metadata' as const, lacking }, { ...mirror, versions: [] }];
    const { title, facts, mirrors: rows } = view(undefined, { mirrors });
    expect([title, facts]).to.deep.equal(['Waiting for a bundle to be detected or applied', []]);
    expect(rows.map(({ accent }) => accent)).to.deep.equal(['good', 'doubtful', 'doubtful']);
    expect(rows.map(({ cells }) => cells[1])).to.deep.equal(['4.19.3, 4.19.4', '4.19.3, 4.19.4 (metadata)', 'nothing']);
    expect(rows[1]?.cells[3]).to.equal('lacks x@sha256:1, y@sha256:2 and 1 more');
  });

  it('has the number of images of a node once it is known', () => {
    expect(describeImages(node('a', 'Loading'))).to.equal('95 of 190');
    expect(describeImages({ ...node('a', 'Waiting'), imagesTotal: 0 })).to.equal('not counted yet');
  });
});
