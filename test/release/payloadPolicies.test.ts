import { generateKeyPairSync } from 'node:crypto';
import { expect } from 'chai';
import { readPayloadPolicies } from '../../lib/release/payloadPolicies.ts';
import { isEnforcedByDefault, policiesFor } from '../../lib/release/sigstore/imagePolicy.ts';
import { parseReference } from '../../lib/oci/reference.ts';
import { makeContext } from '../support/context.ts';
import { attachmentKey } from '../support/release/attachments.ts';
import { imagePolicyFiles } from '../support/release/imagePolicy.ts';

const filesOf = (files: Readonly<Record<string, string>>): Map<string, Buffer> =>
  new Map(Object.entries(files).map(([name, text]) => [name, Buffer.from(text)]));

describe('readPayloadPolicies', () => {
  it('reads the policies of a payload with their scopes and keys', () => {
    const [policy, ...others] = readPayloadPolicies(filesOf(imagePolicyFiles()), makeContext());
    expect(others).to.deep.equal([]);
    expect(policy).to.deep.include({
      name: 'openshift',
      scopes: ['quay.io/openshift-release-dev'],
      featureSets: undefined,
    });
    expect(policy?.trust.kind === 'key' && policy.trust.key.fingerprint).to.match(/^[0-9a-f]{64}$/);
  });

  it('reads v1alpha1 as v1', () => {
    const [[name, text] = ['', '']] = Object.entries(imagePolicyFiles());
    const earlier = text.replace('config.openshift.io/v1', 'config.openshift.io/v1alpha1');
    const read = (content: string) => readPayloadPolicies(filesOf({ [name]: content }), makeContext());
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
        'apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec:\n  names:\n    kind: ClusterImagePolicy\n',
      'other.yaml': 'apiVersion: policy.sigstore.dev/v1beta1\nkind: ClusterImagePolicy\nmetadata:\n  name: other\n',
    };
    const policies = readPayloadPolicies(filesOf(files), makeContext());
    expect(policies.map(({ name, namespace, trust }) => [name, namespace, trust.kind])).to.deep.equal([
      ['a', 'b', 'unsupported'],
    ]);
  });

  it('says why a policy cannot be checked', () => {
    const { privateKey } = generateKeyPairSync('ed25519', {
      privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
      publicKeyEncoding: { type: 'spki', format: 'pem' },
    });
    const keyData = (text: string): string => Buffer.from(text).toString('base64');
    const publicKey = { keyData: keyData(attachmentKey) };
    const cases: readonly (readonly [rootOfTrust: object, reason: RegExp])[] = [
      [{ policyType: 'FulcioCAWithRekor', fulcioCAWithRekor: {} }, /^its root of trust is FulcioCAWithRekor, which/],
      [{ policyType: 'PKI', pki: {} }, /^its root of trust is PKI, which cannot be checked offline$/],
      [
        { policyType: 'PublicKey', publicKey: { ...publicKey, rekorKeyData: 'eA==' } },
        /^it wants an entry in a Rekor log/,
      ],
      [{ policyType: 'PublicKey' }, /^it has no key$/],
      [{ policyType: 'PublicKey', publicKey: { keyData: keyData('x') } }, /^its key cannot be read: /],
      [
        { policyType: 'PublicKey', publicKey: { keyData: keyData(privateKey) } },
        /^its key cannot be read: it is PRIVATE KEY instead/,
      ],
    ];
    for (const [rootOfTrust, reason] of cases) {
      const [policy] = readPayloadPolicies(filesOf(imagePolicyFiles({ rootOfTrust })), makeContext());
      expect(policy?.trust).to.have.property('reason').that.matches(reason);
    }
    const [[name, text] = ['', '']] = Object.entries(imagePolicyFiles());
    const other = { [name]: text.replace('MatchRepository', 'MatchSomething') };
    const [unknown] = readPayloadPolicies(filesOf(other), makeContext());
    expect(unknown?.trust).to.have.property('reason', 'its signedIdentity is of an unknown kind');
  });

  it('skips a file that is not YAML, with a warning', () => {
    const context = makeContext();
    expect(readPayloadPolicies(filesOf({ 'a.yaml': 'kind: ClusterImagePolicy\n"\n' }), context)).to.deep.equal([]);
    expect(context.lines.join()).to.match(/warn: a\.yaml of the release payload is skipped/);
  });

  it('tells which policies a cluster enforces without a feature set', () => {
    const isEnforced = (featureSet?: string): boolean[] =>
      readPayloadPolicies(filesOf(imagePolicyFiles({ ...(featureSet && { featureSet }) })), makeContext()).map(
        isEnforcedByDefault,
      );
    expect(isEnforced()).to.deep.equal([true]);
    expect(isEnforced('CustomNoUpgrade,Default')).to.deep.equal([true]);
    expect(isEnforced('TechPreviewNoUpgrade,DevPreviewNoUpgrade')).to.deep.equal([false]);
  });
});

describe('policiesFor', () => {
  const find = (image: string, ...scopes: string[]): string[] => {
    const policies = scopes.flatMap((scope) =>
      readPayloadPolicies(filesOf(imagePolicyFiles({ scopes: [scope] })), makeContext()),
    );
    return policiesFor(parseReference(image), policies).flatMap((policy) => policy.scopes);
  };

  it('takes the most specific scope, as policy.json is searched', () => {
    const all = ['quay.io', '*.io', 'quay.io/a', 'quay.io/a/b', 'quay.io/a/b:1'];
    expect(find('quay.io/a/b:1', ...all)).to.deep.equal(['quay.io/a/b:1']);
    expect(find('quay.io/a/b:2', ...all)).to.deep.equal(['quay.io/a/b']);
    expect(find('quay.io/a/c', ...all)).to.deep.equal(['quay.io/a']);
    expect(find('quay.io/ab/c', ...all)).to.deep.equal(['quay.io']);
    expect(find('ghcr.io/a/b', ...all)).to.deep.equal(['*.io']);
    expect(find('example.com/a/b', ...all)).to.deep.equal([]);
  });

  it('takes all policies with the same scope', () => {
    expect(find('quay.io/a/b', 'quay.io/a', 'quay.io/a')).to.have.length(2);
  });
});
