import { isPluginError } from '../../errors.ts';
import type { Context } from '../../context.ts';
import { fieldsAt, textOf } from '../../fields.ts';
import { isIndex } from '../../oci/descriptor.ts';
import type { Digest } from '../../oci/digest.ts';
import { parseReference, repositoryIn } from '../../oci/reference.ts';
import { parseJson } from '../../oci/syntax.ts';
import type { Provenance } from '../../release/provenance.ts';
import { readPayload } from '../../release/release.ts';
import { readContent, readImageManifest, type ContentSource } from '../../store/store.ts';
import type { Bundle } from '../bundle.ts';
import { inspectBundle, type InspectedImage, type Inspection } from './inspect.ts';

/** An image of a bundle with its origin. Texts are those of the image and the payload, not verified. */
export interface InventoryImage extends Pick<InspectedImage, 'name' | 'kind' | 'pullspec' | 'digest' | 'size'> {
  readonly source?: { readonly repository: string; readonly commit: string };
  /** The license that the labels of the image name. */
  readonly license?: string;
}

/** The content of a bundle for a bill of materials. */
export interface BundleInventory extends Pick<Inspection, 'version' | 'arch' | 'release'> {
  /** The versions of parts, such as `kubernetes` and `machine-os`. */
  readonly versions: Provenance['versions'];
  readonly images: readonly InventoryImage[];
}

/** The labels that name a license, and the largest configuration of an image in bytes. */
const licenseLabels = ['org.opencontainers.image.licenses', 'License', 'license'];
const configLimit = 1024 * 1024;

/** Lists the images of a bundle with their sources and licenses. Reads manifests, configurations and the payloads. */
export async function readBundleInventory(bundle: Bundle, context: Context): Promise<BundleInventory> {
  const { version, arch, release, images } = await inspectBundle(bundle, context);
  const releases = images.filter(({ kind }) => kind === 'release');
  const origins = await Promise.all(releases.map(({ pullspec }) => readOrigin(bundle.content, pullspec, context)));
  const sources = new Map(origins.flatMap((origin) => [...origin.sources]));
  const last = origins.find((_, index) => releases[index]?.pullspec === release) ?? origins.at(-1);
  const listed = images.map(async ({ name, aliases, kind, pullspec, digest, size }): Promise<InventoryImage> => {
    const names = [name, ...aliases].map((each) => each.replace(/^.*\//, ''));
    const source = kind === 'extra' ? undefined : names.map((each) => sources.get(each)).find((each) => each);
    const license = await readLicense(bundle.content, digest);
    return { name, kind, pullspec, digest, size, ...(source && { source }), ...(license && { license }) };
  });
  return { version, arch, release, versions: last?.versions ?? {}, images: await Promise.all(listed) };
}

async function readOrigin(content: ContentSource, pullspec: string, context: Context): Promise<Provenance> {
  const descriptor = await content.resolve(parseReference(pullspec).digest ?? '');
  return (await readPayload(content, descriptor, { repository: repositoryIn(pullspec) }, context)).provenance;
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
    const found = licenseLabels.map((label) => textOf(labels[label])).find((text) => text !== undefined);
    return found?.replace(/\p{C}/gu, ' ').trim().slice(0, 200);
  } catch (error) {
    // Verification reports missing and corrupt content.
    if (!(error instanceof SyntaxError) && (!isPluginError(error) || error.code === 'interrupted')) throw error;
    return undefined;
  }
}
