import { expect } from 'chai';
import { exclusionOf, listedFeatureSets, type ManifestFilter } from '../../../lib/release/payload/manifestFilter.ts';

const profile = 'self-managed-high-availability';
const own = { [`include.release.openshift.io/${profile}`]: 'true' };
const featureSet = 'release.openshift.io/feature-set';
const featureGate = 'release.openshift.io/feature-gate';
const majorVersion = 'release.openshift.io/major-version';
const capability = 'capability.openshift.io/name';

type Case = readonly [filter: ManifestFilter, annotations: object | undefined, excluded?: RegExp];

const deployment = { apiVersion: 'apps/v1', kind: 'Deployment' };
const gate = { apiVersion: 'config.openshift.io/v1', kind: 'FeatureGate' };

function check(cases: readonly Case[], object: object): void {
  for (const [filter, annotations, excluded] of cases) {
    const metadata = { name: 'x', ...(annotations && { annotations }) };
    const reason = exclusionOf({ ...object, metadata }, filter);
    const title = JSON.stringify([annotations, filter.featureSet, [...(filter.gates ?? [])], filter.major]);
    if (excluded) expect(reason, title).to.match(excluded);
    else expect(reason, title).to.equal(undefined);
  }
}

// The facts of the tables in manifest_test.go of openshift/library-go 93ac9206a: Test_include, TestCheckFeatureGates
// and TestMajorVersionFiltering.
describe('exclusionOf', () => {
  it('excludes by identifier and by cluster profile', () => {
    const exclude = { 'exclude.release.openshift.io/identifier': 'true' };
    check(
      [
        [{ exclude: 'identifier', profile }, { ...own, ...exclude }, /identifier is true/],
        [
          { exclude: 'other', profile },
          { ...own, ...exclude },
        ],
        [{ profile: 'single-node' }, own, /not for the cluster profile single-node/],
        [{}, own],
        [{ profile }, own],
        [{ profile }, {}, /not for the cluster profile/],
        [{ profile }, undefined, /no annotations/],
        [{}, undefined, /no annotations/],
        [
          { profile },
          { [`include.release.openshift.io/${profile}`]: 'false-except-for-the-config-operator' },
          /“false/,
        ],
        [{ profile }, { ...own, note: 3 }, /no annotations/],
      ],
      deployment,
    );
  });

  it('excludes by feature set', () => {
    const [none, preview] = ['Default', 'TechPreviewNoUpgrade'];
    check(
      [
        [{ featureSet: none, profile }, own],
        [{ featureSet: preview, profile }, own],
        [{ featureSet: none, profile }, { ...own, [featureSet]: preview }, /for the feature set TechPreviewNoUpgrade/],
        [
          { featureSet: preview, profile },
          { ...own, [featureSet]: preview },
        ],
        [{ featureSet: none }, { ...own, [featureSet]: 'CustomNoUpgrade,Default' }],
        [{ featureSet: none }, { ...own, [featureSet]: 'Default,Other' }, /unknown value “Other”/],
        [{ featureSet: preview, profile }, { ...own, [featureSet]: 'Other' }, /unknown value “Other”/],
        [{ featureSet: preview, gates: new Set(['a']) }, { [featureSet]: preview, [featureGate]: 'a' }, /has both/],
        [{ profile }, { ...own, [featureSet]: preview }],
      ],
      deployment,
    );
  });

  it('excludes by feature gates', () => {
    const gates = (...names: string[]): ManifestFilter => ({ gates: new Set(names) });
    check(
      [
        [gates('a', 'b'), {}],
        [gates('a', 'b'), { [featureGate]: '' }],
        [gates('a', 'b'), { [featureGate]: 'a' }],
        [gates('b'), { [featureGate]: 'a' }, /gate a is not enabled/],
        [gates('b'), { [featureGate]: '-a' }],
        [gates('a', 'b'), { [featureGate]: '-a' }, /gate a is enabled/],
        [gates('a', 'b'), { [featureGate]: 'a,b,-c' }],
        [gates('a'), { [featureGate]: 'a,b,-c' }, /gate b is not enabled/],
        [gates('a', 'b', 'c'), { [featureGate]: 'a,b,-c' }, /gate c is enabled/],
        [gates('a', 'b'), { [featureGate]: ' a , b , -c ' }],
        [gates('a'), { [featureGate]: 'a,,' }],
        [{}, { [featureGate]: 'a' }],
      ],
      deployment,
    );
  });

  it('excludes feature gates and definitions by major version, and all other kinds that name one', () => {
    const major = (value: number): ManifestFilter => ({ major: value });
    check(
      [
        [major(4), {}],
        [{}, { [majorVersion]: '5' }],
        [major(4), { [majorVersion]: '4' }],
        [major(4), { [majorVersion]: '5' }, /for the major versions 5/],
        [major(5), { [majorVersion]: '4,5,6' }],
        [major(7), { [majorVersion]: '4,5,6' }, /for the major versions/],
        [major(4), { [majorVersion]: '-4' }, /for the major versions -4/],
        [major(5), { [majorVersion]: '-4' }],
        [major(4), { [majorVersion]: '4,-5' }],
        [major(4), { [majorVersion]: '4,-4' }, /contradicts itself/],
        [major(4), { [majorVersion]: '5,-6' }, /for the major versions/],
        [major(4), { [majorVersion]: ' 4 , 5 , -6 ' }],
        [major(4), { [majorVersion]: '4,,5' }],
        [major(4), { [majorVersion]: 'abc' }, /invalid value “abc”/],
        [major(4), { [majorVersion]: '-abc' }, /invalid value “-abc”/],
        [major(3), { [majorVersion]: '4,5,-3' }, /for the major versions/],
      ],
      gate,
    );
    check([[major(5), { [majorVersion]: '5' }]], {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
    });
    check([[major(5), { [majorVersion]: '5' }, /only for feature gates and definitions/]], deployment);
  });

  it('excludes by capabilities', () => {
    const capabilities = (known: string[], enabled = known): ManifestFilter => ({ capabilities: { known, enabled } });
    check(
      [
        [{}, { [capability]: 'a' }],
        [capabilities(['a'], []), { [capability]: 'a' }, /capability a is disabled/],
        [capabilities(['a']), { [capability]: 'a' }],
        [capabilities(['a', 'c']), { [capability]: 'a+b' }, /capability b is unknown/],
        [capabilities(['a', 'b', 'c'], ['a', 'c']), { [capability]: 'a+b' }, /capability b is disabled/],
        [capabilities(['a', 'b']), { [capability]: 'a+b' }],
        [capabilities([]), { [capability]: '' }],
      ],
      deployment,
    );
  });
});

describe('listedFeatureSets', () => {
  const include = `include.release.openshift.io/${profile}`;
  const sets = (annotations: object): readonly string[] =>
    listedFeatureSets({ ...gate, metadata: { name: 'x', annotations } }, profile, 4);

  it('are the feature sets of a FeatureGate for the profile and the major version', () => {
    const marks = { [include]: 'false-except-for-the-config-operator', [featureSet]: 'Default,TechPreviewNoUpgrade' };
    expect(sets(marks)).to.deep.equal(['Default', 'TechPreviewNoUpgrade']);
    expect(sets({ ...marks, [majorVersion]: '5' })).to.deep.equal([]);
    expect(sets({ [featureSet]: 'Default' })).to.deep.equal([]);
  });
});
