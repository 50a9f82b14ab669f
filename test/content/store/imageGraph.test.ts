import { Readable } from 'node:stream';
import { expect } from 'chai';
import { mediaTypes, parseManifest, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { Directory } from '../../../lib/content/store/directory.ts';
import { blobsOf, ImageGraphReader, walkManifests } from '../../../lib/content/store/imageGraph.ts';
import type { ContentSource } from '../../../lib/content/store/store.ts';
import { messageOf, PluginError } from '../../../lib/errors.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeNoiseLayer } from '../../support/content/layers.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { addAttachment, attachmentTag } from '../../support/release/attachments.ts';
import { layOutAsOc, makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const repository = 'openshift/release';

describe('an image graph', () => {
  let folder: string;
  let content: TestContent;
  let roots: Descriptor[];
  let list: Descriptor;

  beforeEach(async () => {
    folder = await makeFolder();
    content = new TestContent();
    roots = ['one', 'two'].map((name) =>
      content.addImage(repository, { architecture: 'amd64', layers: [makeNoiseLayer(name, 100)] }, name),
    );
    list = content.addList(repository, roots, 'docker', 'multi');
    for (const { digest } of [list, ...roots]) addAttachment(content, { registry: 'r', repository, digest });
  });
  afterEach(() => removeFolder(folder));

  const open = async (): Promise<ContentSource & { fetched: Digest[] }> => {
    await layOutAsOc(folder, content.content);
    return watch(new Directory(folder, repository, {}, makeContext()));
  };

  it('has each manifest before those below it, attachments last, and their tags in the same order', async () => {
    const source = await open();
    const { root, manifests, attachments } = await new ImageGraphReader().read(source, list.digest);
    const own = [list, ...roots].map(({ digest }) => digest);
    expect(root.digest).to.equal(list.digest);
    expect([...attachments.keys()]).to.deep.equal(own.map(attachmentTag));
    expect([...manifests.keys()]).to.deep.equal([...own, ...[...attachments.values()].map(({ digest }) => digest)]);
    const layers = ['one', 'two'].map((name) => makeNoiseLayer(name, 100).digest);
    expect(blobsOf(manifests.values()).map(({ digest }) => digest)).to.include.members(layers);
  });

  it('is read with each manifest once, for several images', async () => {
    const source = await open();
    const reader = new ImageGraphReader();
    await Promise.all([list, ...roots].map(({ digest }) => reader.read(source, digest)));
    expect(source.fetched).to.have.length(6).and.to.have.length(new Set(source.fetched).size);
  });

  it('lacks unreadable content if errors are handled', async () => {
    const source = await open();
    const [one, two] = roots.map(({ digest }) => digest);
    const broken = {
      ...source,
      fetch: (each: Descriptor) =>
        each.digest === one ? Promise.reject(new PluginError('not-readable', 'gone')) : source.fetch(each),
    };
    await failureOf(new ImageGraphReader().read(broken, list.digest), 'not-readable');
    const errors: unknown[] = [];
    const { manifests } = await new ImageGraphReader().read(broken, list.digest, (error) => errors.push(error));
    expect(errors.map(messageOf)).to.deep.equal(['gone']);
    expect([...manifests.keys()])
      .to.include(two)
      .and.not.include(one);
  });

  it('is not read of a list that contains itself, nor of one with too many levels', async () => {
    const digest = digestOf('any');
    const json = JSON.stringify({
      schemaVersion: 2,
      mediaType: mediaTypes.ociIndex,
      manifests: [{ mediaType: mediaTypes.ociIndex, digest, size: 263 }],
    });
    const root = { mediaType: mediaTypes.ociIndex, digest, size: json.length };
    const cyclic = { ...sourceOf(json), resolve: () => Promise.resolve(root) };
    await failureOf(new ImageGraphReader().read(cyclic, digest), 'digest-mismatch');
    for (let depth = 0; depth < 10; depth++) list = content.addList(repository, [list]);
    const error = await failureOf(new ImageGraphReader().read(await open(), list.digest), 'invalid-manifest');
    expect(error.message).to.match(/exceeds the limit of 8 levels/);
  });

  it('is not read of a manifest of a kind whose digest could not be kept', async () => {
    const json = JSON.stringify({ schemaVersion: 1, name: 'old' });
    const error = new ImageGraphReader().read(sourceOf(json), digestOf(json));
    await failureOf(error, 'invalid-manifest');
  });
});

describe('walkManifests', () => {
  it('walks a list that has the same list many times in linear time', () => {
    const manifests = new Map<Digest, ReturnType<typeof parseManifest>>();
    let below = digestOf('image');
    for (let level = 0; level < 8; level++) {
      const entry = { mediaType: mediaTypes.ociIndex, digest: below, size: 1 };
      const json = JSON.stringify({
        schemaVersion: 2,
        mediaType: mediaTypes.ociIndex,
        manifests: Array(1000).fill(entry),
      });
      below = digestOf(json);
      manifests.set(below, parseManifest(Buffer.from(json), 'test'));
    }
    const walked = [...walkManifests(below, (digest) => manifests.get(digest))];
    expect(walked).to.have.length(9);
    expect(walked.at(-1)).to.include({ digest: digestOf('image'), manifest: undefined });
  });
});

function sourceOf(json: string): ContentSource {
  const descriptor = { mediaType: mediaTypes.dockerManifest, digest: digestOf(json), size: json.length };
  return {
    name: 'test',
    resolve: () => Promise.resolve(descriptor),
    fetch: () => Promise.resolve(Readable.from([Buffer.from(json)])),
    exists: () => Promise.resolve(true),
    tags: () => Promise.resolve([]),
  };
}

function watch(source: ContentSource): ContentSource & { fetched: Digest[] } {
  const fetched: Digest[] = [];
  return {
    name: source.name,
    fetched,
    resolve: (tag) => source.resolve(tag),
    exists: (descriptor) => source.exists(descriptor),
    tags: () => source.tags(),
    fetch: (descriptor) => {
      fetched.push(descriptor.digest);
      return source.fetch(descriptor);
    },
  };
}
