import { join } from 'node:path';
import { gatherContents, writeBundle, layOutBundle, type ReleaseProvider } from '#bundle/create';
import type { BundleImage, BundleMetadata } from '#bundle/metadata';
import { type Bundle, readDigestFile } from '#bundle/open';
import { scanContent, Walk } from '#bundle/verify';
import { isIndex, parseManifest, type Digest, formatReference, parseReference } from '#content/oci';
import { readContent } from '#content/store';
import type { Context } from '#context';
import { PluginError, firstMessage } from '#errors';
import { componentTag, goArchitecture, releaseTag, type Architecture } from '#release/version';
import { releaseComponents, type ReleaseComponent } from '../installation/installation.ts';
import type { TargetImages } from './images.ts';

/** The content and destination of a bundle. */
interface RegistryBundleRequest {
  /** The release of the mirror registry. */
  readonly version: string;
  readonly arch: Architecture;
  /** The images by tag, with their names in units. */
  readonly images: Required<TargetImages>;
  /** An existing or new folder. */
  readonly output: string;
  readonly tool: string;
}

/** The bundle that was written. */
interface RegistryBundleResult {
  readonly path: string;
  readonly digest: Digest;
  readonly metadata: BundleMetadata;
  /** The number of downloaded bytes. */
  readonly fetched: number;
}

/**
 * Writes `<output>/mirror-registry-<version>-<arch>.tar` with the images of a mirror registry, in the layout of an
 * upgrade bundle, and `.sha256` beside it. `components` of its metadata names each image by tag and digest. The bundle
 * has only one architecture of a multi-architecture image. A second run resumes an interrupted one.
 */
export async function createRegistryBundle(
  { version, arch, images, output, tool }: RegistryBundleRequest,
  provider: ReleaseProvider,
  context: Context,
): Promise<RegistryBundleResult> {
  const bundleImages = await Promise.all(
    releaseComponents.map(async (name): Promise<BundleImage> => {
      const reference = await resolveImage(images[name], arch, provider);
      return { name, reference, tag: name === 'quay' ? releaseTag(version, arch) : componentTag(version, arch, name) };
    }),
  );
  const contents = await gatherContents(bundleImages, (reference) => provider.sourceOf(reference), context);
  const pullspecs = Object.fromEntries(bundleImages.map(({ name, reference }) => [name, formatReference(reference)]));
  const facts = {
    version,
    arch,
    tool,
    components: pullspecs,
    images: Object.values(pullspecs),
    release: pullspecs['quay'] ?? '',
    extraImages: [],
    osImages: [],
    previous: [],
    signatures: {},
  };
  const layout = layOutBundle(facts, contents, []);
  const path = join(output, `mirror-registry-${version}-${arch}.tar`);
  const { digests, fetched } = await writeBundle({ path, layout, contents, withManifest: false }, provider, context);
  return { path, digest: digests.digest, metadata: layout.metadata, fetched };
}

/**
 * Returns the images of a bundle by tag, with their names in units and their digests. Throws `invalid-bundle` for other
 * bundles.
 */
export function imagesOfBundle(
  { components: named }: BundleMetadata,
  path: string,
): Record<ReleaseComponent, { readonly image: string; readonly digest: Digest }> {
  const read = (name: ReleaseComponent): { image: string; digest: Digest } => {
    const { digest, ...reference } = parseReference(named[name] ?? '-');
    if (digest && reference.tag !== undefined) return { image: formatReference(reference), digest };
    throw new PluginError('invalid-bundle', `${path} is not a bundle of a mirror registry: it has no image ${name}`, {
      hint: `Create one with 'oc adm-mirror-registry bundle create'.`,
    });
  };
  if (!releaseComponents.every((name) => name in named)) {
    throw new PluginError('invalid-bundle', `${path} is not a bundle of a mirror registry`, {
      hint: `Create one with 'oc adm-mirror-registry bundle create'.`,
    });
  }
  return { quay: read('quay'), redis: read('redis'), pause: read('pause') };
}

async function resolveImage(
  image: string,
  arch: Architecture,
  provider: ReleaseProvider,
): Promise<BundleImage['reference']> {
  const { registry, repository, tag } = parseReference(image);
  if (tag === undefined) throw new PluginError('usage', `${image} has no tag, which tells the version`);
  const source = provider.sourceOf({ registry, repository });
  const descriptor = await source.resolve(tag);
  if (!isIndex(descriptor)) return { registry, repository, tag, digest: descriptor.digest };
  const { manifests } = parseManifest(await readContent(source, descriptor), `${image} in ${source.name}`);
  const child = manifests.find(({ platform }) => {
    const { architecture } = (platform ?? {}) as { architecture?: unknown };
    return architecture === goArchitecture(arch);
  });
  if (child) return { registry, repository, tag, digest: child.digest };
  throw new PluginError('not-found', `${image} has no image for ${arch}`);
}

/**
 * Reads a bundle of a mirror registry once, and verifies all digests: of each image, and of the file against `.sha256`
 * and `expected`. Throws `incomplete` with all problems, `digest-mismatch` for another file, and `invalid-bundle` for
 * other bundles.
 */
export async function checkRegistryBundle(
  bundle: Bundle,
  expected: Digest | undefined,
  context: Context,
): Promise<void> {
  const { path } = bundle;
  const images = imagesOfBundle(bundle.metadata, path);
  const scanned = await scanContent(bundle, context);
  await requireDigest(path, scanned.digest, expected);
  const walk = new Walk(scanned);
  for (const { image, digest } of Object.values(images)) walk.visit(digest, image);
  const message = firstMessage([...bundle.faults, ...walk.problems]);
  if (message === undefined) return;
  throw new PluginError('incomplete', `${path} cannot be used: ${message}`, {
    hint: 'Nothing was changed. Copy the bundle again.',
  });
}

/** Compares the digest of a file with `expected` and `.sha256`. Throws `digest-mismatch`. */
export async function requireDigest(
  path: string,
  actualDigest: Digest | undefined,
  expected: Digest | undefined,
): Promise<void> {
  for (const [digest, where] of [
    [expected, 'as given'],
    [await readDigestFile(path), `as in ${path}.sha256`],
  ] as const) {
    if (digest === undefined || digest === actualDigest) continue;
    throw new PluginError('digest-mismatch', `${path} has the digest ${actualDigest ?? ''}, not ${digest} ${where}`, {
      hint: 'Nothing was changed. Copy the bundle again.',
    });
  }
}
