import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { type BundleLayout, gatherContents, layOutBundle, type Contents } from '../../../lib/bundle/create/contents.ts';
import type { ReleaseProvider } from '../../../lib/bundle/create/releaseProvider.ts';
import { fillBundle, writeBundle } from '../../../lib/bundle/create/writeBundle.ts';
import { ArchiveWriter } from '../../../lib/content/archive/archiveWriter.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { openProvider } from '../../support/content/provider.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { buildRelease } from '../../support/release/release.ts';

describe('writeBundle', () => {
  let registry: TestRegistry;
  let folder: string;
  let path: string;
  let context: TestContext;
  let provider: ReleaseProvider;
  let contents: Contents;
  let layout: BundleLayout;
  let layOut: (some: Contents) => BundleLayout;

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
    const none = { extraImages: [], osImages: [], previous: [], signatures: {}, tool: 'test' };
    layOut = (some) => layOutBundle({ ...facts, ...none }, some, []);
    layout = layOut(contents);
  });
  afterEach(async () => {
    await provider[Symbol.asyncDispose]();
    await registry.stop();
    await removeFolder(folder);
  });

  const openWriter = (): Promise<ArchiveWriter> => ArchiveWriter.open(path, layout.tar, context);
  const total = (): number => [...contents.blobs.values()].reduce((sum, { descriptor }) => sum + descriptor.size, 0);
  const kinds = (kind: string) => context.events.filter((event) => event.kind === kind);

  it('gives the digest of the finished file, and how much was fetched', async () => {
    const writer = await openWriter();
    const { digests, fetched } = await fillBundle(writer, { contents }, provider, context);
    const { digest } = digests;
    await writer.finish();
    expect(digestOf(await readFile(path))).to.equal(digest);
    expect(fetched).to.equal(total());
  });

  it('tells the plan, every byte once, and each image when it is whole', async () => {
    const writer = await openWriter();
    await fillBundle(writer, { contents }, provider, context);
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
    const error = await failureOf(fillBundle(first, { contents }, provider, context), 'digest-mismatch');
    expect(error.message).to.match(/: source: .* is corrupt/);
    expect(fault.hits).to.equal(1);
    await first.close();

    context = makeContext();
    const second = await openWriter();
    const { digests, fetched } = await fillBundle(second, { contents }, provider, context);
    const { digest } = digests;
    await second.finish();
    expect(fetched).to.equal(contents.blobs.get(broken ?? digest)?.descriptor.size);
    expect(digestOf(await readFile(path))).to.equal(digest);
    const finished = context.events.flatMap((event) => (event.kind === 'image' ? [event.name] : []));
    expect(finished.sort()).to.deep.equal(contents.images.map(({ name }) => name).sort());
  });

  describe('over a finished bundle', () => {
    /** Writes a bundle without the first image, then one with it that copies all blobs which the first one should have. */
    const writeOver = async (beforeSecond?: () => Promise<void>): Promise<number> => {
      const others = await gatherContents(
        contents.images.slice(1),
        (reference) => provider.sourceOf(reference),
        context,
      );
      await writeBundle({ path, layout: layOut(others), contents: others }, provider, context);
      await beforeSecond?.();
      const reusable = [...contents.blobs.values()].map(({ descriptor }) => descriptor);
      const { fetched, digests } = await writeBundle({ path, layout, contents, reusable }, provider, context);
      expect(digestOf(await readFile(path))).to.equal(digests.digest);
      return fetched;
    };
    const ownSizes = () =>
      [...contents.blobs.values()].flatMap(({ descriptor, images }) =>
        images.size === 1 && [...images][0] === contents.images[0] ? descriptor.size : [],
      );

    it('fetches blobs that it does not have, and copies the others', async () => {
      expect(ownSizes()).not.to.deep.equal([]);
      expect(await writeOver()).to.equal(ownSizes().reduce((sum, size) => sum + size, 0));
      expect(context.lines.filter((line) => line.includes(': fetching it'))).to.have.lengthOf(ownSizes().length);
    });

    it('does not count bytes of a copied blob that an earlier run had begun', async () => {
      const [shared] = [...contents.blobs.values()].filter(({ images }) => images.size > 1);
      const fetched = await writeOver(async () => {
        const writer = await openWriter();
        if (shared) writer.noteProgress(shared.descriptor.digest, 1);
        await writer.close();
      });
      expect(fetched).to.equal(ownSizes().reduce((sum, size) => sum + size, 0));
    });
  });

  it('ends when it is interrupted', async () => {
    registry.fault(/GET .*\/blobs\//, { noAnswer: 'hold' });
    const writer = await openWriter();
    try {
      const filling = failureOf(fillBundle(writer, { contents }, provider, context), 'interrupted');
      await registry.nextRequest();
      context.interrupt();
      await filling;
    } finally {
      await writer.close();
    }
  });
});
