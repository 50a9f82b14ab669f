import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { gatherContents, type Contents } from '../../../lib/bundle/create/contents.ts';
import type { ReleaseProvider } from '../../../lib/bundle/create/releaseProvider.ts';
import { fillBundle, layOutBundle } from '../../../lib/bundle/create/writeBundle.ts';
import { type MetadataFacts, parseMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import { ArchiveWriter } from '../../../lib/content/archive/archiveWriter.ts';
import type { TarLayout } from '../../../lib/content/archive/tarLayout.ts';
import { mediaTypes, parseManifest } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { PluginError } from '../../../lib/errors.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { openProvider } from '../../support/content/provider.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { buildRelease } from '../../support/release/release.ts';

describe('fillBundle', () => {
  let registry: TestRegistry;
  let folder: string;
  let path: string;
  let context: TestContext;
  let provider: ReleaseProvider;
  let contents: Contents;
  let tar: TarLayout;

  beforeEach(async () => {
    registry = await startRegistry();
    folder = await makeFolder();
    path = join(folder, 'bundle.tar');
    context = makeContext();
    provider = openProvider(context);
    const release = buildRelease({ components: 3, registry: registry.host, attachments: () => false });
    release.addTo(registry.content);
    const images = [...release.images.values()].map(({ name, digest }) => {
      return {
        name,
        reference: { registry: registry.host, repository: release.componentRepository, digest },
        tag: name,
      };
    });
    contents = await gatherContents(images, (reference) => provider.sourceOf(reference), context);
    const facts = { version: '1.2.3', arch: 'x86_64', release: release.pullspec, images: [], components: {} };
    tar = layOutBundle(
      { ...facts, extraImages: [], osImages: [], previous: [], signatures: {}, tool: 'test' },
      contents,
      [],
    ).tar;
  });
  afterEach(async () => {
    await provider[Symbol.asyncDispose]();
    await registry.stop();
    await removeFolder(folder);
  });

  const openWriter = (): Promise<ArchiveWriter> => ArchiveWriter.open(path, tar, context);
  const total = (): number => [...contents.blobs.values()].reduce((sum, { descriptor }) => sum + descriptor.size, 0);
  const kinds = (kind: string) => context.events.filter((event) => event.kind === kind);

  it('gives the digest of the finished file, and how much was fetched', async () => {
    const writer = await openWriter();
    const { digests, fetched } = await fillBundle(writer, contents, provider, context);
    const { digest } = digests;
    await writer.finish();
    expect(digestOf(await readFile(path))).to.equal(digest);
    expect(fetched).to.equal(total());
  });

  it('tells the plan, every byte once, and each image when it is whole', async () => {
    const writer = await openWriter();
    await fillBundle(writer, contents, provider, context);
    await writer.close();
    expect(kinds('plan')).to.deep.equal([
      { kind: 'plan', images: 3, blobs: contents.blobs.size, bytes: total(), present: 0 },
    ]);
    const bytes = context.events.reduce((sum, event) => sum + (event.kind === 'bytes' ? event.bytes : 0), 0);
    expect(bytes).to.equal(total());
    expect(kinds('stored')).to.have.lengthOf(contents.blobs.size);
    const finished = context.events.flatMap((event) => (event.kind === 'image' ? [event.name] : []));
    expect(finished.sort()).to.deep.equal(contents.images.map(({ name }) => name).sort());
  });

  it('fetches only the failed blobs the next time', async () => {
    const [broken] = contents.blobs.keys();
    const fault = registry.fault(new RegExp(`/blobs/${String(broken)}`), { flipByte: 3 }, { times: 1 });
    const first = await openWriter();
    const error = await failureOf(fillBundle(first, contents, provider, context), 'digest-mismatch');
    expect(error.message).to.match(/: source: .* is corrupt/);
    expect(fault.hits).to.equal(1);
    await first.close();

    context = makeContext();
    const second = await openWriter();
    const { digests, fetched } = await fillBundle(second, contents, provider, context);
    const { digest } = digests;
    await second.finish();
    expect(fetched).to.equal(contents.blobs.get(broken ?? digest)?.descriptor.size);
    expect(digestOf(await readFile(path))).to.equal(digest);
    const finished = context.events.flatMap((event) => (event.kind === 'image' ? [event.name] : []));
    expect(finished.sort()).to.deep.equal(contents.images.map(({ name }) => name).sort());
  });

  it('ends when it is interrupted', async () => {
    registry.fault(/GET .*\/blobs\//, { noAnswer: 'hold' });
    const writer = await openWriter();
    try {
      const filling = failureOf(fillBundle(writer, contents, provider, context), 'interrupted');
      await registry.nextRequest();
      context.interrupt();
      await filling;
    } finally {
      await writer.close();
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
