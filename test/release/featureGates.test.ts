import { expect } from 'chai';
import { stringify } from 'yaml';
import { readFeatureSets } from '../../lib/release/payload/featureGates.ts';
import { makeContext } from '../support/context.ts';
import { featureGateFile, pinningFiles } from '../support/release/pinning.ts';

const read = (files: Readonly<Record<string, string>>, version = '4.19.12'): readonly string[] | undefined =>
  readFeatureSets(
    new Map(Object.entries(files).map(([name, text]) => [name, Buffer.from(text)])),
    version,
    'PinnedImageSet',
    makeContext(),
  );

describe('readFeatureSets', () => {
  it('finds no pinning in the default feature set before 4.19.12, and finds it from then on', () => {
    expect(read(pinningFiles(false), '4.19.11')).to.deep.equal(['TechPreviewNoUpgrade', 'DevPreviewNoUpgrade']);
    expect(read(pinningFiles(true))).to.include.members(['Default', 'TechPreviewNoUpgrade']);
  });

  it('trusts the definition alone once the gate is gone, and none that serves v1alpha1 only', () => {
    const [[file, text] = ['', '']] = Object.entries(pinningFiles(true)).filter(([, each]) => each.includes('Custom'));
    const gates = featureGateFile('Default', [], ['OtherGate']);
    expect(read({ [file]: text, ...gates }, '5.0.1')).to.include('Default');
    expect(read({ [file]: text.replaceAll('name: v1\n', 'name: v1alpha1\n'), ...gates }, '5.0.1')).to.equal(undefined);
  });

  it('reads the gates of the own major version only, and none for another profile', () => {
    const files = {
      ...pinningFiles(true),
      ...featureGateFile('Default', [], ['PinnedImages'], { 'release.openshift.io/major-version': '4' }, 'a'),
      ...featureGateFile('Default', ['PinnedImages'], [], { 'release.openshift.io/major-version': '5,6' }, 'b'),
    };
    expect(read(files, '4.23.0')).not.to.include('Default');
    expect(read(files, '5.0.0')).to.include('Default');
  });

  it('finds no pinning if a gate is listed, enabled or disabled, without a definition', () => {
    for (const gates of [
      featureGateFile('Default', ['PinnedImages'], []),
      featureGateFile('Default', [], ['PinnedImages']),
    ])
      expect(read(gates)).to.deep.equal([]);
  });

  it('does not know it without such manifests', () => {
    expect(read({ 'a.yaml': stringify({ kind: 'ConfigMap', metadata: { name: 'x' } }) })).to.equal(undefined);
  });
});
