import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { StoredBlob } from '../../../lib/bundle/create/contents.ts';
import { openLocalProvider, type ReleaseProvider } from '../../../lib/bundle/create/releaseProvider.ts';
import { metadataPath } from '../../../lib/bundle/metadata/metadata.ts';
import { repositoriesPath } from '../../../lib/bundle/metadata/originalNames.ts';
import { ArchiveWriter } from '../../../lib/content/archive/archiveWriter.ts';
import { layOutTar } from '../../../lib/content/archive/tarLayout.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { startRegistry } from '../../fakes/registry/registry.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { addBlob } from '../../support/content/places.ts';
import { localAccess, openProvider } from '../../support/content/provider.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('openLocalProvider', () => {
  let made: TestBundle;
  let context: TestContext;
  before(async () => {
    made = await makeBundle({ version: '4.12.3', components: 2 });
  });
  after(() => made.remove());
  beforeEach(() => {
    context = makeContext();
  });
  const open = (path: string): Promise<ReleaseProvider> => openLocalProvider(path, localAccess, context);
  const any = { registry: 'example.com', repository: 'any', digest: digestOf('any') };

  it('has the release, its repository and its signatures, from a bundle and from a mirror directory', async () => {
    const { release } = made;
    for (const path of [made.path, await made.unpack()]) {
      await using provider = await open(path);
      expect(provider.isLocal).to.equal(true);
      expect(provider.repository).to.equal(`quay.io/${release.releaseRepository}`);
      expect([...provider.signatures.keys()]).to.deep.equal([release.digest]);
      expect((await provider.sourceOf(any).resolve(release.tag)).digest).to.equal(release.digest);
    }
  });

  it('knows the repository without metadata.json if all releases came from one', async () => {
    const root = await made.unpack();
    await rm(join(root, metadataPath));
    const repositoryWith = async (names: object): Promise<string | undefined> => {
      await writeFile(join(root, repositoriesPath), JSON.stringify(names));
      await using provider = await open(root);
      return provider.repository;
    };
    const [one, two] = [digestOf('one'), digestOf('two')];
    expect(await repositoryWith({})).to.equal(undefined);
    expect(await repositoryWith({ [one]: 'quay.io/a/b', [two]: 'quay.io/a/b' })).to.equal('quay.io/a/b');
    expect(await repositoryWith({ [one]: 'quay.io/a/b', [two]: 'quay.io/c/d' })).to.equal(undefined);
    expect(context.lines).to.deep.equal([]);
  });

  it('warns that the repository is unknown if metadata.json is malformed', async () => {
    const root = await made.unpack();
    await writeFile(join(root, metadataPath), '{');
    await using provider = await open(root);
    expect(provider.repository).to.equal(undefined);
    expect(context.lines).to.have.length(1);
    expect(context.lines[0]).to.match(/^warn: .*: the repository of the release is not known$/);
  });

  it('completes a delta bundle with its base, and refuses it without', async () => {
    await using delta = await makeBundle({ version: '4.12.4', components: 2, base: made.path });
    await failureOf(open(delta.path), 'incomplete');
    await writeFile(join(delta.folder, 'base.tar'), await readFile(made.path));
    await using provider = await open(delta.path);
    for (const blob of delta.result.metadata.base?.blobs ?? [])
      expect(await provider.sourceOf(any).exists({ mediaType: '', ...blob })).to.equal(true);
  });

  it('refuses a folder that is neither, and a missing one', async () => {
    const folder = await makeFolder();
    await failureOf(open(folder), 'not-found');
    await removeFolder(folder);
    await failureOf(open(folder), 'not-found');
  });

  it('gives a blob to the tar only if it is right', async () => {
    await using provider = await open(made.path);
    const [blob] = made.result.metadata.blobs;
    const descriptor = { mediaType: 'application/octet-stream', ...blob! };
    const wrong = { ...descriptor, size: descriptor.size - 1 };
    const folder = await makeFolder();
    for (const stored of [wrong, descriptor]) {
      const layout = layOutTar([{ path: 'blob', descriptor: stored }]);
      const writer = await ArchiveWriter.open(join(folder, `${stored.size}.tar`), layout, context);
      const fetched = provider.fetchBlob({ descriptor: stored, images: new Set() }, writer, () => undefined);
      if (stored === wrong) await failureOf(fetched, 'size-mismatch');
      else await fetched;
      expect(writer.place(stored.digest)?.present).to.equal(stored === wrong ? 0 : stored.size);
      await writer.close();
    }
    await removeFolder(folder);
  });
});

describe('RegistryProvider', () => {
  it('fetches a blob into its place in the tar, from a registry', async () => {
    await using registry = await startRegistry();
    const { descriptor, bytes } = addBlob(registry.content, 'blob', 5000);
    const context = makeContext();
    const folder = await makeFolder();
    await using provider = openProvider(context);
    const layout = layOutTar([{ path: 'blob', descriptor }]);
    const writer = await ArchiveWriter.open(join(folder, 'upgrade.tar'), layout, context);
    const reference = { registry: registry.host, repository: 'a/b', digest: descriptor.digest };
    const images: StoredBlob['images'] = new Set([{ name: 'image', reference, tag: 'x' }]);
    await provider.fetchBlob({ descriptor, images }, writer, () => undefined);
    const unknown = { ...descriptor, digest: digestOf('unknown') };
    const { message } = await failureOf(
      provider.fetchBlob({ descriptor: unknown, images }, writer, () => undefined),
      'internal',
    );
    expect(message).to.equal(`the tar has no place for ${unknown.digest}`);
    await writer.finish();
    const { start, size } = layout.entries[0]!;
    expect((await readFile(join(folder, 'upgrade.tar'))).subarray(start, start + size).equals(bytes)).to.equal(true);
    await removeFolder(folder);
  });
});
