import { expect } from 'chai';
import {
  activeBundle,
  mayLoad,
  summarizeNodes,
  type Phase,
  type UpgradeBundle,
} from '../../../lib/update/record/upgradeBundle.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';

describe('activeBundle', () => {
  const at = (name: string, second: number, more: object = {}): UpgradeBundle => ({
    ...(upgradeBundle(name) as UpgradeBundle),
    metadata: { name, creationTimestamp: `2026-01-01T00:00:0${second}Z`, ...more },
  });
  const withPhase = (bundle: UpgradeBundle, phase: Phase): UpgradeBundle => ({ ...bundle, status: { phase } });

  it('is the oldest that is not at its end', () => {
    expect(activeBundle([])).to.equal(undefined);
    const ended = [withPhase(at('a', 1), 'Completed'), withPhase(at('b', 2), 'Failed')];
    const leaving = at('c', 3, { deletionTimestamp: '2026-01-01T00:00:09Z' });
    expect(activeBundle([...ended, leaving])).to.equal(undefined);
    const [old, twin, young] = [withPhase(at('e', 4), 'Loading'), at('d', 4), at('f', 5)];
    expect(activeBundle([young, old, twin, ...ended, leaving])).to.equal(twin);
    expect(activeBundle([young, old])).to.equal(old);
  });
});

describe('summarizeNodes', () => {
  const progress = (phase: 'Loading' | 'Loaded' | 'Pinned', imagesLoaded: number) => ({
    name: 'a',
    phase,
    imagesLoaded,
    imagesTotal: 200,
    bytes: 0,
  });

  it('counts the nodes that have everything, and rounds down', () => {
    expect(summarizeNodes([])).to.deep.equal({ nodesReady: '0/0', progress: '0%' });
    const uncounted = { ...progress('Loading', 0), imagesTotal: 0 };
    expect(summarizeNodes([uncounted]).progress).to.equal('0%');
    expect(summarizeNodes([progress('Pinned', 200), uncounted]).progress).to.equal('50%');
    expect(summarizeNodes([progress('Pinned', 200), progress('Loading', 199)])).to.deep.equal({
      nodesReady: '1/2',
      progress: '99%',
    });
    expect(summarizeNodes([progress('Pinned', 200), progress('Loaded', 200)])).to.deep.equal({
      nodesReady: '2/2',
      progress: '100%',
    });
  });
});

describe('mayLoad', () => {
  const during = (status: UpgradeBundle['status']): string => {
    const bundle = { ...(upgradeBundle('a') as UpgradeBundle), ...(status && { status }) };
    const nodes = [
      { name: 'm0', controlPlane: true },
      { name: 'm1', controlPlane: true },
      { name: 'w0', controlPlane: false },
    ];
    return nodes
      .filter((each) => mayLoad(bundle, each))
      .map(({ name }) => name)
      .join(' ');
  };

  it('lets control plane nodes load one at a time, others immediately, and no node too early', () => {
    expect(during(undefined)).to.equal('');
    expect(during({ phase: 'Verified', turn: 'm0' })).to.equal('');
    expect(during({ phase: 'Loading' })).to.equal('w0');
    expect(during({ phase: 'Loading', turn: 'm1' })).to.equal('m1 w0');
    expect(during({ phase: 'Failed', turn: 'm1' })).to.equal('');
  });

  it('lets late nodes load, and nodes reload lost images after the update', () => {
    expect(during({ phase: 'Held', turn: 'm0' })).to.equal('m0 w0');
    expect(during({ phase: 'Completed' })).to.equal('m0 m1 w0');
  });
});
