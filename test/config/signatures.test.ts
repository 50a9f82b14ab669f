import { expect } from 'chai';
import { formatManifest } from '../../lib/config/manifest.ts';
import { readAllSignatures, readSignatures, signatureConfigMap } from '../../lib/config/signatures.ts';
import { digestOf, hexOf } from '../../lib/content/oci/reference.ts';
import { isPluginError } from '../../lib/errors.ts';

const digest = digestOf('a release');
const other = digestOf('another release');
const hex = hexOf(digest);
const signatures = Array.from({ length: 11 }, (_, index) => Buffer.from([0xa3, 1, 0xff, index]));
const [first = Buffer.alloc(0), second = Buffer.alloc(0)] = signatures;
const about = { version: '4.12.4', signer: '567E347AD0044ADE55BA8A5F199E2F91FD431D51' };

describe('signatureConfigMap', () => {
  it('has the form that the cluster looks for, at its path in the mirror directory', () => {
    const { path, object } = signatureConfigMap(digest, [first, second], about);
    expect(path).to.equal(`config/signature/sha256/${hex.slice(0, 16)}.yaml`);
    expect(object).to.deep.equal({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: {
        name: `sha256-${hex}`,
        namespace: 'openshift-config-managed',
        labels: { 'release.openshift.io/verification-signatures': '' },
        annotations: {
          'upgrade-bundle.openshift.io/release': '4.12.4',
          'upgrade-bundle.openshift.io/signed-by': about.signer,
        },
      },
      binaryData: {
        [`sha256-${hex}-1`]: first.toString('base64'),
        [`sha256-${hex}-2`]: second.toString('base64'),
      },
    });
  });
});

describe('readSignatures', () => {
  const configMap = (binaryData: object, more: object = {}): object => ({
    kind: 'ConfigMap',
    apiVersion: 'v1',
    metadata: {
      name: 'x',
      creationTimestamp: null,
      labels: { 'release.openshift.io/verification-signatures': '' },
      ...more,
    },
    binaryData,
  });
  const base64 = first.toString('base64');

  it('reads the output of signatureConfigMap in the same order', () => {
    const text = formatManifest(signatureConfigMap(digest, signatures, about).object);
    expect([...readSignatures(text, 'x')]).to.deep.equal([[digest, signatures]]);
  });

  it('reads the JSON that oc writes', () => {
    const text = JSON.stringify(configMap({ [`sha256-${hex}-1`]: base64 })) + '\n';
    expect([...readSignatures(text, 'x')]).to.deep.equal([[digest, [first]]]);
  });

  it('reads ConfigMaps of clusters: several releases in one, counted from 0, in a list', () => {
    const keys = {
      [`sha256-${hex}-1`]: second.toString('base64'),
      [`sha256-${hex}-0`]: base64,
      [`sha256-${hexOf(other)}`]: base64,
    };
    const text = JSON.stringify(
      { kind: 'List', apiVersion: 'v1', items: [configMap(keys), { kind: 'Secret' }] },
      null,
      '\t',
    );
    const found = readSignatures(text, 'x');
    expect(found.get(digest)).to.deep.equal([first, second]);
    expect(found.get(other)).to.deep.equal([first]);
  });

  it('finds nothing in other objects and in empty files', () => {
    const unlabelled = JSON.stringify(configMap({ [`sha256-${hex}-1`]: base64 }, { labels: {} }));
    for (const text of ['', '---\n', '# nothing', 'kind: ImageDigestMirrorSet', unlabelled, 'null', '[]', '"x"']) {
      expect(readSignatures(text, 'x').size, text).to.equal(0);
    }
  });

  it('ignores keys that are not of a digest', () => {
    const text = JSON.stringify(configMap({ 'sha256-12-1': base64, [`sha512-${hex}-1`]: base64, readme: base64 }));
    expect(readSignatures(text, 'x').size).to.equal(0);
  });

  it('names a file that is malformed', () => {
    const bad = [
      'kind: [',
      JSON.stringify(configMap({ [`sha256-${hex}-1`]: 'not base64!' })),
      JSON.stringify(configMap({ [`sha256-${hex}-1`]: 5 })),
    ];
    for (const text of bad) {
      expect(() => readSignatures(text, 'config/x.yaml'))
        .to.throw(/config\/x\.yaml is n/)
        .that.satisfies((error: unknown) => isPluginError(error, 'invalid-file'));
    }
  });
});

describe('readAllSignatures', () => {
  it('gathers the signatures of a folder’s files, each once', () => {
    const text = (...list: Buffer[]): string => formatManifest(signatureConfigMap(digest, list, about).object);
    const found = readAllSignatures([
      { path: 'config/a.yaml', text: text(first) },
      { path: 'config/b.json', text: text(second, first) },
      { path: 'config/c.yaml', text: 'kind: UpdateService' },
      { path: 'config/d.yaml', text: formatManifest(signatureConfigMap(other, [second], about).object) },
    ]);
    expect([...found]).to.deep.equal([
      [digest, [first, second]],
      [other, [second]],
    ]);
  });
});
