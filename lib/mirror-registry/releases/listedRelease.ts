import { PluginError } from '../../errors.ts';
import { isIndex } from '../../oci/descriptor.ts';
import { OciLayout } from '../../store/ociLayout.ts';
import { readContent, type ContentSource } from '../../store/store.ts';
import { makeContentRelease } from './contentRelease.ts';
import type { RegistryRelease } from './images.ts';
import { noRelease, readReleaseList } from './releaseList.ts';
import { compareTags } from '../versions.ts';

/**
 * Opens the release that a list stands for, in a registry or an image layout: by its tag or digest, or without one the newest. Its blobs are
 * verified as podman is given them. Throws `not-found`, `invalid-bundle`, and what the store throws.
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
    throw noRelease(`${name} is no release of the mirror registry, but a single image`);
  }
  const { version, arch, images } = readReleaseList(await readContent(content, root), name);
  return makeContentRelease({
    ...{ kind: 'list', name, version, arch, images, content, close },
    check: (expected) => {
      if (expected === undefined || expected === root.digest) return Promise.resolve();
      return Promise.reject(
        new PluginError('digest-mismatch', `${name} is another than --digest says: ${root.digest}`, {
          hint: 'Nothing was changed. Bring the release again, or ask who changed its tag.',
        }),
      );
    },
  });
}

/** The tag of the newest release, or the only image of a layout, which may have no tag. */
async function findNewest(content: ContentSource): Promise<string> {
  if (content instanceof OciLayout) {
    const [only, ...others] = await content.entries();
    if (only && others.length === 0) return only.digest;
  }
  const versions = (await content.tags()).filter((tag) => /^\d+\.\d+\.\d+/.test(tag));
  const [newest] = versions.sort((a, b) => compareTags(b, a) || (a < b ? -1 : 1));
  if (newest !== undefined) return newest;
  throw new PluginError('not-found', `${content.name} has no release of the mirror registry: no tag such as 2.0.11`, {
    hint: `Bring one there with 'oc adm-mirror-registry bundle push'.`,
  });
}
