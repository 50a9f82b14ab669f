import { Readable } from 'node:stream';
import type { Bundle } from '../../bundle/bundle.ts';
import type { Context } from '../../context.ts';
import { copyImages, type Image } from '../../content/copy/copy.ts';
import { parseArchitecture } from '../../release/version.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { ImageGraphReader } from '../../content/store/imageGraph.ts';
import type { ContentStore } from '../../content/store/store.ts';
import { imagesOfBundle } from './registryBundle.ts';
import { checkRegistryBundle } from './registryBundleCheck.ts';
import { formatReleaseList } from './releaseList.ts';

/**
 * Pushes the release of a bundle into a repository, which may be in the registry that will be upgraded. Pushes the
 * images, then a manifest list of them, by default with the version as its tag. Checks the bundle first, and skips
 * present content. Returns the digest and the tag of the list. Throws the errors of `checkRegistryBundle` and
 * `copyImages`.
 */
export async function pushRelease(
  bundle: Bundle,
  destination: ContentStore,
  { tag, concurrency }: { readonly tag: string | undefined; readonly concurrency: number },
  context: Context,
): Promise<{ readonly digest: Digest; readonly tag: string }> {
  const { version, arch } = bundle.metadata;
  const images = imagesOfBundle(bundle.metadata, bundle.path);
  await checkRegistryBundle(bundle, undefined, context);
  const reader = new ImageGraphReader();
  const { content } = bundle;
  const copies = await Promise.all(
    Object.values(images).map(async ({ image, digest }): Promise<Image> => {
      return { name: image, source: content, ...(await reader.read(content, digest)) };
    }),
  );
  await copyImages(copies, destination, { concurrency }, context);
  const manifests = new Map(copies.map(({ root }) => [root.digest, root]));
  const list = formatReleaseList({ version, arch: parseArchitecture(arch), images }, manifests);
  await destination.push(list.descriptor, () => Promise.resolve(Readable.from([list.bytes])));
  const given = tag ?? version;
  await destination.tag(list.descriptor, given);
  await destination.close();
  return { digest: list.descriptor.digest, tag: given };
}
