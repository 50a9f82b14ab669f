import { expect } from 'chai';
import { comparedName, describeProblem, entryKindOf, type BundleFile } from '../../../lib/bundle/open/bundle.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';

const digest = digestOf('content');
const repository = 'v2/openshift/release';

describe('entryKindOf', () => {
  const kindOf = (path: string, more: Partial<BundleFile> = {}): ReturnType<typeof entryKindOf> =>
    entryKindOf({ path, ...more });

  it('tells metadata, configuration, manifests and blobs by their paths', () => {
    expect(kindOf('metadata.json')).to.deep.equal({ kind: 'metadata' });
    expect(kindOf('config/sub/a.yaml')).to.deep.equal({ kind: 'config' });
    expect(kindOf(`${repository}/manifests/${digest}`)).to.deep.equal({ kind: 'manifest', digest });
    expect(kindOf(`${repository}/blobs/${digest}`)).to.deep.equal({ kind: 'blob', digest });
    expect(kindOf(`${repository}/blobs/${digest.replace(':', '-')}`)).to.deep.equal({ kind: 'blob', digest });
  });

  it('takes a link or a copy of a manifest for a tag', () => {
    const tag = { kind: 'tag', name: '4.12.4-x86_64' };
    const path = `${repository}/manifests/4.12.4-x86_64`;
    expect(kindOf(path, { target: digest })).to.deep.equal(tag);
    expect(kindOf(path)).to.deep.equal(tag);
  });

  it('has no place for any other file, link, pipe or device', () => {
    for (const path of [
      'other.json',
      'sub/metadata.json',
      'config',
      `${repository}/blobs/4.12.4-x86_64`,
      `${repository}/blobs/sub/${digest}`,
      `${repository}/${digest}`,
      `v2/other/manifests/${digest}`,
      `${repository}/manifests/-not a tag`,
    ])
      expect(kindOf(path), path).to.deep.equal({ kind: 'other' });
    for (const path of ['metadata.json', 'config/a.yaml', `${repository}/blobs/${digest}`]) {
      expect(kindOf(path, { target: digest }), path).to.deep.equal({ kind: 'other' });
      expect(kindOf(path, { isSpecial: true }), path).to.deep.equal({ kind: 'other' });
    }
    expect(kindOf(`${repository}/manifests/4.12.4-x86_64`, { isSpecial: true })).to.deep.equal({ kind: 'other' });
  });
});

describe('comparedName', () => {
  it('names the parts that are read several times: headers, metadata.json and configuration', () => {
    const file = (path: string): BundleFile => ({ path, size: 1 });
    expect(comparedName('header')).to.equal('header');
    for (const path of ['metadata.json', 'config/a.yaml']) expect(comparedName(file(path))).to.equal(path);
    for (const part of ['padding', 'trailing', file(`${repository}/blobs/${digest}`), file('other')] as const)
      expect(comparedName(part)).to.equal(undefined);
  });
});

describe('describeProblem', () => {
  it('replaces control characters that the bundle may have', () => {
    const problem = describeProblem('unexpected', 'file', 'a\u001b[31m', 'line\nnext\u009b\ttab', 'a hint');
    expect(problem).to.deep.equal({
      kind: 'unexpected',
      subject: 'file',
      what: 'a\ufffd[31m',
      images: [],
      message: 'line\ufffdnext\ufffd\ufffdtab',
      hint: 'a hint',
    });
  });
});
