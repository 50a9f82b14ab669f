import type { Bundle } from '../../bundle/bundle.ts';
import { scanContent } from '../../bundle/verify/scan.ts';
import { readDigestFile } from '../../bundle/sidecars.ts';
import { Walk } from '../../bundle/verify/walk.ts';
import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { firstMessage } from '../../failures.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { imagesOfBundle } from './registryBundle.ts';

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
