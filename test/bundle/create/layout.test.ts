import { expect } from 'chai';
import type { Contents } from '../../../lib/bundle/create/contents.ts';
import { type MetadataFacts, parseMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import { layOutBundle } from '../../../lib/bundle/create/writeBundle.ts';
import { PluginError } from '../../../lib/errors.ts';
import { digestOf } from '../../../lib/content/oci/digest.ts';
import { mediaTypes, parseManifest } from '../../../lib/content/oci/descriptor.ts';

const manifest = Buffer.from(
  JSON.stringify({
    schemaVersion: 2,
    mediaType: mediaTypes.ociManifest,
    config: { mediaType: 'application/vnd.oci.image.config.v1+json', digest: digestOf(Buffer.from('{}')), size: 2 },
    layers: [],
  }),
);
const digest = digestOf(manifest);
const config = digestOf(Buffer.from('{}'));
const reference = { registry: 'quay.io', repository: 'a/b', digest };
const image = { name: 'release', reference, tag: '4.12.4-x86_64' };
const facts: MetadataFacts = {
  version: '4.12.4',
  arch: 'x86_64',
  release: `quay.io/a/b@${digest}`,
  images: [`quay.io/a/b@${digest}`],
  components: {},
  extraImages: [],
  osImages: [],
  previous: [],
  signatures: {},
  tool: 'test/1',
};

function contentsOf(size: number): Contents {
  const descriptor = { mediaType: mediaTypes.ociManifest, digest, size: manifest.length };
  return {
    images: [image],
    manifests: new Map([[digest, { descriptor, bytes: manifest, manifest: parseManifest(manifest, 'test') }]]),
    blobs: new Map([
      [
        config,
        { descriptor: { mediaType: 'application/octet-stream', digest: config, size }, images: new Set([image]) },
      ],
    ]),
    tags: new Map([[image.tag, digest]]),
  };
}

describe('layOutBundle', () => {
  it('puts metadata.json first, then configuration, manifests, tags and blobs', () => {
    const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a' } };
    const { tar } = layOutBundle(facts, contentsOf(2), [{ path: 'config/a.yaml', object }]);
    expect(tar.entries.map(({ entry }) => entry.path)).to.deep.equal([
      'metadata.json',
      'config/a.yaml',
      `v2/openshift/release/manifests/${digest}`,
      'v2/openshift/release/manifests/4.12.4-x86_64',
      `v2/openshift/release/blobs/${config}`,
    ]);
  });

  it('begins with metadata that state the size of the whole', () => {
    for (const size of [2, 511, 512, 513, 9 * 1024 ** 3]) {
      const { tar, metadata } = layOutBundle(facts, contentsOf(size), []);
      const [first] = tar.entries;
      expect(metadata.size).to.equal(tar.size);
      expect(tar.size % 512).to.equal(0);
      expect(first && 'content' in first.entry && parseMetadata(first.entry.content, 'test')).to.deep.equal(metadata);
      const last = tar.entries.at(-1);
      expect((last?.start ?? 0) + size).to.be.at.most(tar.size - 1024);
    }
  });

  it('refuses before anything is fetched what no reader would take', () => {
    const previous = Array.from({ length: 200_000 }, () => '4.12.0-0.nightly'.padEnd(100, '0'));
    expect(() => layOutBundle({ ...facts, previous }, contentsOf(2), [])).to.throw(
      PluginError,
      /metadata.json .* more than/,
    );
    expect(() => layOutBundle({ ...facts, previous: ['\u001b[31m'] }, contentsOf(2), [])).to.throw(
      PluginError,
      /malformed/,
    );
  });

  it('gives the same bytes for the same content', () => {
    const bytesOf = (): Buffer =>
      Buffer.concat(layOutBundle(facts, contentsOf(5), []).tar.entries.map(({ header }) => header));
    expect(bytesOf()).to.deep.equal(bytesOf());
  });
});
