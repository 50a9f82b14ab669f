import type { Context } from '../context.ts';
import { asFailure, ignoreFailure, PluginError } from '../errors.ts';
import { nameSome } from '../failures.ts';
import { attachedTo } from '../content/oci/attachment.ts';
import type { Digest } from '../content/oci/digest.ts';
import { isTag, parseReference } from '../content/oci/reference.ts';
import type { SignedRelease } from '../release/load.ts';
import { type BundleImage, listImages } from './images.ts';
import type { Bundle } from './bundle.ts';

/**
 * Lists the images of each release of a bundle with their tags: the images of the signed payload, and the extra images
 * with the tags that `create` gives them.
 */
export function listSignedImages(
  { metadata }: Pick<Bundle, 'metadata'>,
  releases: readonly Pick<SignedRelease, 'release'>[],
): BundleImage[][] {
  const extras = metadata.extraImages.flatMap((name) => {
    const { registry, repository, digest } = parseReference(name);
    return digest ? [{ name, reference: { registry, repository, digest } }] : [];
  });
  return listImages(releases, extras);
}

/**
 * Returns the tags of the images of a bundle by the signed payloads, never by the tag files of the bundle. Skips a tag
 * whose image cannot be read, with a warning. Throws `invalid-bundle` for a tag file that names another image than the
 * payload.
 */
export async function readBundleTags(
  bundle: Bundle,
  releases: readonly SignedRelease[],
  context: Context,
): Promise<ReadonlyMap<string, Digest>> {
  const { content, path } = bundle;
  const expected = new Map<string, Digest>();
  for (const { tag, reference } of listSignedImages(bundle, releases).flat()) {
    if (!expected.has(tag)) expected.set(tag, reference.digest);
  }
  const files = new Set(await content.tags());
  const tags = new Map<string, Digest>();
  for (const [tag, digest] of expected) {
    const taggedDigest = files.has(tag) ? await resolveTag(content, tag) : undefined;
    if (taggedDigest !== undefined && taggedDigest !== digest) {
      throw new PluginError('invalid-bundle', `${path}: the tag ${tag} leads to ${taggedDigest} instead of ${digest}`);
    }
    const error = taggedDigest ? undefined : await findFault(content, digest);
    if (error) context.log('warn', `the tag ${tag} is left out: ${error.message}`);
    else tags.set(tag, digest);
  }
  const others = [...files].filter((tag) => isTag(tag) && !expected.has(tag) && !attachedTo(tag)).sort();
  if (others.length > 0) context.log('warn', `${nameSome(others)}: left out, because no signed release has such a tag`);
  return tags;
}

/** Returns the digest of a tag file; undefined if its image cannot be read. */
async function resolveTag(content: Bundle['content'], tag: string): Promise<Digest | undefined> {
  return (await content.resolve(tag).catch(ignoreFailure))?.digest;
}

async function findFault(content: Bundle['content'], digest: Digest): Promise<PluginError | undefined> {
  return content.resolve(digest).then(() => undefined, asFailure);
}
