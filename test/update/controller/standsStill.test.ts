import { readdir, readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { phases } from '../../../lib/update/record/upgradeBundle.ts';

const page = new URL('../../../docs/how-to/update-stands-still.md', import.meta.url);
const library = new URL('../../../lib/update/', import.meta.url);

/** Words in the code that are no reasons: kinds, states of conditions, conditions of other objects, phases of nodes. */
const others = [
  'ClusterAutoscaler',
  'ClusterOperator',
  'ConfigMap',
  'ClusterVersion',
  'DaemonSet',
  'Event',
  'FeatureGate',
  'Node',
  'ImageContentSourcePolicy',
  'ImageDigestMirrorSet',
  'MachineConfigNode',
  'MachineConfigPool',
  'UpgradeBundle',
  'MachineHealthCheck',
  'PinnedImageSet',
  'True',
  'False',
  'Unknown',
  'Normal',
  'Warning',
  'Waiting',
  'NodeDegraded',
  'RenderDegraded',
  'PinnedImageSetsDegraded',
  'Degraded',
  'ReleaseAccepted',
  'Recommended',
  'Pending',
  'OSImageStream',
  // The phase of an update that is not needed.
  'Skipped',
  'Lease',
  'Pod',
  'ControllerConfig',
];

describe('the page “My update stands still”', () => {
  it('has each type and reason of a condition that the controller sets', async () => {
    const own = (await readdir(new URL('controller/', library))).map((name) => `controller/${name}`);
    const texts = await Promise.all(
      [...own, 'record/conditions.ts', 'record/extraImages.ts'].map((name) => readFile(new URL(name, library), 'utf8')),
    );
    const words = new Set(texts.flatMap((text) => [...text.matchAll(/'((?:[A-Z][a-z]+)+)'/g)].map(([, word]) => word)));
    const reasons = [...words].filter(
      (word) => !others.includes(word ?? '') && !phases.some((phase) => phase === word),
    );
    const text = await readFile(page, 'utf8');
    expect(reasons.length).to.be.greaterThan(40);
    const isNamed = (word = ''): boolean => text.includes(`\`${word}\``) || text.includes(`## ${word}\n`);
    expect(reasons.filter((word) => !isNamed(word))).to.deep.equal([]);
  });
});
