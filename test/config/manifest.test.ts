import { expect } from 'chai';
import { parse } from 'yaml';
import { formatManifest, type KubernetesObject } from '../../lib/config/manifest.ts';

describe('formatManifest', () => {
  const object: KubernetesObject = {
    spec: { b: ['x', 'y'], a: { z: 1, name: 'n' } },
    kind: 'Thing',
    metadata: { namespace: 'ns', name: 'thing', labels: { b: '', a: 'yes' } },
    apiVersion: 'v1',
  };

  it('writes the same bytes in any order of the keys, the identity first', () => {
    const text = formatManifest(object);
    const other = {
      apiVersion: 'v1',
      metadata: object.metadata,
      kind: 'Thing',
      spec: { a: { name: 'n', z: 1 }, b: ['x', 'y'] },
    };
    expect(formatManifest(other)).to.equal(text);
    expect(text).to.match(
      /^apiVersion: v1\nkind: Thing\nmetadata:\n {2}name: thing\n {2}namespace: ns\n {2}labels:\n {4}a: "yes"\n {4}b: ""\n/,
    );
    expect(parse(text)).to.deep.equal(object);
  });

  it('quotes what YAML 1.1 would read as something else', () => {
    const words = [
      'yes',
      'no',
      'on',
      'off',
      'y',
      'true',
      'null',
      '1.10',
      '012',
      '1e3',
      '12:30:45',
      '2023-01-01',
      '~',
      '- a',
      '#',
    ];
    const text = formatManifest({ ...object, spec: words });
    expect(parse(text, { version: '1.1' }))
      .to.have.property('spec')
      .that.deep.equals(words);
    expect(parse(text)).to.have.property('spec').that.deep.equals(words);
  });

  it('does not fold long lines and makes no anchors', () => {
    const shared = { base64: 'QUJD'.repeat(500) };
    const text = formatManifest({ ...object, spec: { one: shared, two: shared } });
    expect(text.split('\n').filter((line) => line.includes('QUJD'))).to.have.length(2);
    expect(text).not.to.contain('&');
  });
});
