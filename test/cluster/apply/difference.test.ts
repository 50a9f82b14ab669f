import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { findDifferences, mergeManifest } from '../../../lib/cluster/apply/difference.ts';
import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import { signatureConfigMap } from '../../../lib/config/signatures.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';

const stored = (fields: object, metadata: object = {}): StoredObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: 'x', namespace: 'n', resourceVersion: '7', uid: 'u', managedFields: [], ...metadata },
  ...fields,
});
const manifest = (fields: object, metadata: object = {}) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: 'x', namespace: 'n', ...metadata },
  ...fields,
});

describe('findDifferences', () => {
  it('compares only the fields of the manifest', () => {
    const theirs = stored(
      { kind: 'UpdateService', spec: { replicas: 2, releases: 'r', defaulted: true }, status: { phase: 'Up' } },
      { labels: { added: 'yes' }, annotations: { by: 'somebody' } },
    );
    const ours = manifest({ kind: 'UpdateService', spec: { replicas: 2, releases: 'r' }, status: { phase: 'Down' } });
    expect(findDifferences(theirs, ours)).to.deep.equal([]);
    const other = { ...ours, spec: { replicas: 1, releases: 'r', graphDataImage: 'g' } };
    expect(findDifferences(theirs, other)).to.deep.equal([
      'spec.graphDataImage: (absent) → "g"',
      'spec.replicas: 2 → 1',
    ]);
  });

  it('wants the data of ConfigMaps and Secrets exactly', () => {
    expect(findDifferences(stored({ data: { a: '1', b: '2' } }), manifest({ data: { a: '1' } }))).to.deep.equal([
      'data.b: "2" → (absent)',
    ]);
    expect(findDifferences(stored({ data: { a: '1' } }), manifest({}))).to.deep.equal(['data.a: "1" → (absent)']);
    expect(findDifferences(stored({}), manifest({ data: {} }))).to.deep.equal([]);
  });

  it('shows values as they are, long ones shortened in the middle, those of Secrets not at all', () => {
    const [theirs, ours] = [randomBytes(100), randomBytes(20)];
    const [line] = findDifferences(
      stored({ binaryData: { 'sha256-ab-1': theirs.toString('base64') } }),
      manifest({ binaryData: { 'sha256-ab-1': ours.toString('base64') } }),
    );
    const short = (text: string): string => `${text.slice(0, 40)}…${text.slice(-40)} (${text.length} characters)`;
    const quoted = (bytes: Buffer): string => `"${bytes.toString('base64')}"`;
    expect(line).to.equal(`binaryData.sha256-ab-1: ${short(quoted(theirs))} → ${quoted(ours)}`);
    const long = 'x'.repeat(500);
    expect(findDifferences(stored({ data: { a: 'b' } }), manifest({ data: { a: long } }))).to.deep.equal([
      `data.a: "b" → ${short(JSON.stringify(long))}`,
    ]);
    const secret = { kind: 'Secret', stringData: { password: 'new' } };
    const before = stored({ kind: 'Secret', data: { password: Buffer.from('old').toString('base64') } });
    expect(findDifferences(before, manifest(secret))).to.deep.equal(['data.password: (secret) → (secret)']);
    const same = stored({ kind: 'Secret', data: { password: Buffer.from('new').toString('base64') } });
    expect(findDifferences(same, manifest(secret))).to.deep.equal([]);
  });

  it('compares lists entry by entry, and quotes keys that need it', () => {
    const theirs = stored(
      { kind: 'X', spec: { list: [{ a: 1, kept: 1 }, { a: 2 }, 3] } },
      { labels: { 'a.b/c': '1' } },
    );
    const ours = manifest({ kind: 'X', spec: { list: [{ a: 1 }, { a: 3 }] } }, { labels: { 'a.b/c': '2' } });
    expect(findDifferences(theirs, ours)).to.deep.equal([
      'metadata.labels["a.b/c"]: "1" → "2"',
      'spec.list[1].a: 2 → 3',
      'spec.list[2]: 3 → (absent)',
    ]);
  });

  it('ignores defaults of the server, null, and base64 in lines', () => {
    const bytes = randomBytes(60).toString('base64');
    const metadata = { creationTimestamp: null, resourceVersion: '1', uid: 'other', generation: 9, labels: null };
    const ours = manifest({ binaryData: { a: `${bytes.slice(0, 40)}\n${bytes.slice(40)}` }, data: null }, metadata);
    expect(findDifferences(stored({ binaryData: { a: bytes } }), ours)).to.deep.equal([]);
  });

  it('finds the signatures that another tool has put there unchanged', () => {
    const digest = digestOf('release');
    const signature = randomBytes(500);
    const { object } = signatureConfigMap(digest, [signature], { version: '4.12.4', signer: 'F'.repeat(40) });
    const theirs = { ...object, metadata: { ...object.metadata, annotations: {}, creationTimestamp: 'now' } };
    expect(findDifferences(theirs, object)).to.deep.equal([]);
    const more = { ...theirs, binaryData: { ...(object['binaryData'] as object), extra: '' } };
    expect(findDifferences(more, object)).to.have.length(1);
  });
});

describe('mergeManifest', () => {
  it('keeps foreign fields and the resourceVersion, and replaces data whole', () => {
    const theirs = stored(
      { data: { a: '1', b: '1' }, binaryData: { c: 'AA==' }, immutable: false },
      { labels: { theirs: 'yes' }, finalizers: ['f'] },
    );
    const ours = manifest({ data: { a: '2' } }, { labels: { ours: 'yes' }, resourceVersion: '1' });
    const merged = mergeManifest(theirs, ours);
    expect(merged).to.deep.equal({
      ...stored({ data: { a: '2' }, immutable: false }),
      metadata: { ...theirs.metadata, labels: { theirs: 'yes', ours: 'yes' } },
    });
    expect(findDifferences(merged, ours)).to.deep.equal([]);
  });
});
