import { generateKeyPairSync } from 'node:crypto';
import { expect } from 'chai';
import { parse, stringify } from 'yaml';
import { readPayloadPolicies, readFeatureSets } from '../../../lib/release/payload/metadata.ts';
import { isEnforcedByDefault } from '../../../lib/release/sigstore/imagePolicy.ts';
import { makeContext } from '../../support/context.ts';
import { attachmentKey } from '../../support/release/attachments.ts';
import { imagePolicyFiles } from '../../support/release/imagePolicy.ts';
import { featureGateFile, pinningFiles } from '../../support/release/pinning.ts';

const filesOf = (files: Readonly<Record<string, string>>): Map<string, Buffer> =>
  new Map(Object.entries(files).map(([name, text]) => [name, Buffer.from(text)]));

const definition = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'clusterimagepolicies.config.openshift.io' },
  spec: { names: { kind: 'ClusterImagePolicy' } },
};

describe('readPayloadPolicies', () => {
  it('reads the policies of a payload with their scopes and keys', () => {
    const [policy, ...others] = readPayloadPolicies(filesOf(imagePolicyFiles()), '4.21.0', makeContext());
    expect(others).to.deep.equal([]);
    expect(policy).to.deep.include({
      name: 'openshift',
      scopes: ['quay.io/openshift-release-dev'],
      excluded: undefined,
    });
    expect(policy?.trust.kind === 'key' && policy.trust.key.fingerprint).to.match(/^[0-9a-f]{64}$/);
  });

  it('reads v1alpha1 as v1', () => {
    const [[name, text] = ['', '']] = Object.entries(imagePolicyFiles());
    const earlier = text.replace('config.openshift.io/v1', 'config.openshift.io/v1alpha1');
    const read = (content: string) => readPayloadPolicies(filesOf({ [name]: content }), '4.21.0', makeContext());
    expect(earlier).not.to.equal(text);
    expect(read(earlier)).to.deep.equal(read(text));
  });

  it('reads JSON, and passes over definitions of the kind and policies of other groups', () => {
    const json = {
      apiVersion: 'config.openshift.io/v1',
      kind: 'ImagePolicy',
      metadata: { name: 'a', namespace: 'b' },
      spec: {},
    };
    const files = {
      'a.json': JSON.stringify(json, null, 2),
      'crd.yaml':
        'apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec:\n  names:\n    kind: ' +
        'ClusterImagePolicy\n',
      'other.yaml': 'apiVersion: policy.sigstore.dev/v1beta1\nkind: ClusterImagePolicy\nmetadata:\n  name: other\n',
    };
    const policies = readPayloadPolicies(filesOf(files), '4.21.0', makeContext());
    expect(policies.map(({ name, namespace, trust }) => [name, namespace, trust.kind])).to.deep.equal([
      ['a', 'b', 'invalid'],
    ]);
  });

  it('reads a policy in each form of YAML and JSON', () => {
    const [[file, text] = ['', '']] = Object.entries(imagePolicyFiles());
    const object = parse(text) as object;
    const forms: Readonly<Record<string, string>> = {
      comment: text.replace('kind: ClusterImagePolicy', 'kind: ClusterImagePolicy # of Red Hat'),
      'quoted key': text.replace('kind: Cluster', '"kind": Cluster'),
      'single quotes': text.replace('kind: ClusterImagePolicy', "'kind' : 'ClusterImagePolicy'"),
      'minified JSON': JSON.stringify(object),
      List: stringify({ apiVersion: 'v1', kind: 'List', items: [object] }),
      'List of JSON': JSON.stringify({ apiVersion: 'v1', kind: 'List', items: [object] }),
      'second document': `${stringify(definition)}---\n${text}`,
      'line below': text.replace('kind: ClusterImagePolicy', 'kind:\n  ClusterImagePolicy'),
      escape: JSON.stringify(object).replace('"kind":"ClusterImage', '"kin\\u0064":"Cluster\\u0049mage'),
      'escape of YAML': text.replace('kind: ClusterImagePolicy', 'kind: "Cluster\\x49mage\\\n  Policy"'),
      alias: text.replace('kind: ClusterImagePolicy', 'x: &x ClusterImagePolicy\nkind: *x'),
      tag: text.replace('kind: Cluster', 'kind: !!str Cluster'),
    };
    for (const [name, content] of Object.entries(forms)) {
      const context = makeContext();
      const found = readPayloadPolicies(filesOf({ [file]: content }), '4.21.0', context);
      expect(found.map((each) => each.name, name)).to.deep.equal(['openshift'], name);
      expect(found.filter(isEnforcedByDefault), name).to.have.length(1);
      expect(
        context.lines.filter((line) => line.startsWith('warn')),
        name,
      ).to.deep.equal([]);
    }
  });

  it('does not enforce a policy of another profile, without a profile, or of a gate that is off', () => {
    const [[file, text] = ['', '']] = Object.entries(imagePolicyFiles());
    const profile = 'include.release.openshift.io/self-managed-high-availability: "true"';
    const isEnforced = (content: string): boolean[] => {
      const files = { [file]: content, ...featureGateFile('Default', ['On'], ['Off']) };
      return readPayloadPolicies(filesOf(files), '4.21.0', makeContext()).map(isEnforcedByDefault);
    };
    const gated = (gate: string): string =>
      text.replace(profile, `${profile}\n    release.openshift.io/feature-gate: ${gate}`);
    expect(isEnforced(gated('On'))).to.deep.equal([true]);
    expect(isEnforced(gated('Off'))).to.deep.equal([false]);
    expect(isEnforced(gated('"-Off"'))).to.deep.equal([true]);
    expect(isEnforced(text.replace('self-managed-high-availability', 'ibm-cloud-managed'))).to.deep.equal([false]);
    expect(isEnforced(text.replace(profile, 'note: x'))).to.deep.equal([false]);
  });

  it('reads 800 manifests of a release in a moment', () => {
    const files: Record<string, string> = { ...imagePolicyFiles() };
    const property = { description: 'ImagePolicy, ClusterImagePolicy and FeatureGate. '.repeat(8), type: 'string' };
    const big = {
      ...definition,
      properties: Object.fromEntries(Array.from({ length: 500 }, (_, n) => [`p${n}`, property])),
    };
    for (let index = 0; index < 40; index += 1) files[`${index}.crd.yaml`] = stringify(big);
    for (let index = 0; index < 760; index += 1)
      files[`${index}.yaml`] = `kind: ConfigMap\ndata:\n  x: "\\n${'a'.repeat(9000)}"\n`;
    const map = filesOf(files);
    expect(readPayloadPolicies(map, '4.21.0', makeContext())).to.have.length(1);
  });

  it('says why nodes refuse every image of a policy', () => {
    const { privateKey } = generateKeyPairSync('ed25519', {
      privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
      publicKeyEncoding: { type: 'spki', format: 'pem' },
    });
    const keyData = (text: string): string => Buffer.from(text).toString('base64');
    const publicKey = { keyData: keyData(attachmentKey) };
    const cases: readonly (readonly [rootOfTrust: object, reason: RegExp])[] = [
      [{ policyType: 'Notary' }, /^its root of trust is Notary, which is unknown$/],
      [{ policyType: 'FulcioCAWithRekor', fulcioCAWithRekor: {} }, /^its Fulcio CA is missing$/],
      [{ policyType: 'FulcioCAWithRekor', fulcioCAWithRekor: { fulcioCAData: 'eA==' } }, /^its Rekor key is missing$/],
      [{ policyType: 'PKI', pki: {} }, /^its CA is missing$/],
      [{ policyType: 'PKI', pki: { caRootsData: 'eA==' } }, /^it names no email address or host name$/],
      [
        { policyType: 'PublicKey', publicKey: { ...publicKey, rekorKeyData: 'eA==' } },
        /^its Rekor key cannot be read: /,
      ],
      [{ policyType: 'PublicKey' }, /^its key is missing$/],
      [{ policyType: 'PublicKey', publicKey: { keyData: keyData('x') } }, /^its key cannot be read: /],
      [
        { policyType: 'PublicKey', publicKey: { keyData: keyData(privateKey) } },
        /^its key cannot be read: it is PRIVATE KEY instead/,
      ],
    ];
    for (const [rootOfTrust, reason] of cases) {
      const [policy] = readPayloadPolicies(filesOf(imagePolicyFiles({ rootOfTrust })), '4.21.0', makeContext());
      expect(policy?.trust).to.have.property('reason').that.matches(reason);
    }
    const [[name, text] = ['', '']] = Object.entries(imagePolicyFiles());
    const other = { [name]: text.replace('MatchRepository', 'MatchSomething') };
    const [unknown] = readPayloadPolicies(filesOf(other), '4.21.0', makeContext());
    expect(unknown?.trust).to.have.property('reason', 'its signedIdentity is of an unknown kind');
  });

  it('skips a file that is not YAML, with a warning', () => {
    const context = makeContext();
    expect(
      readPayloadPolicies(filesOf({ 'a.yaml': 'kind: ClusterImagePolicy\n"\n' }), '4.21.0', context),
    ).to.deep.equal([]);
    expect(context.lines.join()).to.match(/warn: a\.yaml of the release payload is skipped/);
  });

  it('tells which policies a cluster enforces without a feature set', () => {
    const isEnforced = (featureSet?: string): boolean[] =>
      readPayloadPolicies(
        filesOf(imagePolicyFiles({ ...(featureSet && { featureSet }) })),
        '4.21.0',
        makeContext(),
      ).map(isEnforcedByDefault);
    expect(isEnforced()).to.deep.equal([true]);
    expect(isEnforced('CustomNoUpgrade,Default')).to.deep.equal([true]);
    expect(isEnforced('TechPreviewNoUpgrade,DevPreviewNoUpgrade')).to.deep.equal([false]);
  });
});

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
