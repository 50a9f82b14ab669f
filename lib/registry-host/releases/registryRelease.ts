import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Context } from '../../context.ts';
import { ignoring, PluginError } from '../../errors.ts';
import type { Reference } from '../../content/oci/reference.ts';
import { parseLocation } from '../../location.ts';
import { OciLayout, ociLayoutFile } from '../../content/store/ociLayout.ts';
import { type ContentSource, readContent } from '../../content/store/store.ts';
import { isInstallerArchive, openInstallerRelease } from './installerRelease.ts';
import type { RegistryRelease, TargetImages } from './images.ts';
import { openBundle } from '../../bundle/open.ts';
import { parseArchitecture } from '../../release/version.ts';
import { makeContentRelease } from './contentRelease.ts';
import { imagesOfBundle } from './registryBundle.ts';
import { checkRegistryBundle } from './registryBundleCheck.ts';
import { isIndex } from '../../content/oci/descriptor.ts';
import { invalidRelease, readReleaseList } from './releaseList.ts';
import { compareTags } from '../versions.ts';

/** A repository of a registry, open for reading. */
export interface OpenedRepository {
  readonly content: ContentSource;
  readonly close: () => Promise<void>;
}

/**
 * Opens a release by its location: a bundle, a mirror directory, an image layout, an archive of the installer, or a
 * registry, by default the newest release in it. `given` adds names of images to an archive. Throws `not-found`,
 * `not-readable`, `invalid-bundle`, and the errors of registries.
 */
export async function openRegistryRelease(
  text: string,
  openRegistry: (reference: Reference) => Promise<OpenedRepository>,
  context: Context,
  given: TargetImages = {},
): Promise<RegistryRelease> {
  const location = await parseLocation(text.replace(/^oci:(?=[./])/, '')).catch(ignoring('not-found'));
  if (location?.kind === 'registry' && namesRegistry(text)) {
    const { content, close } = await openRegistry(location.reference);
    const { tag, digest } = location.reference;
    try {
      return await openListedRelease(content, digest ?? tag, close);
    } catch (error) {
      await close();
      throw error;
    }
  }
  if (location?.kind === 'directory' && (await isLayout(location.path))) {
    return openListedRelease(new OciLayout(location.path, context), undefined);
  }
  if (location?.kind === 'archive' && (await isInstallerArchive(location.path, context.signal))) {
    return openInstallerRelease(location.path, given, context);
  }
  // For a missing file, the error of this function lists the files of the folder.
  return openBundledRelease(location && 'path' in location ? location.path : text, context);
}

/** Returns whether a text names a host. Without one it is a file: no release is in Docker’s library. */
function namesRegistry(text: string): boolean {
  return /^(?:docker:\/\/|(?:[^/]*[.:][^/]*|localhost)\/)/.test(text);
}

function isLayout(path: string): Promise<boolean> {
  return stat(join(path, ociLayoutFile)).then(
    () => true,
    () => false,
  );
}

/**
 * Opens the release in a bundle, or in a mirror directory that a bundle was extracted to. Throws the errors of
 * `openBundle`, and `invalid-bundle`.
 */
async function openBundledRelease(path: string, context: Context): Promise<RegistryRelease> {
  const bundle = await openBundle(path, context);
  try {
    const { version, arch } = bundle.metadata;
    const release = await makeContentRelease({
      ...{ kind: 'bundle', name: path, version, arch: parseArchitecture(arch), content: bundle.content },
      images: imagesOfBundle(bundle.metadata, path),
      check: (expected, reading) => checkRegistryBundle(bundle, expected, reading),
      close: () => bundle[Symbol.asyncDispose](),
    });
    return { ...release, bundle };
  } catch (error) {
    await bundle[Symbol.asyncDispose]();
    throw error;
  }
}

/**
 * Opens the release of a manifest list in a registry or image layout, by its tag or digest; by default the newest.
 * Verifies blobs while podman pulls them. Throws `not-found`, `invalid-bundle`, and the errors of the store.
 */
async function openListedRelease(
  content: ContentSource,
  tagOrDigest: string | undefined,
  close: () => Promise<void> = () => Promise.resolve(),
): Promise<RegistryRelease> {
  const chosenTagOrDigest = tagOrDigest ?? (await findNewest(content));
  const root = await content.resolve(chosenTagOrDigest);
  const name = `${content.name}${chosenTagOrDigest.includes(':') ? '@' : ':'}${chosenTagOrDigest}`;
  if (!isIndex(root)) throw invalidRelease(`${name} is a single image, not a release of the mirror registry`);
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
