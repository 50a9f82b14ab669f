import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  additionalImagesPath,
  formatAdditionalImages,
  formatReleaseRepositories,
  readAdditionalImages,
  readBundleTags,
  readReleaseRepositories,
  repositoriesPath,
  type AdditionalImageName,
} from '../../../lib/bundle/metadata/originalNames.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { RootFolder } from '../../../lib/content/files/rootFolder.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { readPayload } from '../../../lib/release/release.ts';
import { repack, type UnpackedBundle } from '../../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { extraImage } from '../../support/release/extraImage.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const manifests = 'v2/openshift/release/manifests';
const [one, two] = [digestOf('one'), digestOf('two')];

describe('the original names in a mirror directory', () => {
  let folder: string;
  const write = (path: string, text: string): Promise<void> => writeFile(join(folder, path), text);
  beforeEach(async () => {
    folder = await makeFolder();
  });
  afterEach(() => removeFolder(folder));

  it('are read as they were written, each name once and in order', async () => {
    const named = (repository: string, digest: Digest, tag?: string): AdditionalImageName => ({
      registry: 'quay.io',
      repository,
      digest,
      tag,
    });
    const images = [named('b/tool', two, 'v1'), named('a/tool', one), named('b/tool', two, 'v1')];
    const text = formatAdditionalImages(images);
    expect(text).to.equal(`[\n  "quay.io/a/tool@${one}",\n  "quay.io/b/tool:v1@${two}"\n]\n`);
    await write(additionalImagesPath, text);
    const read = await readAdditionalImages(new RootFolder(folder));
    expect(formatAdditionalImages(read)).to.equal(text);
    const repositories = new Map([
      [two, 'quay.io/b/release'],
      [one, 'quay.io/a/release'],
    ]);
    const sorted = formatReleaseRepositories(repositories);
    expect(Object.keys(JSON.parse(sorted) as object)).to.deep.equal([one, two].sort());
    await write(repositoriesPath, sorted);
    expect(new Map([...(await readReleaseRepositories(new RootFolder(folder)))].sort())).to.deep.equal(
      new Map([...repositories].sort()),
    );
  });

  it('are none if the file is missing or invalid, because they only describe', async () => {
    const none = async (): Promise<void> => {
      expect(await readAdditionalImages(new RootFolder(folder))).to.deep.equal([]);
      expect(await readReleaseRepositories(new RootFolder(folder))).to.deep.equal(new Map());
    };
    await none();
    for (const text of ['{', '"text"', '5', '[["a b"]]', `{"${one}":"-/!"}`, 'null']) {
      await write(additionalImagesPath, text);
      await write(repositoriesPath, text);
      await none();
    }
  });

  it('leave out images without a digest, and releases that are not named by digest', async () => {
    await write(additionalImagesPath, JSON.stringify(['quay.io/a/tool:v1', `quay.io/b/tool@${one}`]));
    const read = await readAdditionalImages(new RootFolder(folder));
    expect(read.map(({ repository }) => repository)).to.deep.equal(['b/tool']);
    await write(repositoriesPath, JSON.stringify({ '4.12.4': 'quay.io/a/b', [one]: 'quay.io/c/d' }));
    expect([...(await readReleaseRepositories(new RootFolder(folder)))]).to.deep.equal([[one, 'quay.io/c/d']]);
  });
});

describe('readBundleTags', () => {
  let made: TestBundle;
  let context: TestContext;
  const extra = extraImage();
  before(async () => {
    made = await makeBundle({ components: 2, extraImages: [extra] });
  });
  after(() => made.remove());
  beforeEach(() => {
    context = makeContext();
  });

  const read = async (change: (unpacked: UnpackedBundle) => void = () => undefined) => {
    const path = await repack(made.path, join(made.folder, 'changed.tar'), change);
    await using bundle = await openBundle(path, context);
    const root = await bundle.content.resolve(made.release.digest);
    const release = await readPayload(bundle.content, root, { repository: 'quay.io/a/b' }, context);
    return await readBundleTags(bundle, [{ release, signatures: new Map() }], context);
  };
  const warnings = (): string[] => context.lines.filter((line) => line.startsWith('warn: '));

  it('returns the tags of the release, its components and the extra images', async () => {
    const { tag, digest, images } = made.release;
    const tags = await read();
    expect(tags.get(tag)).to.equal(digest);
    for (const [name, image] of images) expect(tags.get(`${tag}-${name}`)).to.equal(image.digest);
    const extras = [...tags].filter(([name]) => name.startsWith(`${tag}-extra-`));
    expect(extras.map(([, target]) => target)).to.deep.equal([extra.digest]);
    expect(tags.size).to.equal(images.size + 2);
    expect(warnings()).to.deep.equal([]);
  });

  it('does not need the tag files', async () => {
    const tags = await read(({ files }) => {
      for (const [path, content] of files) if (typeof content === 'string') files.delete(path);
    });
    expect(tags.size).to.equal(made.release.images.size + 2);
    expect(warnings()).to.deep.equal([]);
  });

  it('refuses a tag that leads to another image than the payload says', async () => {
    const { tag, digest, images } = made.release;
    const [name, image] = [...images][0] ?? expect.fail();
    const { message } = await failureOf(
      read(({ files }) => files.set(`${manifests}/${tag}-${name}`, digest)),
      'invalid-bundle',
    );
    expect(message).to.match(new RegExp(`: the tag ${tag}-${name} leads to ${digest} instead of ${image.digest}$`));
  });

  it('leaves out the tag of an image that cannot be read, and tags of no image, with a warning', async () => {
    const { tag, digest, images } = made.release;
    const [name, image] = [...images][0] ?? expect.fail();
    const tags = await read(({ files }) => {
      files.delete(`${manifests}/${image.digest}`);
      files.set(`${manifests}/latest`, digest);
      files.set(`${manifests}/${attachmentTag(digest)}`, digest);
    });
    expect([...tags.keys()]).not.to.include.oneOf([`${tag}-${name}`, 'latest']);
    const [absent, other, ...more] = warnings();
    expect(absent).to.match(new RegExp(`^warn: the tag ${tag}-${name} is left out: `));
    expect(other).to.equal('warn: latest: left out, because no signed release has such a tag');
    expect(more).to.deep.equal([]);
  });
});
