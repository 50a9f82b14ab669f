import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { Header } from 'tar';
import { parseManifest } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { readPayload } from '../../../lib/release/release.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeBlob, makeFileLayer, makeNoiseLayer, type TestLayer } from '../../support/content/layers.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { usePayloads } from '../../support/release/payloads.ts';
import { type ReleaseOptions } from '../../support/release/release.ts';
import { itWithSharedData, sharedData } from '../../support/sharedData.ts';

const repository = 'quay.io/openshift-release-dev/ocp-release';
const name = 'openshift-release-dev/ocp-release';
const someDigest = digestOf('an image');

describe('the payload of a release', () => {
  const context = makeContext();
  const { openDirectory, read, readLayers } = usePayloads(context);

  describe('of image-references', () => {
    const references = (
      change: (value: { kind: string; metadata: object; spec: { tags: unknown } }) => void,
    ): ReleaseOptions => {
      const tag = { name: 'etcd', from: { kind: 'DockerImage', name: `quay.io/a/b@${someDigest}` } };
      const value = {
        kind: 'ImageStream',
        apiVersion: 'image.openshift.io/v1',
        metadata: { name: '4.12.4' },
        spec: { tags: [tag] as unknown },
      };
      change(value);
      return { files: { 'image-references': JSON.stringify(value) } };
    };
    const tagged = (
      name: unknown,
      from: unknown = { kind: 'DockerImage', name: `quay.io/a/b@${someDigest}` },
    ): ReleaseOptions => references(({ spec }) => (spec.tags = [{ name, from }]));

    it('takes images by digest, and drops a tag beside it', async () => {
      const release = await read(tagged('etcd', { kind: 'DockerImage', name: `quay.io/a/b:x@${someDigest}` }));
      expect(release.images.get('etcd')?.pullspec).to.equal(`quay.io/a/b@${someDigest}`);
    });

    const cases: [string, ReleaseOptions, RegExp][] = [
      ['is not JSON', { files: { 'image-references': 'x' } }, /image-references is not JSON/],
      ['is another kind of object', references((value) => (value.kind = 'List')), /not an ImageStream/],
      ['has no version', references((value) => (value.metadata = {})), /its name is not a version/],
      ['has no tags', references(({ spec }) => (spec.tags = null)), /has no tags/],
      [
        'names an image by tag',
        tagged('etcd', { kind: 'DockerImage', name: 'quay.io/a/b:c' }),
        /“etcd”.* is not by digest: quay/,
      ],
      [
        'names no image',
        tagged('etcd', { kind: 'ImageStreamTag', name: 'x' }),
        /“etcd” of image-references is not an image/,
      ],
      [
        'has a malformed image',
        tagged('etcd', { kind: 'DockerImage', name: '-/!' }),
        /“etcd” of image-references is malformed/,
      ],
      ['has a tag twice', references(({ spec }) => (spec.tags = [spec.tags, spec.tags].flat())), /“etcd” twice/],
      ...['../../etc', '.hidden', '', 'a/b', 'UPPER', `x${'y'.repeat(128)}`, 5, '-a'].map(
        (bad): [string, ReleaseOptions, RegExp] => [
          `has a component named ${String(bad).slice(0, 12)}`,
          tagged(bad),
          /has a name that cannot be a component’s/,
        ],
      ),
    ];
    for (const [title, options, expected] of cases) {
      it(`refuses one that ${title}`, async () => {
        const error = await failureOf(read(options));
        expect(error.code).to.equal('invalid-release');
        expect(error.message).to.match(expected);
      });
    }

    itWithSharedData('reads the 183 images of a real release', async () => {
      const files = Object.fromEntries(
        ['image-references', 'release-metadata'].map((file) => [file, sharedData(`release-4.12.0/${file}`).toString()]),
      );
      const release = await read({ files }, { version: '4.12.0' });
      expect(release.images.size).to.equal(183);
      expect(new Set([...release.images.values()].map(({ digest }) => digest))).to.have.property('size', 183);
      expect(release.osImages).to.include('rhel-coreos-8').and.to.include('rhel-coreos-8-extensions');
      expect(release.osImages).to.deep.equal(['machine-os-content', 'rhel-coreos-8', 'rhel-coreos-8-extensions']);
      expect(release.previous).to.have.length(21);
    });
  });

  describe('of hostile and damaged layers', () => {
    const good = JSON.stringify({
      kind: 'ImageStream',
      apiVersion: 'image.openshift.io/v1',
      metadata: { name: '4.12.4' },
      spec: { tags: [{ name: 'etcd', from: { kind: 'DockerImage', name: `quay.io/a/b@${someDigest}` } }] },
    });
    const payload = makeFileLayer(new Map([['release-manifests/image-references', good]]));
    const layerOf = (bytes: Buffer): TestLayer => ({ ...makeBlob(bytes), diffId: digestOf(bytes) });
    const entry = (
      path: string,
      content: Buffer,
      type: 'File' | 'SymbolicLink' | 'ExtendedHeader' = 'File',
      size = content.length,
    ): Buffer => {
      const header = new Header({
        path,
        type,
        mode: 0o644,
        size,
        ...(type === 'SymbolicLink' && { linkpath: '/etc/passwd' }),
      });
      header.encode();
      return Buffer.concat([header.block ?? Buffer.alloc(0), content, Buffer.alloc(-content.length & 511)]);
    };
    const end = Buffer.alloc(1024);

    it('takes plain tar, a leading ./ and files in several layers, upper ones first', async () => {
      const metadata = (version: string): string => JSON.stringify({ previous: [version] });
      const lower = layerOf(
        Buffer.concat([
          entry('./release-manifests/image-references', Buffer.from(good)),
          entry('./release-manifests/release-metadata', Buffer.from(metadata('4.11.1'))),
          end,
        ]),
      );
      const upper = makeFileLayer(new Map([['release-manifests/release-metadata', metadata('4.12.3')]]));
      const release = await readLayers([lower, upper]);
      expect(release.previous).to.deep.equal(['4.12.3']);
      expect([...release.images.keys()]).to.deep.equal(['etcd']);
    });

    it('stops at the layer that has image-references', async () => {
      const content = new TestContent();
      const descriptor = content.addImage(name, {
        architecture: 'amd64',
        layers: [makeNoiseLayer('below', 9000), payload],
      });
      const { layers } = parseManifest(
        content.content.repositories.get(name)?.manifests.get(descriptor.digest)?.bytes ?? Buffer.alloc(0),
        'x',
      );
      content.content.blobs.delete(layers[0]?.digest ?? '');
      const release = await readPayload(await openDirectory(content.content), descriptor, { repository }, context);
      expect(release.version).to.equal('4.12.4');
    });

    it('uses nothing of a layer with a wrong digest', async () => {
      const content = new TestContent();
      const bytes = payload.read();
      const descriptor = content.addImage(name, { architecture: 'amd64', layers: [payload] });
      const changed = entry('release-manifests/image-references', Buffer.from(good.replace('4.12.4', '4.12.5')));
      const corrupt = Buffer.concat([gzipSync(Buffer.concat([changed, end])), Buffer.alloc(bytes.length)]);
      content.content.blobs.set(payload.digest, corrupt.subarray(0, bytes.length));
      const source = await openDirectory(content.content);
      await failureOf(readPayload(source, descriptor, { repository }, context), 'digest-mismatch');
    });

    it('refuses files that are too large, and content that inflates without a limit', async () => {
      const large = gzipSync(
        Buffer.concat([entry('release-manifests/image-references', Buffer.alloc(17 * 1024 * 1024, '{"a":1}')), end]),
        { level: 1 },
      );
      expect((await failureOf(readLayers([layerOf(large)]))).code).to.equal('too-large');
      const bomb = gzipSync(Buffer.concat([entry('big', Buffer.alloc(64 * 1024 * 1024)), end]));
      expect(['invalid-release']).to.include((await failureOf(readLayers([layerOf(bomb)]))).code);
      const huge = gzipSync(entry('big', Buffer.alloc(1024), 'File', 2 ** 35));
      expect((await failureOf(readLayers([layerOf(huge)]))).message).to.contain('too large when it is unpacked');
    });

    it('counts the unpacked bytes of all layers together', async () => {
      // Each is a gzip member of its own. The file has no content, because the size in its header counts.
      const skipped = gzipSync(entry('PaxHeader', Buffer.alloc(64 * 1024 * 1024), 'ExtendedHeader'), { level: 1 });
      const large = gzipSync(entry('big', Buffer.alloc(0), 'File', 2 ** 30 - 32 * 1024 * 1024));
      const layer = (member: Buffer): TestLayer => layerOf(Buffer.concat([member, gzipSync(end)]));
      const error = await failureOf(readLayers([payload, layer(large), layer(skipped)]), 'too-large');
      expect(error.message).to.match(/is too large when it is unpacked$/);
      expect((await failureOf(readLayers([layer(large)]))).code).to.equal('invalid-release');
      expect((await readLayers([payload, layer(skipped)])).version).to.equal('4.12.4');
    });

    it('limits the number of headers of a layer', async () => {
      const thousand = gzipSync(Buffer.concat(Array<Buffer>(1000).fill(entry('x', Buffer.alloc(0)))));
      const bytes = Buffer.concat([...Array<Buffer>(201).fill(thousand), gzipSync(end)]);
      const error = await failureOf(readLayers([layerOf(bytes)]), 'too-large');
      expect(error.message).to.match(/has more than 200000 headers$/);
    });

    it('does not follow links, nor take files from elsewhere', async () => {
      const tar = Buffer.concat([
        entry('release-manifests/image-references', Buffer.alloc(0), 'SymbolicLink'),
        entry('release-manifests/../release-manifests/image-references', Buffer.from(good)),
        entry('x/release-manifests/image-references', Buffer.from(good)),
        entry('release-manifests/sub/image-references', Buffer.from(good)),
        end,
      ]);
      expect((await failureOf(readLayers([layerOf(tar)]))).message).to.match(
        /has no release-manifests\/image-references/,
      );
    });

    it('says when the architecture is not one of OpenShift', async () => {
      expect((await failureOf(readLayers([payload], { architecture: 'riscv64' }))).message).to.match(
        /is for no known architecture: “riscv64”/,
      );
    });

    it('names the blob that is missing', async () => {
      const content = new TestContent();
      const descriptor = content.addImage(name, { architecture: 'amd64', layers: [payload] });
      content.content.blobs.delete(payload.digest satisfies Digest);
      const error = await failureOf(
        readPayload(await openDirectory(content.content), descriptor, { repository }, context),
      );
      expect(error.code).to.equal('not-found');
      expect(error.message).to.contain(payload.digest);
    });
  });
});
