import { expect } from 'chai';
import type { ReleaseProvider } from '../../../lib/bundle/create/releaseProvider.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { ImageGraphReader, type ImageGraph } from '../../../lib/content/store/imageGraph.ts';
import { repositoryOf, startRegistry, type RegistryOptions, type TestRegistry } from '../../fakes/registry/registry.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeNoiseLayer } from '../../support/content/layers.ts';
import { openProvider } from '../../support/content/provider.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { addReferrersTag, addSupplements, attachmentTag } from '../../support/release/attachments.ts';

const repository = 'team/app';

describe('attachments of images', () => {
  let registry: TestRegistry;
  let provider: ReleaseProvider;
  afterEach(async () => {
    await provider[Symbol.asyncDispose]();
    await registry.stop();
  });

  const start = async (options: RegistryOptions = {}): Promise<void> => {
    registry = await startRegistry(options);
    provider = openProvider(makeContext());
  };
  const put = (name: string): Digest => {
    const contents = new TestContent();
    const { digest } = contents.addImage(repository, { architecture: 'amd64', layers: [makeNoiseLayer(name, 10)] });
    contents.addTo(registry.content);
    return digest;
  };
  const add = (change: (contents: TestContent) => void): void => {
    const contents = new TestContent();
    change(contents);
    contents.addTo(registry.content);
  };
  const read = (digests: readonly Digest[]): Promise<ImageGraph[]> => {
    const reader = new ImageGraphReader();
    const source = provider.sourceOf({ registry: registry.host, repository, digest: digestOf('any') });
    return Promise.all(digests.map((digest) => reader.read(source, digest)));
  };
  const suffixesOf = (graph: ImageGraph | undefined): string[] =>
    [...(graph?.attachments.keys() ?? [])].map((tag) => tag.replace(/^sha256-\w+/, ''));
  const asked = (pattern: RegExp): number => registry.requests.filter(({ path }) => pattern.test(path)).length;

  it('is the same from a registry with the referrers API and from one with the tag', async () => {
    const graphs: (ImageGraph | undefined)[] = [];
    for (const referrers of [true, false]) {
      await start({ referrers });
      const digest = put('1');
      add((contents) => addSupplements(contents, { repository, digest }));
      if (referrers) registry.content.repositories.get(repository)?.tags.delete(attachmentTag(digest).slice(0, -4));
      graphs.push((await read([digest]))[0]);
      if (referrers) await Promise.all([provider[Symbol.asyncDispose](), registry.stop()]);
    }
    const [byApi, byTag] = graphs;
    expect(suffixesOf(byApi)).to.deep.equal(['.att', '.sbom', '']);
    expect([...(byApi?.attachments ?? [])]).to.deep.equal([...(byTag?.attachments ?? [])]);
    expect([...(byApi?.manifests.keys() ?? [])]).to.deep.equal([...(byTag?.manifests.keys() ?? [])]);
  });

  it('costs few requests if there is nothing: the tags are listed once, and one tells that the API is missing', async () => {
    for (const [referrers, extra] of [
      [true, 190 + 1],
      [false, 1 + 1],
    ] as const) {
      await start({ referrers });
      const digests = Array.from({ length: 190 }, (_, index) => put(String(index)));
      await read(digests);
      expect(registry.requests).to.have.length(2 * 190 + extra);
      if (referrers) await Promise.all([provider[Symbol.asyncDispose](), registry.stop()]);
    }
  });

  for (const [title, options, requests] of [
    ['a registry with the referrers API', { referrers: true }, 1],
    ['one that has the tag', {}, 1],
    ['one with too many tags to list', { tagsPerPage: 1 }, 20],
    ['one that does not list its tags', {}, 1],
  ] as const) {
    it(`is found if the last of many images alone has it: ${title}`, async () => {
      await start(options);
      if (title.includes('does not list')) registry.fault(/\/tags\/list/, { answer: { status: 403 } });
      const digests = Array.from({ length: 30 }, (_, index) => put(String(index)));
      const { tags } = repositoryOf(registry.content, repository);
      for (const [index, each] of digests.entries()) tags.set(`1.${index}`, each);
      const digest = digests.at(-1) ?? digestOf('');
      add((contents) => addSupplements(contents, { repository, digest }));
      const graphs = await read(digests);
      expect(graphs.map((graph) => graph.attachments.size)).to.deep.equal([...Array<number>(29).fill(0), 3]);
      expect(asked(/\/tags\/list/)).to.equal(requests);
    });
  }

  it('costs one page of tags at most if only one image is read', async () => {
    await start({ tagsPerPage: 1 });
    const [digest] = [put('1'), put('2')];
    add((contents) => addSupplements(contents, { repository, digest }));
    expect(suffixesOf((await read([digest]))[0])).to.deep.equal(['.att', '.sbom', '']);
    expect(asked(/\/tags\/list/)).to.equal(1);
  });

  it('leaves out missing attachments, attachments of another image, and attachments that cannot be copied', async () => {
    await start();
    const [digest, other] = [put('1'), put('2')];
    add((contents) => {
      const own = addSupplements(contents, { repository, digest });
      const foreign = addSupplements(contents, { repository, digest: other });
      addReferrersTag(contents, { repository, digest }, [
        foreign,
        own,
        { ...own, digest: digestOf('gone') },
        { ...own, mediaType: 'application/vnd.oci.artifact.manifest.v1+json', digest: digestOf('artifact') },
      ]);
      addReferrersTag(contents, { repository, digest: other }, [own]);
    });
    const [first, second] = await read([digest, other]);
    const list = first?.manifests.get(first.attachments.get(attachmentTag(digest).slice(0, -4))?.digest ?? digest);
    expect(list?.manifest.manifests).to.have.length(1);
    expect(suffixesOf(second)).to.deep.equal(['.att', '.sbom']);
  });

  it('does not take the digest of an image as a tag, as other tools give it, for a list', async () => {
    await start();
    const digest = put('1');
    registry.content.repositories.get(repository)?.tags.set(attachmentTag(digest).slice(0, -4), digest);
    expect(suffixesOf((await read([digest]))[0])).to.deep.equal([]);
  });

  for (const [status, questions] of [
    [401, /\/referrers\/|\.att$|\.sbom$/],
    [403, /\/referrers\/|\.att$|\.sbom$/],
    [500, /\/referrers\//],
  ] as const) {
    it(`is left out if a registry answers ${status} to questions about it`, async () => {
      await start();
      const digest = put('1');
      registry.fault(questions, { answer: { status } });
      expect(suffixesOf((await read([digest]))[0])).to.deep.equal([]);
    });
  }

  it('is required of signatures: a registry that denies them is an error', async () => {
    await start();
    const digest = put('1');
    registry.fault(/\.sig$/, { answer: { status: 403 } });
    await failureOf(read([digest]), 'denied');
  });

  it('is read of a list that is malformed as nothing', async () => {
    await start({ referrers: true });
    const digest = put('1');
    registry.fault(/\/referrers\//, { answer: { status: 200, body: 'x' } });
    expect(suffixesOf((await read([digest]))[0])).to.deep.equal([]);
  });
});
