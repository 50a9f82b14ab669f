import { expect } from 'chai';
import { parse } from 'yaml';
import { parseReference } from '../../../lib/content/oci/reference.ts';
import {
  isImagePolicy,
  matchesIdentity,
  policiesFor,
  readImagePolicy,
  rootFingerprint,
  scopesOf,
  type IdentityRule,
  type ImagePolicy,
} from '../../../lib/release/sigstore/imagePolicy.ts';
import { makeAuthority } from '../../support/certificates.ts';
import { imagePolicyFiles, type PolicyOptions } from '../../support/release/imagePolicy.ts';
import { makeKey } from '../../support/x509.ts';
import { base64, pemOf, type Json } from './policyCases.ts';

/** Returns the object of a policy, with changes of its kind and of its `signedIdentity`. */
const policyObject = (options: PolicyOptions = {}, kind = 'ClusterImagePolicy', signedIdentity?: Json): Json => {
  const [text = ''] = Object.values(imagePolicyFiles(options));
  const object = parse(text) as { metadata: Json; spec: { policy: Json } };
  const policy = { ...object.spec.policy, ...(signedIdentity && { signedIdentity }) };
  return {
    ...object,
    kind,
    metadata: { ...object.metadata, ...(kind === 'ImagePolicy' && { namespace: 'shop' }) },
    spec: { ...object.spec, policy },
  };
};
const read = (...args: Parameters<typeof policyObject>): ImagePolicy => readImagePolicy(policyObject(...args), 'here');

describe('isImagePolicy', () => {
  it('accepts the two kinds of OpenShift in any version', () => {
    const apiVersion = 'config.openshift.io/v1alpha1';
    for (const kind of ['ClusterImagePolicy', 'ImagePolicy'])
      expect(isImagePolicy({ apiVersion, kind })).to.equal(true);
    for (const other of [
      { apiVersion: 'policy.sigstore.dev/v1', kind: 'ClusterImagePolicy' },
      { apiVersion, kind: 'ImageTagMirrorSet' },
      { kind: 'ImagePolicy' },
      null,
      'ImagePolicy',
    ])
      expect(isImagePolicy(other)).to.equal(false);
  });
});

describe('readImagePolicy', () => {
  it('returns the name, the scopes and the namespace of a policy', () => {
    const scopes = ['quay.io/a', 5, '*.example.com'];
    expect(read({ scopes: scopes as string[] })).to.deep.include({
      name: 'openshift',
      namespace: undefined,
      source: 'here',
      scopes: ['quay.io/a', '*.example.com'],
    });
    expect(read({}, 'ImagePolicy').namespace).to.equal('shop');
    expect(readImagePolicy({ kind: 'ClusterImagePolicy' }, 'here')).to.deep.include({ scopes: [] });
  });

  it('returns the rule for names in signatures', () => {
    const rules: [Json | undefined, IdentityRule][] = [
      [{}, { kind: 'repo-digest-or-exact' }],
      [{ matchPolicy: 'MatchRepoDigestOrExact' }, { kind: 'repo-digest-or-exact' }],
      [{ matchPolicy: 'MatchRepository' }, { kind: 'repository' }],
      [
        { matchPolicy: 'ExactRepository', exactRepository: { repository: 'quay.io/a/b' } },
        { kind: 'exact-repository', repository: 'quay.io/a/b' },
      ],
      [
        { matchPolicy: 'RemapIdentity', remapIdentity: { prefix: 'a', signedPrefix: 'b' } },
        { kind: 'remap', prefix: 'a', signedPrefix: 'b' },
      ],
    ];
    for (const [signedIdentity, expected] of rules)
      expect(read({}, 'ClusterImagePolicy', signedIdentity).identity).to.deep.equal(expected);
  });

  it('has an invalid root of trust if the rule for names is unknown, or lacks its names', () => {
    for (const signedIdentity of [
      { matchPolicy: 'MatchExact' },
      { matchPolicy: 'ExactRepository' },
      { matchPolicy: 'RemapIdentity', remapIdentity: { prefix: 'a' } },
    ]) {
      const { trust } = read({}, 'ClusterImagePolicy', signedIdentity);
      expect(trust).to.deep.equal({ kind: 'invalid', reason: 'its signedIdentity is of an unknown kind' });
      expect(rootFingerprint(trust)).to.equal(undefined);
    }
  });
});

describe('rootFingerprint', () => {
  it('is that of the key alone, and differs for each other root of trust', async () => {
    const [key, rekor] = [makeKey(), makeKey()].map((each) => base64(pemOf(each)));
    const keyRoot = (publicKey: Json): object => ({ policyType: 'PublicKey', publicKey });
    await using authority = await makeAuthority();
    const pki = (email: string): object => ({
      policyType: 'PKI',
      pki: { caRootsData: base64(authority.certificate), pkiCertificateSubject: { email } },
    });
    const fingerprintOf = (rootOfTrust: object): string | undefined => {
      const { trust } = read({ rootOfTrust });
      if (trust.kind === 'invalid') throw new Error(trust.reason);
      return rootFingerprint(trust);
    };
    const { trust } = read({ rootOfTrust: keyRoot({ keyData: key }) });
    expect(trust.kind === 'key' && trust.key.fingerprint).to.equal(fingerprintOf(keyRoot({ keyData: key })));
    const roots = [
      keyRoot({ keyData: key }),
      keyRoot({ keyData: rekor }),
      keyRoot({ keyData: key, rekorKeyData: rekor }),
      pki('a@example.com'),
      pki('b@example.com'),
    ];
    const fingerprints = roots.map(fingerprintOf);
    expect(new Set(fingerprints).size).to.equal(roots.length);
    expect(roots.map(fingerprintOf)).to.deep.equal(fingerprints);
    for (const fingerprint of fingerprints) expect(fingerprint).to.match(/^[0-9a-f]{64}$/);
  });
});

describe('scopesOf', () => {
  it('lists the scopes that cover an image, the most specific first', () => {
    expect(scopesOf(parseReference('a.b.example.com:5000/x/y:1'))).to.deep.equal([
      'a.b.example.com:5000/x/y:1',
      'a.b.example.com:5000/x/y',
      'a.b.example.com:5000/x',
      'a.b.example.com:5000',
      '*.b.example.com',
      '*.example.com',
      '*.com',
    ]);
  });
});

describe('policiesFor', () => {
  const find = (image: string, ...scopes: string[]): string[] => {
    const policies = scopes.map((scope) => read({ scopes: [scope] }));
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

describe('matchesIdentity', () => {
  const image = parseReference(`quay.io/team/app@sha256:${'1'.repeat(64)}`);
  const cases: [rule: IdentityRule, signed: string, expected: boolean][] = [
    [{ kind: 'repository' }, 'quay.io/team/app', true],
    [{ kind: 'repository' }, 'quay.io/team/app:1', true],
    [{ kind: 'repository' }, 'quay.io/team/other:1', false],
    [{ kind: 'repo-digest-or-exact' }, 'quay.io/team/app:1', true],
    [{ kind: 'repo-digest-or-exact' }, 'quay.io/team/app', false],
    [{ kind: 'exact-repository', repository: 'quay.io/a/b' }, 'quay.io/a/b:1', true],
    [{ kind: 'exact-repository', repository: 'quay.io/a/b' }, 'quay.io/team/app:1', false],
    [{ kind: 'exact-repository', repository: 'docker.io/library/busybox' }, 'busybox', true],
    [{ kind: 'remap', prefix: 'quay.io/team', signedPrefix: 'example.com/x' }, 'example.com/x/app:1', true],
    [{ kind: 'remap', prefix: 'quay.io/team/app', signedPrefix: 'example.com/x' }, 'example.com/x:1', true],
    [{ kind: 'remap', prefix: 'quay.io/tea', signedPrefix: 'example.com/x' }, 'example.com/xm/app:1', false],
    [{ kind: 'remap', prefix: 'quay.io/tea', signedPrefix: 'example.com/x' }, 'quay.io/team/app:1', true],
    [{ kind: 'remap', prefix: 'quay.io/team', signedPrefix: 'example.com/x' }, 'example.com/x/app', false],
    [{ kind: 'repository' }, 'not a name', false],
  ];
  for (const [rule, signed, expected] of cases) {
    it(`${expected ? 'accepts' : 'refuses'} “${signed}” by ${Object.values(rule).join(' ')}`, () => {
      expect(matchesIdentity(rule, image, signed)).to.equal(expected);
    });
  }
});
