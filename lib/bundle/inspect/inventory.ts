import { isPluginError } from '../../errors.ts';
import type { Context } from '../../context.ts';
import { fieldsAt, textOf } from '../../fields.ts';
import { isIndex } from '../../content/oci/descriptor.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { parseJson } from '../../content/oci/syntax.ts';
import { readContent, readImageManifest, type ContentSource } from '../../content/store/store.ts';
import type { Bundle } from '../bundle.ts';
import { inspectRelease, type ReleaseInspection, type SourcedImage } from './release.ts';

/** An image of a bundle with its license. */
export interface InventoryImage extends SourcedImage {
  /** The license that the labels of the image name, not verified. */
  readonly license?: string;
}

/** The content of a bundle for a bill of materials. */
export interface BundleInventory extends ReleaseInspection {
  readonly images: readonly InventoryImage[];
}

/** The labels that name a license, and the largest configuration of an image in bytes. */
const licenseLabels = ['org.opencontainers.image.licenses', 'License', 'license'];
const configLimit = 1024 * 1024;

/** Lists the images of a bundle with their sources and licenses. Reads manifests, configurations and the payloads. */
export async function readBundleInventory(bundle: Bundle, context: Context): Promise<BundleInventory> {
  const inspection = await inspectRelease(bundle, context);
  const listed = inspection.images.map(async (image): Promise<InventoryImage> => {
    const license = await readLicense(bundle.content, image.digest);
    return license ? { ...image, license } : image;
  });
  return { ...inspection, images: await Promise.all(listed) };
}

/** Reads the license in the labels of an image; of a manifest list, those of its first image. */
async function readLicense(content: ContentSource, digest: Digest): Promise<string | undefined> {
  try {
    const manifest = await readImageManifest(content, await content.resolve(digest));
    const [first] = manifest.manifests;
    const { config } = isIndex(manifest) && first ? await readImageManifest(content, first) : manifest;
    if (!config || !(await content.exists(config))) return undefined;
    const labels = fieldsAt(
      parseJson((await readContent(content, config, configLimit)).toString()),
      'config',
      'Labels',
    );
    const license = licenseLabels.map((label) => textOf(labels[label])).find((text) => text !== undefined);
    return license?.replace(/\p{C}/gu, ' ').trim().slice(0, 200);
  } catch (error) {
    // Verification reports missing and corrupt content.
    if (!(error instanceof SyntaxError) && (!isPluginError(error) || error.code === 'interrupted')) throw error;
    return undefined;
  }
}
