import { once } from 'node:events';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { mediaTypes, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { readContent, type ContentSource, type ContentStore } from '../../../lib/content/store/store.ts';
import type { Context } from '../../../lib/context.ts';
import { emptyContent, readBody, repositoryOf, type RegistryContent } from '../../fakes/registry/content.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeBlob, makeNoiseLayer } from '../../support/content/layers.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

/** The content for the contract: an image of each format, a manifest list, and an empty blob, all in one repository. */
export interface Sample {
  readonly repository: string;
  readonly content: RegistryContent;
  /** Tagged `1.0-x86_64`, in Docker’s format. */
  readonly image: Descriptor;
  /** Tagged `1.0-multi`: a manifest list with one entry, which some tools would unwrap. */
  readonly list: Descriptor;
  /** About 300 KB, so that it arrives in several chunks. */
  readonly layer: Descriptor;
  readonly empty: Descriptor;
}

/** One store with content. */
export interface StoreUnderTest<Store extends ContentSource = ContentSource> {
  readonly store: Store;
  /** Changes the stored bytes of a blob without using the store. */
  damage(digest: string, change: (bytes: Buffer) => Buffer): Promise<void>;
  remove(): Promise<void>;
}

/** Creates a store with the given content, without using the store’s own methods. */
export type MakeStore<Store extends ContentSource> = (
  content: RegistryContent,
  repository: string,
  context: Context,
) => Promise<StoreUnderTest<Store>>;

const unknown = { mediaType: 'application/octet-stream', digest: digestOf('nobody has this'), size: 15 };

/** Creates a new sample each time, because tests change it. */
export function makeSample(repository = 'openshift/release'): Sample {
  const made = new TestContent();
  const layer = makeNoiseLayer('contract', 300_000);
  const empty = { ...makeBlob(Buffer.alloc(0)), diffId: digestOf('') };
  const options = { architecture: 'amd64', layers: [layer, empty] };
  const image = made.addImage(repository, options, '1.0-x86_64');
  const child = made.addImage(repository, { ...options, format: 'oci' });
  const list = made.addList(repository, [child], 'oci', '1.0-multi');
  const mediaType = 'application/vnd.docker.image.rootfs.diff.tar.gzip';
  return {
    repository,
    content: made.content,
    image,
    list,
    layer: { mediaType, digest: layer.digest, size: layer.size },
    empty: { mediaType, digest: empty.digest, size: 0 },
  };
}

/** Returns the content of a sample in the order in which it must be pushed, with its bytes. */
export async function contentOf({ content, repository }: Sample): Promise<{ descriptor: Descriptor; bytes: Buffer }[]> {
  const blobs = await Promise.all(
    [...content.blobs].map(async ([digest, body]) => {
      const bytes = await buffer(readBody(body));
      return { descriptor: describeBytes(bytes, 'application/octet-stream', digest), bytes };
    }),
  );
  const manifests = [...repositoryOf(content, repository).manifests].map(([digest, { mediaType, bytes }]) => {
    return { descriptor: describeBytes(bytes, mediaType, digest), bytes };
  });
  return [...blobs, ...manifests];
}

/** The contract of ContentSource as tests, which every implementation runs. */
export function describeSource(name: string, make: MakeStore<ContentSource>): void {
  describe(`${name} as a ContentSource`, () => {
    const context = makeContext();
    let sample: Sample;
    let under: StoreUnderTest;
    beforeEach(async () => {
      sample = makeSample();
      under = await make(sample.content, sample.repository, context);
    });
    afterEach(() => under.remove());

    it('has a name', () => {
      expect(under.store.name).to.be.a('string').and.not.equal('');
    });

    it('resolves a tag to the media type, digest and size of its manifest', async () => {
      const { mediaType, digest, size } = sample.image;
      expect(await under.store.resolve('1.0-x86_64')).to.deep.include({ mediaType, digest, size });
    });

    it('resolves a list by its tag and by its digest, without choosing one of its entries', async () => {
      const { mediaType, digest, size } = sample.list;
      expect(await under.store.resolve('1.0-multi')).to.deep.include({ mediaType, digest, size });
      expect(await under.store.resolve(digest)).to.deep.include({ mediaType, digest, size });
    });

    it('throws not-found for a tag and for a digest that it does not have', async () => {
      await failureOf(under.store.resolve('nope'), 'not-found');
      await failureOf(under.store.resolve(unknown.digest), 'not-found');
      await failureOf(drain(under.store.fetch(unknown)), 'not-found');
      await failureOf(drain(under.store.fetch({ ...unknown, mediaType: mediaTypes.ociManifest })), 'not-found');
    });

    it('gives every piece of content byte for byte', async () => {
      for (const { descriptor, bytes } of await contentOf(sample)) {
        const fetched = await buffer(await under.store.fetch(descriptor));
        expect(fetched.equals(bytes), descriptor.digest).to.equal(true);
      }
    });

    it('gives content from an offset on', async () => {
      const whole = await buffer(await under.store.fetch(sample.layer));
      const rest = await buffer(await under.store.fetch(sample.layer, 70_000));
      expect(rest.equals(whole.subarray(70_000))).to.equal(true);
    });

    it('gives several pieces at the same time', async () => {
      const whole = await buffer(await under.store.fetch(sample.layer));
      const all = await Promise.all(
        [0, 1, 299_000].map(async (start) => buffer(await under.store.fetch(sample.layer, start))),
      );
      expect(all.map(({ length }) => length)).to.deep.equal([0, 1, 299_000].map((start) => whole.length - start));
    });

    it('lets a stream be destroyed before it was read, and still works', async () => {
      const stream = await under.store.fetch(sample.layer);
      stream.destroy();
      if (!stream.closed) await once(stream, 'close');
      expect(await under.store.exists(sample.layer)).to.equal(true);
    });

    it('tells whether content exists', async () => {
      for (const there of [sample.image, sample.list, sample.layer, sample.empty]) {
        expect(await under.store.exists(there), there.digest).to.equal(true);
      }
      expect(await under.store.exists(unknown)).to.equal(false);
      expect(await under.store.exists({ ...unknown, mediaType: mediaTypes.dockerManifest })).to.equal(false);
    });

    it('lists the tags', async () => {
      expect(await under.store.tags()).to.have.members(['1.0-x86_64', '1.0-multi']);
    });

    it('fails with digest-mismatch at the end of a blob that was corrupt', async () => {
      await under.damage(sample.layer.digest, (bytes) => {
        const corrupt = Buffer.from(bytes);
        corrupt.writeUInt8(corrupt.readUInt8(150_000) ^ 1, 150_000);
        return corrupt;
      });
      await failureOf(drain(under.store.fetch(sample.layer)), 'digest-mismatch');
    });

    it('fails with size-mismatch when the descriptor promises fewer bytes than there are', async () => {
      await failureOf(drain(under.store.fetch({ ...sample.layer, size: sample.layer.size - 1 })), 'size-mismatch');
    });

    it('ends with interrupted once its context is', async () => {
      const interrupted = makeContext();
      const other = await make(sample.content, sample.repository, interrupted);
      interrupted.interrupt();
      try {
        await failureOf(drain(other.store.fetch(sample.layer)), 'interrupted');
      } finally {
        await other.remove();
      }
    });
  });
}

/** The contract of ContentStore and ContentSource as tests, which every writable implementation runs. */
export function describeStore(name: string, make: MakeStore<ContentStore>): void {
  describeSource(name, make);
  describe(`${name} as a ContentStore`, () => {
    const context = makeContext();
    let sample: Sample;
    let under: StoreUnderTest<ContentStore>;
    beforeEach(async () => {
      sample = makeSample();
      under = await make(emptyContent(), sample.repository, context);
    });
    afterEach(() => under.remove());

    const pushAll = async (): Promise<void> => {
      for (const { descriptor, bytes } of await contentOf(sample)) await under.store.push(descriptor, of(bytes));
    };

    it('has no tags and no content in the beginning', async () => {
      expect(await under.store.tags()).to.deep.equal([]);
      expect(await under.store.exists(sample.layer)).to.equal(false);
      await failureOf(under.store.resolve('1.0-x86_64'), 'not-found');
    });

    it('stores pushed content byte for byte, and returns it', async () => {
      await pushAll();
      for (const { descriptor, bytes } of await contentOf(sample)) {
        expect(await under.store.exists(descriptor), descriptor.digest).to.equal(true);
        expect((await buffer(await under.store.fetch(descriptor))).equals(bytes), descriptor.digest).to.equal(true);
      }
    });

    it('takes content in chunks of any size', async () => {
      const bytes = (await contentOf(sample)).find(
        ({ descriptor }) => descriptor.digest === sample.layer.digest,
      )?.bytes;
      const chunks = [1, 2, 65_537, 299_000].map((end, index, ends) => bytes?.subarray(ends[index - 1] ?? 0, end));
      await under.store.push(sample.layer, () => Promise.resolve(Readable.from([...chunks, bytes?.subarray(299_000)])));
      expect(await drain(under.store.fetch(sample.layer))).to.equal(sample.layer.size);
    });

    it('is content with a second push of the same', async () => {
      await pushAll();
      await pushAll();
      expect(await readContent(under.store, sample.image)).to.have.length(sample.image.size);
    });

    it('stores the same content once when it is pushed twice at the same time', async () => {
      const [first] = await contentOf(sample);
      if (!first) throw new Error('the sample is empty');
      await Promise.all([1, 2, 3].map(() => under.store.push(first.descriptor, of(first.bytes))));
      expect(await drain(under.store.fetch(first.descriptor))).to.equal(first.descriptor.size);
    });

    it('tags a manifest, and moves the tag', async () => {
      await pushAll();
      await under.store.tag(sample.image, 'latest');
      await under.store.tag(sample.image, 'latest');
      expect((await under.store.resolve('latest')).digest).to.equal(sample.image.digest);
      await under.store.tag(sample.list, 'latest');
      expect((await under.store.resolve('latest')).digest).to.equal(sample.list.digest);
      expect(await under.store.tags()).to.deep.equal(['latest']);
    });

    it('refuses bytes that are not the descriptor’s, and has nothing afterwards', async () => {
      const digest = digestOf('good');
      const blob = { mediaType: 'application/octet-stream', digest, size: 4 };
      await failureOf(under.store.push(blob, of(Buffer.from('evil'))), 'digest-mismatch');
      await failureOf(under.store.push(blob, of(Buffer.from('goo'))), 'size-mismatch');
      await failureOf(under.store.push(blob, of(Buffer.from('goods'))), 'size-mismatch');
      expect(await under.store.exists(blob)).to.equal(false);
      await under.store.push(blob, of(Buffer.from('good')));
      expect(await under.store.exists(blob)).to.equal(true);
    });

    it('passes on why the content cannot be read, and has nothing afterwards', async () => {
      const failing = (): Promise<Readable> =>
        Promise.resolve(
          Readable.from(
            (async function* () {
              yield await Promise.resolve(Buffer.alloc(1000));
              throw new Error('the cable is out');
            })(),
          ),
        );
      const error = await under.store.push(sample.layer, failing).catch((error: unknown) => error);
      expect(error).to.be.an('error').with.property('message').that.includes('the cable is out');
      expect(await under.store.exists(sample.layer)).to.equal(false);
    });

    it('closes without having done anything', async () => {
      await under.store.close();
    });
  });
}

function describeBytes(bytes: Buffer, mediaType: string, digest: string): Descriptor {
  expect(digestOf(bytes)).to.equal(digest);
  return { mediaType, digest: digestOf(bytes), size: bytes.length };
}

function of(bytes: Buffer): () => Promise<Readable> {
  return () => Promise.resolve(Readable.from([bytes]));
}

async function drain(stream: Promise<Readable>): Promise<number> {
  return (await buffer(await stream)).length;
}
