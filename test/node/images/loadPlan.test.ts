import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { PluginError } from '../../../lib/errors.ts';
import {
  blobsOfImage,
  planImages,
  sizeOf,
  storeImagesOf,
  type PlannedImage,
} from '../../../lib/node/images/loadPlan.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { extraImage } from '../../support/release/extraImage.ts';

describe('the images of a bundle to load', () => {
  const components = ['cli', 'etcd'];
  const extra = extraImage();
  let made: TestBundle;
  before(async () => {
    made = await makeBundle({ components, listOfOne: 'etcd', extraImages: [extra] });
  });
  after(() => made.remove());

  const plan = async (names: readonly string[] = [], path = made.path): Promise<PlannedImage[]> => {
    await using bundle = await openBundle(path, makeContext());
    return await planImages(bundle, names, makeContext());
  };
  const labelsOf = (images: readonly PlannedImage[]): string[] => images.map(({ label }) => label);

  it('lists the release first, then its components, then other images, under their names in a store', async () => {
    const planned = await plan();
    expect(labelsOf(planned)).to.deep.equal(['release', ...components, extra.pullspec]);
    expect(planned.map(({ name }) => name)).to.have.members([...made.result.metadata.images]);
    for (const { name, digest } of planned) expect(name).to.match(new RegExp(`^quay\\.io/[^:]*@${digest}$`));
  });

  it('takes images by component, by pullspec and by digest, each once', async () => {
    const etcd = made.release.images.get('etcd');
    const words = [extra.pullspec, 'etcd', etcd?.digest ?? '', etcd?.pullspec ?? ''];
    expect(labelsOf(await plan(words))).to.deep.equal(['etcd', extra.pullspec]);
  });

  it('refuses an image that the bundle does not have', async () => {
    const { message, settings } = await failureOf(plan(['etcd', 'no-such-thing']), 'usage');
    expect(message).to.equal(`${made.path} has no image no-such-thing`);
    expect(settings).to.deep.equal(['images']);
  });

  it('refuses a bundle of another architecture', async () => {
    await using other = await makeBundle({ arch: process.arch === 'arm64' ? 'x86_64' : 'aarch64' });
    const error = await failureOf(plan([], other.path), 'usage');
    expect(error.message).to.contain('this machine is');
  });

  it('has the configurations and layers of images, those of a list too, and counts shared ones once', async () => {
    const planned = await plan();
    for (const image of planned) expect(image.blobs.size, image.label).to.be.greaterThan(1);
    const blobs = blobsOfImage(planned);
    // The bundle also has the signatures of images.
    const inBundle = made.result.metadata.blobs.map(({ digest, size }) => [digest, size] as const);
    expect(inBundle).to.include.deep.members([...blobs]);
    expect(sizeOf(blobs)).to.equal(inBundle.reduce((sum, [digest, size]) => sum + (blobs.has(digest) ? size : 0), 0));
    expect(sizeOf(blobs)).to.be.lessThan(planned.reduce((sum, image) => sum + sizeOf(image.blobs), 0));
  });

  it('has only the blobs for this machine of a multi-arch release', async () => {
    await using multi = await makeBundle({ arch: 'multi', components: ['etcd'] });
    const { blobs } = multi.result.metadata;
    const [image, ...others] = await plan(['etcd'], multi.path);
    expect(others).to.deep.equal([]);
    const own = (await plan(['etcd'])).map(({ blobs }) => blobs.size);
    expect([image?.blobs.size]).to.deep.equal(own);
    expect(blobs.map(({ digest }) => digest)).to.include.members([...(image?.blobs.keys() ?? [])]);
    expect(image?.blobs.size).to.be.lessThan(blobs.length / 2);
  });

  describe('storeImagesOf', () => {
    const digest = digestOf('release');
    const namesWith = (release: string): string[] => {
      const metadata = { ...made.result.metadata, release, components: {}, images: [release] };
      return storeImagesOf({ path: '/drive/x.tar', metadata }).map(({ name }) => name);
    };

    it('names images without a tag', () => {
      expect(namesWith(`quay.io/a/release:4.19@${digest}`)).to.deep.equal([`quay.io/a/release@${digest}`]);
    });

    it('refuses metadata with an image without a digest', () => {
      expect(() => namesWith('quay.io/a/release:4.19'))
        .to.throw(PluginError, '/drive/x.tar names quay.io/a/release:4.19, which has no digest')
        .with.property('code', 'invalid-bundle');
    });
  });
});
