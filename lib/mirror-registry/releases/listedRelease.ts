import { PluginError } from '../../errors.ts';
import { isIndex } from '../../oci/descriptor.ts';
import { OciLayout } from '../../store/ociLayout.ts';
import { readContent, type ContentSource } from '../../store/store.ts';
import { makeContentRelease } from './contentRelease.ts';
import type { RegistryRelease } from './images.ts';
import { invalidRelease, readReleaseList } from './releaseList.ts';
import { compareTags } from '../versions.ts';

/**
 * Opens the release of a manifest list in a registry or image layout, by its tag or digest; by default the newest.
 * Verifies blobs while podman pulls them. Throws `not-found`, `invalid-bundle`, and the errors of the store.
 */
export async function openListedRelease(
  content: ContentSource,
  tagOrDigest: string | undefined,
  close: () => Promise<void> = () => Promise.resolve(),
): Promise<RegistryRelease> {
  const wanted = tagOrDigest ?? (await findNewest(content));
  const root = await content.resolve(wanted);
  const name = `${content.name}${wanted.includes(':') ? '@' : ':'}${wanted}`;
  if (!isIndex(root)) {
    throw invalidRelease(`${name} is a single image, not a release of the mirror registry`);
  }
  const { version, arch, images } = readReleaseList(await readContent(content, root), name);
  return makeContentRelease({
    ...{ kind: 'list', name, version, arch, images, content, close },
    check: (expected) => {
      if (expected === undefined || expected === root.digest) return Promise.resolve();
      return Promise.reject(
        new PluginError('digest-mismatch', `${name} has the digest ${root.digest}, not ${expected}`, {
          hint: 'Nothing was changed. Push the release again, or find out who changed its tag.',
        }),
      );
    },
  });
}

/** Returns the tag of the newest release, or the digest of the only image of a layout. */
async function findNewest(content: ContentSource): Promise<string> {
  if (content instanceof OciLayout) {
    const [only, ...others] = await content.entries();
    if (only && others.length === 0) return only.digest;
  }
  const versions = (await content.tags()).filter((tag) => /^\d+\.\d+\.\d+/.test(tag));
  const [newest] = versions.sort((a, b) => compareTags(b, a) || (a < b ? -1 : 1));
  if (newest !== undefined) return newest;
  throw new PluginError('not-found', `${content.name} has no release of the mirror registry: no tag such as 2.0.11`, {
    hint: `Push one with 'oc adm-mirror-registry bundle push'.`,
  });
}
