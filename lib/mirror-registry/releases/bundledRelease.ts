import { openBundle } from '../../bundle/open.ts';
import type { Context } from '../../context.ts';
import { parseArchitecture } from '../../release/version.ts';
import { makeContentRelease } from './contentRelease.ts';
import { imagesOfBundle } from './registryBundle.ts';
import { checkRegistryBundle } from './registryBundleCheck.ts';
import type { RegistryRelease } from './images.ts';

/**
 * Opens the release in a bundle, or in a mirror directory that a bundle was extracted to. Throws the errors of
 * `openBundle`, and `invalid-bundle`.
 */
export async function openBundledRelease(path: string, context: Context): Promise<RegistryRelease> {
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
