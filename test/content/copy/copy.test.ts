import { readdir, rename, truncate, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { copyImages, type Image } from '../../../lib/content/copy/copy.ts';
import { mediaTypes, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { Directory } from '../../../lib/content/store/directory.ts';
import { ImageGraphReader } from '../../../lib/content/store/imageGraph.ts';
import type { ContentSource } from '../../../lib/content/store/store.ts';
import { PluginError } from '../../../lib/errors.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeNoiseLayer } from '../../support/content/layers.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { layOutAsOc, makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const repository = 'openshift/release';
const base = makeNoiseLayer('base', 200_000);

describe('copyImages', () => {
  let folder: string;
  let images: Image[];
  let context: TestContext;
  let content: TestContent;
  const sourceAt = (...names: string[]): string => join(folder, 'source', 'v2', repository, ...names);
  const destinationAt = (...names: string[]): string => join(folder, 'destination', 'v2', repository, ...names);
  const openDestination = (of: TestContext = context): Directory =>
    new Directory(join(folder, 'destination'), repository, {}, of);
  const own = (name: string): string => makeNoiseLayer(name, 30_000).digest;

  beforeEach(async () => {
    folder = await makeFolder();
    context = makeContext();
    content = new TestContent();
    const names = Array.from({ length: 8 }, (_, index) => `component-${index}`);
    const roots = names.map((name) =>
      content.addImage(repository, { architecture: 'amd64', layers: [base, makeNoiseLayer(name, 30_000)] }, name),
    );
    const list = content.addList(repository, roots.slice(0, 2), 'docker', 'multi');
    await layOutAsOc(join(folder, 'source'), content.content);
    const source = new Directory(join(folder, 'source'), repository, {}, context);
    images = await Promise.all([
      ...names.map((name, index) => readImage(name, source, at(roots, index), [name])),
      readImage('multi', source, list, ['multi', 'latest']),
    ]);
  });
  afterEach(() => removeFolder(folder));

  const expectWhole = async (): Promise<void> => {
    const checked = new Directory(join(folder, 'destination'), repository, { verifyExisting: true }, makeContext());
    for (const { root, tags = [] } of images) {
      expect(await checked.exists(root), root.digest).to.equal(true);
      for (const tag of tags) expect((await checked.resolve(tag)).digest).to.equal(root.digest);
    }
  };

  it('copies every image byte for byte, with its tags', async () => {
    await copyImages(images, openDestination(), {}, context);
    await expectWhole();
    expect((await readdir(destinationAt('blobs'))).sort()).to.deep.equal((await readdir(sourceAt('blobs'))).sort());
  });

  it('moves shared content once', async () => {
    await copyImages(images, openDestination(), {}, context);
    const bytes = context.events.map((event) =>
      event.kind === 'bytes' && event.digest === base.digest ? event.bytes : 0,
    );
    expect(bytes.reduce((sum, count) => sum + count)).to.equal(base.size);
    expect(context.events.filter((event) => event.kind === 'stored' && event.digest === base.digest)).to.have.length(1);
  });

  it('announces each image once it is whole', async () => {
    await copyImages(images, openDestination(), {}, context);
    const names = context.events.flatMap((event) => (event.kind === 'image' ? [event.name] : []));
    expect(names).to.have.members(images.map(({ name }) => name));
  });

  it('skips present content of the destination, with everything below it', async () => {
    await copyImages(images, openDestination(), {}, context);
    const again = makeContext();
    await copyImages(images, openDestination(), {}, again);
    const kinds = again.events.map(({ kind }) => kind);
    expect(kinds.filter((kind) => kind === 'skipped')).to.have.length(images.length);
    expect(kinds).to.not.include.members(['stored']);
    expect(kinds).to.not.include.members(['bytes']);
  });

  it('stores blobs before their manifest, and the tag last', async () => {
    const stored: string[] = [];
    const watched = makeContext((event) => {
      if (event.kind !== 'stored') return;
      const image = images.find(({ root }) => root.digest === event.digest);
      if (image) expect(stored).to.include.members([base.digest]);
      stored.push(event.digest);
    });
    await copyImages(images, openDestination(), { concurrency: 3 }, watched);
    expect(images.map(({ root }) => root.digest)).to.include(stored.at(-1));
  });

  it('has no more than the given number of transfers under way', async () => {
    let most = 0;
    let now = 0;
    const moverOf =
      (source: ContentSource) =>
      async (blob: Descriptor): Promise<void> => {
        most = Math.max(most, ++now);
        await openDestination().push(blob, () => source.fetch(blob));
        now -= 1;
      };
    await copyImages(images, openDestination(), { concurrency: 2, moverOf }, context);
    expect(most).to.equal(2);
    await expectWhole();
  });

  it('resumes after an interruption, and copies only missing content', async () => {
    let stored = 0;
    const interrupted = makeContext((event) => {
      if (event.kind === 'stored' && ++stored === 5) interrupted.interrupt();
    });
    const error = copyImages(images, openDestination(interrupted), { concurrency: 2 }, interrupted);
    await failureOf(error, 'interrupted');
    expect((await readdir(destinationAt('blobs'))).filter((name) => name.startsWith('.'))).to.deep.equal([]);
    await copyImages(images, openDestination(), {}, context);
    await expectWhole();
    const moved = new Set(context.events.flatMap((event) => (event.kind === 'bytes' ? [event.digest] : [])));
    for (const event of interrupted.events) if (event.kind === 'stored') expect(moved).to.not.include(event.digest);
  });

  it('replaces a blob that another tool left cut short below manifests that are there', async () => {
    await copyImages(images, openDestination(), {}, context);
    await truncate(destinationAt('blobs', base.digest), 1000);
    await copyImages(images, openDestination(), {}, context);
    await expectWhole();
  });

  it('keeps everything whole when two runs copy into one folder at the same time', async () => {
    await Promise.all([1, 2, 3].map(() => copyImages(images, openDestination(), {}, context)));
    await expectWhole();
    expect((await readdir(destinationAt('blobs'))).filter((name) => name.startsWith('.'))).to.deep.equal([]);
  });

  it('names image, side and digest when a blob is missing, and copies everything else', async () => {
    await unlink(sourceAt('blobs', own('component-3')));
    const error = await failureOf(copyImages(images, openDestination(), {}, context), 'not-found');
    expect(error.message).to.include('component-3').and.include('source').and.include(own('component-3'));
    expect(error.message).to.not.include('component-4');
    images = images.filter(({ name }) => name !== 'component-3');
    await expectWhole();
    expect(await openDestination().tags()).to.not.include('component-3');
  });

  it('reports all that failed in one error', async () => {
    await writeFile(sourceAt('blobs', own('component-3')), Buffer.alloc(makeNoiseLayer('component-3', 30_000).size));
    await unlink(sourceAt('blobs', own('component-5')));
    const error = await failureOf(copyImages(images, openDestination(), {}, context), 'partial');
    expect(error.message).to.include('2 of 9 images').and.include('component-3').and.include('component-5');
    const { errors } = error.cause as AggregateError;
    expect((errors as PluginError[]).map(({ code }) => code)).to.have.members(['digest-mismatch', 'not-found']);
    images = images.filter(({ name }) => !['component-3', 'component-5'].includes(name));
    await expectWhole();
  });

  it('names ten of many failures, and has all of them in its cause', async () => {
    const names = Array.from({ length: 12 }, (_, index) => `wide-${index}`);
    const wide = new TestContent();
    const roots = names.map((name) =>
      wide.addImage(repository, { architecture: 'amd64', layers: [makeNoiseLayer(name, 100)] }, name),
    );
    await layOutAsOc(join(folder, 'wide'), wide.content);
    for (const name of names) {
      await unlink(join(folder, 'wide', 'v2', repository, 'blobs', makeNoiseLayer(name, 100).digest));
    }
    const source = new Directory(join(folder, 'wide'), repository, {}, context);
    const copies = await Promise.all(names.map((name, index) => readImage(name, source, at(roots, index))));
    const error = await failureOf(copyImages(copies, openDestination(), {}, context), 'partial');
    expect(error.message.split('\n')).to.have.length(12);
    expect(error.message).to.match(/\n  and 2 more, which -v shows$/);
    const { errors, message } = error.cause as AggregateError;
    expect(errors).to.have.length(12);
    expect(message).to.include('wide-11');
  });

  it('names the images of a failure if they share corrupt content', async () => {
    await writeFile(sourceAt('blobs', base.digest), Buffer.alloc(base.size));
    const error = await failureOf(copyImages(images, openDestination(), {}, context), 'digest-mismatch');
    expect(error.message).to.match(/component-0, .* and 4 more: source.*corrupt/);
    expect(await openDestination().tags()).to.deep.equal([]);
  });

  it('blames the destination for its refusals', async () => {
    const destination = openDestination();
    destination.tag = () => Promise.reject(new PluginError('server-error', 'no tags today'));
    const error = await failureOf(copyImages(images.slice(0, 1), destination, {}, context), 'server-error');
    expect(error.message).to.include('component-0: destination').and.include('no tags today');
  });

  for (const code of ['disk-full', 'not-writable', 'denied', 'unreachable', 'unsupported'] as const) {
    it(`tries nothing more at a destination that says ${code}`, async () => {
      let pushes = 0;
      const destination = openDestination();
      destination.push = () => {
        pushes += 1;
        return Promise.reject(new PluginError(code, 'it is over', { hint: 'make room' }));
      };
      const error = await failureOf(copyImages(images, destination, { concurrency: 1 }, context), code);
      expect(error.message).to.include('it is over').and.include('destination');
      expect(error.hint).to.equal('make room');
      expect(pushes).to.equal(1);
    });
  }

  it('copies everything else when a source does not answer', async () => {
    const image = at(images, 3);
    const { name, source } = image;
    const gone: ContentSource = {
      ...pick(source),
      fetch: () => Promise.reject(new PluginError('unreachable', 'nobody is there')),
    };
    const others = images.filter((image) => image.name !== name);
    const mixed = [...others, { ...image, source: gone }];
    // Its configuration and its own layer. Another image already copied the shared layer.
    const error = await failureOf(copyImages(mixed, openDestination(), {}, context), 'partial');
    const { errors } = error.cause as AggregateError;
    expect((errors as PluginError[]).map(({ code }) => code)).to.deep.equal(['unreachable', 'unreachable']);
    expect(error.message).to.include(`${name}: source`).and.not.include('component-4');
    images = others;
    await expectWhole();
  });

  it('pushes the children of a manifest again if a registry reported them by mistake, and then waits for them', async () => {
    const destination = openDestination();
    await copyImages(images.slice(0, 2), destination, {}, context);
    const pushed: string[] = [];
    const push = destination.push.bind(destination);
    destination.push = async (descriptor, open) => {
      pushed.push(descriptor.digest);
      const list = descriptor.mediaType === mediaTypes.dockerList;
      // The second time the registry does not show its children yet, as one with replicas.
      if (list && pushed.filter((each) => each === descriptor.digest).length <= 2)
        throw new PluginError('not-found', 'MANIFEST_BLOB_UNKNOWN: blob unknown to registry');
      await push(descriptor, open);
    };
    const [first, second, list] = [at(images, 0), at(images, 1), at(images, 8)].map(({ root }) => root.digest);
    await copyImages([at(images, 8)], destination, {}, context);
    expect(pushed).to.deep.equal([list, first, second, list, list]);
  });

  it('mounts content of another repository of the destination, if possible', async () => {
    await copyImages(images, openDestination(), {}, context);
    const other = new Directory(join(folder, 'destination'), 'other', {}, context);
    const mounting = makeContext();
    await copyImages(images, other, { mountFrom: () => ['nowhere', repository] }, mounting);
    expect(mounting.events.filter(({ kind }) => kind === 'bytes')).to.deep.equal([]);
    const mounted = mounting.events.flatMap((event) => (event.kind === 'mounted' ? [event.digest] : []));
    expect(mounted).to.include(base.digest).and.have.length(new Set(mounted).size);
    const stored = mounting.events.flatMap((event) => (event.kind === 'stored' ? [event.digest] : []));
    expect(stored).to.have.members(images.map(({ root }) => root.digest));
    expect(await other.exists(at(images, 8).root)).to.equal(true);
  });

  it('resumes when the source is available again', async () => {
    await rename(sourceAt('blobs'), sourceAt('away'));
    await failureOf(copyImages(images, openDestination(), {}, context), 'partial');
    await rename(sourceAt('away'), sourceAt('blobs'));
    await copyImages(images, openDestination(), {}, context);
    await expectWhole();
  });
});

async function readImage(name: string, source: ContentSource, root: Descriptor, tags: string[] = []): Promise<Image> {
  const graph = await new ImageGraphReader().read(source, root.digest);
  return { name, source, tags, ...graph };
}

function at<T>(list: readonly T[], index: number): T {
  const item = list[index];
  if (item === undefined) throw new Error(`there is no ${index}`);
  return item;
}

function pick(source: ContentSource): ContentSource {
  return {
    name: source.name,
    resolve: (tag) => source.resolve(tag),
    fetch: (descriptor) => source.fetch(descriptor),
    exists: (descriptor) => source.exists(descriptor),
    tags: () => source.tags(),
  };
}
