import { expect } from 'chai';
import {
  settleTasks,
  gatherContents,
  layOutBundle,
  type Contents,
  type FetchTask,
} from '../../../lib/bundle/create/contents.ts';
import type { ReleaseProvider } from '../../../lib/bundle/create/releaseProvider.ts';
import { type BundleImage } from '../../../lib/bundle/metadata/images.ts';
import { type MetadataFacts, parseMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import { mediaTypes, parseManifest } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import type { Context, TransferEvent } from '../../../lib/context.ts';
import { PluginError } from '../../../lib/errors.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeBlob, makeNoiseLayer } from '../../support/content/layers.ts';
import { openProvider } from '../../support/content/provider.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { buildRelease } from '../../support/release/release.ts';

describe('gatherContents', () => {
  let registry: TestRegistry;
  let provider: ReleaseProvider;
  beforeEach(async () => {
    registry = await startRegistry();
    provider = openProvider(makeContext());
  });
  afterEach(async () => {
    await provider[Symbol.asyncDispose]();
    await registry.stop();
  });

  const imageOf = (name: string, repository: string, digest: Digest): BundleImage => {
    return { name, reference: { registry: registry.host, repository, digest }, tag: `tag-${name}` };
  };
  const gather = (images: readonly BundleImage[], onEvent: Context['onEvent'] = () => undefined) =>
    gatherContents(images, (reference) => provider.sourceOf(reference), { onEvent });

  it('lists everything once, in an order that depends on the images alone', async () => {
    const release = buildRelease({ arch: 'multi', components: 3, registry: registry.host });
    release.addTo(registry.content);
    const images = [...release.images.values()].map(({ name, digest }) =>
      imageOf(name, release.componentRepository, digest),
    );
    registry.fault(/./, { delay: 3 }, { times: 5 });
    const counts: TransferEvent[] = [];
    const [one, two] = [await gather(images, (event) => counts.push(event)), await gather(images)];
    expect(counts.at(-1)).to.deep.equal({ kind: 'manifests', read: images.length, images: images.length });
    expect([...one.manifests.keys()]).to.deep.equal([...two.manifests.keys()]);
    expect([...one.blobs.keys()]).to.deep.equal([...two.blobs.keys()]);
    expect([...one.tags]).to.deep.equal([...two.tags]);
    const stored = registry.content.repositories.get(release.componentRepository);
    expect([...one.manifests.keys()].sort()).to.deep.equal([...(stored?.manifests.keys() ?? [])].sort());
    for (const [digest, { bytes }] of one.manifests) expect(bytes).to.deep.equal(stored?.manifests.get(digest)?.bytes);
    expect([...one.blobs.values()].filter(({ images: needed }) => needed.size === 3)).not.to.deep.equal([]);
  });

  it('takes sigstore attachments along, of children too', async () => {
    const release = buildRelease({
      arch: 'multi',
      components: ['etcd'],
      registry: registry.host,
      attachments: () => true,
    });
    release.addTo(registry.content);
    const { tags, manifests } = await gather([imageOf('release', release.releaseRepository, release.digest)]);
    expect([...tags.keys()]).to.deep.equal([
      'tag-release',
      ...[release.digest, ...release.children].map(attachmentTag),
    ]);
    for (const digest of tags.values()) expect(manifests.has(digest)).to.equal(true);
  });

  it('fetches a manifest that several images have in common once', async () => {
    const release = buildRelease({ components: ['etcd'], registry: registry.host, attachments: () => false });
    release.addTo(registry.content);
    const digest = release.images.get('etcd')?.digest ?? release.digest;
    await gather(['a', 'b', 'c'].map((name) => imageOf(name, release.componentRepository, digest)));
    const fetched = registry.requests.filter(
      ({ method, path }) => method === 'GET' && path.endsWith(`manifests/${digest}`),
    );
    expect(fetched).to.have.lengthOf(1);
  });

  it('refuses images that disagree about the size of a blob', async () => {
    const content = new TestContent();
    const layer = makeNoiseLayer('layer', 5000);
    const config = makeBlob(Buffer.from('{}'));
    content.addBlob(layer);
    content.addBlob(config);
    const images = [layer.size, layer.size + 1].map((size, index) => {
      const { digest } = content.addManifest('a/b', mediaTypes.ociManifest, {
        schemaVersion: 2,
        mediaType: mediaTypes.ociManifest,
        config: { mediaType: 'application/vnd.oci.image.config.v1+json', size: config.size, digest: config.digest },
        layers: [{ mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', size, digest: layer.digest }],
      });
      return imageOf(`image-${index}`, 'a/b', digest);
    });
    content.addTo(registry.content);
    const error = await failureOf(gather(images), 'invalid-manifest');
    expect(error.message).to.match(/^image-1 .* gives sha256:[0-9a-f]{64} a size of \d+ bytes, another image \d+/);
  });
});

describe('settleTasks', () => {
  const [first, second] = [digestOf('first'), digestOf('second')];
  const bringing = (name: string, digest: Digest, task: Promise<unknown>): FetchTask => {
    return { names: [name], digest, source: 'registry.test/a', task };
  };
  const fail = (code: ConstructorParameters<typeof PluginError>[0], message: string): Promise<never> =>
    Promise.reject(new PluginError(code, message, { hint: 'Do something.' }));

  it('gives a single failure its own code and hint, with the content, the image and the store', async () => {
    const all = [bringing('etcd', first, fail('not-found', 'gone')), bringing('cli', second, Promise.resolve())];
    const error = await failureOf(settleTasks(all, 2), 'not-found');
    expect(error.message).to.equal(`etcd: source registry.test/a: ${first}: gone`);
    expect(error.hint).to.equal('Do something.');
  });

  it('names each failed blob with its digest, and shared blobs once', async () => {
    const [gone, corrupt] = [
      fail('not-found', 'gone'),
      fail('digest-mismatch', `registry.test/a: ${second} is corrupt`),
    ];
    const all = [bringing('etcd', first, gone), bringing('cli', second, corrupt), bringing('own-cli', second, corrupt)];
    const error = await failureOf(settleTasks(all, 5), 'partial');
    expect(error.message.split('\n')).to.deep.equal([
      '3 of 5 images could not be copied:',
      `  etcd: source registry.test/a: ${first}: gone`,
      `  cli, own-cli: source: registry.test/a: ${second} is corrupt`,
    ]);
  });

  it('names an image once, however much of it failed for the same reason', async () => {
    const down = (): Promise<never> => fail('unreachable', 'registry.test is down');
    const all = [first, second].flatMap((digest) => [
      bringing('etcd', digest, down()),
      bringing('cli', digest, down()),
    ]);
    const error = await failureOf(settleTasks(all, 5), 'unreachable');
    expect(error.message).to.match(/^etcd, cli: source /);
  });

  it('throws fatal errors unchanged', async () => {
    for (const code of ['disk-full', 'interrupted', 'not-writable'] as const) {
      const all = [bringing('etcd', first, fail('not-found', 'gone')), bringing('cli', second, fail(code, 'stop'))];
      expect((await failureOf(settleTasks(all, 2), code)).message).to.equal('stop');
    }
  });
});

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

  it('refuses a bundle that no reader accepts before anything is fetched', () => {
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
