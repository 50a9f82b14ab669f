import { expect } from 'chai';
import { PluginError } from '../../../lib/errors.ts';
import type { FoundBundle } from '../../../lib/node/media/medium.ts';
import {
  checkStage,
  chooseTask,
  countStage,
  describeLateHold,
  findNodeReason,
  initialState,
  loadLimits,
  nodeMessages,
  nodePhase,
  type BundleSource,
  type NodeFacts,
  type NodeState,
} from '../../../lib/update/agent/nodeState.ts';
import type { Phase, UpgradeBundle } from '../../../lib/update/record/upgradeBundle.ts';

const node = { name: 'a', controlPlane: false, pinsByCluster: false };
const medium = { path: '/dev/sdb1' } as FoundBundle;
const open: BundleSource = { kind: 'open', cached: {} as never, medium };
const loaded: NodeState = { ...initialState, images: { loaded: 3, total: 3 } };

function bundleIn(phase: Phase, turn?: string): UpgradeBundle {
  return { status: { phase, ...(turn !== undefined && { turn }) } } as UpgradeBundle;
}

describe('loadLimits', () => {
  it('copies one image at a time on the control plane, with a pause', () => {
    expect(loadLimits({ ...node, controlPlane: true })).to.deep.equal({ concurrency: 1, pause: 1000 });
    expect(loadLimits(node)).to.deep.equal({ concurrency: 2 });
  });
});

describe('countStage', () => {
  it('has the images counted again each minute, and in each phase', () => {
    const stage = (phase: Phase, now: number): string =>
      countStage({ ...bundleIn(phase), spec: {} } as UpgradeBundle, now);
    for (const phase of ['Loading', 'Loaded', 'Pinned', 'Held', 'Upgrading', 'Completed'] as const) {
      expect(stage(phase, 0)).to.equal(stage(phase, 59_000));
      expect(stage(phase, 0)).not.to.equal(stage(phase, 61_000));
    }
    expect(stage('Loaded', 0)).not.to.equal(stage('Pinned', 0));
  });
});

describe('checkStage', () => {
  it('has the images checked between the load and the update, and again while it is held', () => {
    const stages = (['Loading', 'Loaded', 'Pinned', 'Held', 'Upgrading'] as const).map((phase) =>
      checkStage(bundleIn(phase)),
    );
    expect(stages.map((stage) => stage !== undefined)).to.deep.equal([false, true, true, true, false]);
    expect(stages[1]).to.equal(stages[2]).and.not.to.equal(stages[3]);
  });
});

describe('describeLateHold', () => {
  it('says before the images are pinned that an early CRI-O reads the list at its start', () => {
    const say = (version: string, phase: Phase = 'Loading'): string | undefined =>
      describeLateHold({ ...node, runtime: `cri-o://${version}.rhaos4.14.git7bc.el9` }, bundleIn(phase));
    expect(say('1.27.4-6')).to.equal('CRI-O 1.27.4 reads what it is to keep only when it starts');
    expect(say('1.29.3-2')).not.to.equal(undefined);
    for (const version of ['1.29.4-1', '1.30.0-1', '1.37.0-1']) expect(say(version)).to.equal(undefined);
    expect(say('1.27.4-6', 'Pinned')).to.equal(undefined);
    expect(describeLateHold(node, bundleIn('Loading'))).to.equal(undefined);
  });
});

describe('chooseTask', () => {
  const choose = (
    state: Partial<NodeState>,
    phase: Phase,
    { turn, unverified, ...facts }: { turn?: string; unverified?: FoundBundle } & Partial<typeof node> = {},
  ): string =>
    chooseTask({ ...initialState, ...state }, unverified, bundleIn(phase, turn), { ...node, ...facts }, true).kind;

  it('verifies a medium in each phase, unless the bundle is open', () => {
    expect(choose({}, 'Detected', { unverified: medium })).to.equal('verify');
    expect(choose({ ...loaded, obstacle: 'another bundle' }, 'Pinned', { unverified: medium })).to.equal('verify');
    expect(choose({ source: open }, 'Detected', { unverified: medium })).to.equal('idle');
  });

  it('fetches and loads when the phase and the turn allow it', () => {
    expect(choose({}, 'Verified')).to.equal('idle');
    expect(choose({}, 'Verified', { turn: 'a', controlPlane: true })).to.equal('fetch');
    expect(choose({}, 'Loading')).to.equal('fetch');
    expect(choose({ source: open }, 'Verified', { turn: 'a' })).to.equal('idle');
    expect(choose({ source: open }, 'Loading')).to.equal('load');
    expect(choose({ source: open, base: 'missing' }, 'Loading')).to.equal('fetchBase');
    expect(choose({ source: open, base: 'missing' }, 'Verified', { unverified: medium })).to.equal('verify');
    expect(choose({ source: open }, 'Loading', { controlPlane: true })).to.equal('idle');
    expect(choose({ source: open }, 'Loading', { controlPlane: true, turn: 'a' })).to.equal('load');
  });

  it('neither fetches nor loads while there is an obstacle', () => {
    expect(choose({ obstacle: 'another bundle' }, 'Loading')).to.equal('idle');
    expect(choose({ source: open, obstacle: 'another bundle' }, 'Loading')).to.equal('idle');
  });

  it('pins once all images are loaded on all nodes, if the cluster does not', () => {
    expect(choose({ ...loaded, source: open }, 'Loading')).to.equal('idle');
    expect(choose(loaded, 'Loaded')).to.equal('pin');
    expect(choose({ ...loaded, obstacle: 'another bundle' }, 'Loaded')).to.equal('pin');
    expect(choose({ ...loaded, isPinned: true }, 'Loaded')).to.equal('idle');
    expect(choose(loaded, 'Loaded', { pinsByCluster: true })).to.equal('idle');
  });
});

describe('chooseTask after an update', () => {
  const choose = (state: Partial<NodeState>, facts: Partial<NodeFacts> = {}, unverified?: FoundBundle): string =>
    chooseTask({ ...initialState, ...state }, unverified, bundleIn('Completed', 'b'), { ...node, ...facts }, true).kind;
  const lost = { images: { loaded: 2, total: 3 } };
  const copy: BundleSource = { kind: 'open', cached: {} as never, medium: undefined };
  const pinned = { pinsByCluster: true };

  it('gives back a lost image on each node, without a turn', () => {
    expect(choose({ ...lost, source: copy }, { controlPlane: true })).to.equal('load');
    expect(choose(lost, { controlPlane: true })).to.equal('fetch');
    expect(choose(lost, {}, medium)).to.equal('verify');
  });

  it('reads no medium again that it does not need', () => {
    expect(choose(loaded, pinned, medium)).to.equal('idle');
    expect(choose(loaded, { ...pinned, retains: 'all' }, medium)).to.equal('verify');
  });

  it('replaces a damaged copy from a medium, or from another node', () => {
    const damaged = { ...loaded, source: copy, isDamaged: true };
    expect(choose(damaged, { retains: 'all' })).to.equal('fetch');
    expect(choose(damaged, { retains: 'all' }, medium)).to.equal('verify');
    expect(choose({ ...damaged, source: open }, { retains: 'all' })).to.equal('retain');
    expect(choose({ ...damaged, isDamaged: false }, { ...pinned, retains: 'all' }, medium)).to.equal('idle');
  });
});

describe('chooseTask on a node with a mirror', () => {
  const choose = (
    source: NodeState['source'],
    retains: NodeFacts['retains'],
    phase: Phase = 'Loading',
    isKnown = true,
  ): string =>
    chooseTask({ ...initialState, ...loaded, source }, undefined, bundleIn(phase), { ...node, retains }, isKnown).kind;

  it('copies the bundle from its medium, or fetches it, also if all images are loaded', () => {
    const onMedium = { ...open, medium };
    expect(choose(onMedium, 'all')).to.equal('retain');
    expect(choose({ kind: 'none' }, 'all')).to.equal('fetch');
    expect(choose({ kind: 'none' }, 'all', 'Detected')).to.equal('idle');
    expect(choose({ ...open, medium: undefined }, 'all')).to.equal('idle');
    const serving = { ...initialState, ...loaded, source: onMedium, servesImages: true };
    expect(chooseTask(serving, undefined, bundleIn('Loading'), node, true).kind).to.equal('retain');
    expect(choose(onMedium, undefined)).to.equal('idle');
  });

  it('of metadata, copies nothing, and fetches the bundle only to learn its facts', () => {
    expect(choose({ ...open, medium }, 'metadata')).to.equal('idle');
    expect(choose({ kind: 'none' }, 'metadata')).to.equal('idle');
    expect(choose({ kind: 'none' }, 'metadata', 'Loading', false)).to.equal('fetch');
  });
});

describe('findNodeReason', () => {
  const idle = { kind: undefined, failureCode: undefined };
  const find = (
    state: Partial<NodeState>,
    job: Parameters<typeof findNodeReason>[1] = idle,
    isEarly = false,
  ): string | undefined => findNodeReason({ ...initialState, ...state }, job, isEarly);
  const unreadable = { kind: 'unreadable', error: new PluginError('not-readable', 'EIO') } as const;

  it('classifies each message of a node that needs a person', () => {
    expect(find({}, { ...idle, failureCode: 'disk-full' })).to.equal('diskFull');
    expect(find({}, { ...idle, failureCode: 'untrusted' })).to.equal('notTrusted');
    expect(find({}, { ...idle, failureCode: 'command-failed' })).to.equal('nodeFailed');
    expect(find({ source: unreadable }, { ...idle, failureCode: 'not-readable' })).to.equal('driveUnreadable');
    expect(find({ source: unreadable, unoffered: 'bundle' })).to.equal('driveUnreadable');
    expect(find({ source: { kind: 'removed', medium: 'x' } })).to.equal('driveRemoved');
    expect(find({ other: 'another bundle' })).to.equal('otherBundle');
    expect(find({ obstacle: 'it has another version', isOther: true })).to.equal('otherBundle');
    expect(find({ obstacle: 'an image lost content' })).to.equal('imageDamaged');
    expect(find({ unoffered: 'bundle' })).to.equal('driveNeeded');
    expect(find({ ...loaded, unoffered: 'bundle' })).to.equal('driveNeeded');
  });

  it('asks for no drive while another node may still read one, and for nothing while the node checks its own', () => {
    expect(find({ unoffered: 'bundle' }, idle, true)).to.equal('driveAwaited');
    expect(find({ other: 'another bundle' }, { ...idle, kind: 'verify' })).to.equal(undefined);
    expect(find({}, { ...idle, kind: 'fetch' })).to.equal(undefined);
    expect(find(loaded)).to.equal(undefined);
  });
});

describe('nodePhase and nodeMessages', () => {
  const idle = { kind: undefined, name: undefined, failure: undefined };
  const loading = { kind: 'load', name: 'loading 3 images', failure: undefined } as const;
  const failed = { ...idle, failure: 'the disk is full' };
  const report = (
    state: Partial<NodeState>,
    job: Parameters<typeof nodePhase>[1] & Parameters<typeof nodeMessages>[1],
    phase: Phase = 'Loading',
    facts = node,
  ): string[] => {
    const whole = { ...initialState, ...state };
    const found = nodePhase(whole, job, bundleIn(phase), facts);
    return [found, ...nodeMessages(whole, job, found)];
  };

  it('name the task of the node', () => {
    expect(report({}, idle)).to.deep.equal(['Waiting']);
    expect(report({}, { ...loading, kind: 'verify', name: 'verifying' })).to.deep.equal(['Waiting', 'verifying']);
    expect(report({}, loading)).to.deep.equal(['Loading', 'loading 3 images']);
    expect(report(loaded, loading)).to.deep.equal(['Loading', 'loading 3 images']);
    expect(report(loaded, idle)).to.deep.equal(['Loaded']);
    expect(report({ ...loaded, isPinned: true }, idle)).to.deep.equal(['Pinned']);
  });

  it('take the pins from the phase of the update if the cluster pins', () => {
    const facts = { ...node, pinsByCluster: true };
    expect(report(loaded, idle, 'Loaded', facts)).to.deep.equal(['Loaded']);
    expect(report(loaded, idle, 'Pinned', facts)).to.deep.equal(['Pinned']);
  });

  it('say why the node does nothing', () => {
    expect(report({}, failed)).to.deep.equal(['Failed', 'the disk is full']);
    expect(report({ obstacle: 'another bundle' }, failed)).to.deep.equal(['Failed', 'another bundle']);
    expect(report(loaded, failed)).to.deep.equal(['Failed', 'the disk is full']);
    expect(report({ ...loaded, obstacle: 'another bundle' }, idle)).to.deep.equal(['Loaded', 'another bundle']);
  });

  it('name the images of a site that the node lacks', () => {
    const cached = { facts: { metadata: { base: { version: '4.19.3', images: {} } } } } as never;
    const source: BundleSource = { kind: 'open', cached, medium };
    const state = { source, base: 'missing', lack: '2 blobs of a@b' } as const;
    expect(report(state, idle)).to.deep.equal(['Waiting', 'it lacks 2 blobs of a@b, which the bundle leaves out']);
    expect(report({ ...state, base: 'offered' }, idle)).to.deep.equal(['Waiting']);
  });

  it('name a removed medium until the images are loaded', () => {
    const source: BundleSource = { kind: 'removed', medium: '4.19.4 on sdb' };
    expect(report({ source }, loading)).to.deep.equal([
      'Loading',
      'loading 3 images',
      '4.19.4 on sdb was removed: insert it again, unless another node has the bundle',
    ]);
    expect(report({ ...loaded, source }, idle)).to.deep.equal(['Loaded']);
    const fetching = { kind: 'fetch', name: 'fetching', failure: undefined } as const;
    expect(report({ source, unoffered: 'bundle' }, fetching)).to.deep.equal([
      'Waiting',
      '4.19.4 on sdb was removed, and no other node has the bundle: insert the USB drive again',
    ]);
    const counted = { images: { loaded: 0, total: 3 } };
    expect(report({ unoffered: 'bundle', ...counted }, idle)[1]).to.match(/^no node has the bundle: insert .* again$/);
    const error = new PluginError('not-readable', 'input/output error');
    expect(report({ source: { kind: 'unreadable', error } }, idle)).to.deep.equal(['Waiting']);
  });
});
