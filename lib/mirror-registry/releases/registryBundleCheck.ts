import type { Bundle } from '../../bundle/bundle.ts';
import { scanContent } from '../../bundle/verify/scan.ts';
import { readDigestFile } from '../../bundle/sidecars.ts';
import { Walk } from '../../bundle/verify/walk.ts';
import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { firstMessage } from '../../failures.ts';
import type { Digest } from '../../oci/digest.ts';
import { imagesOfBundle } from './registryBundle.ts';

/**
 * Reads a bundle with a mirror registry once, and checks all that is in it against its digests: every image whole, and the file the one
 * that `.sha256` beside it, and `expected`, tell of. Throws `incomplete` with all that is wrong, `digest-mismatch` for another file, and
 * `invalid-bundle` for a bundle of something else.
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
    hint: 'Bring it again. Nothing was changed.',
  });
}

/** Makes sure that a file is the one that `expected`, and `.sha256` beside it, tell of. Throws `digest-mismatch`. */
export async function requireDigest(
  path: string,
  found: Digest | undefined,
  expected: Digest | undefined,
): Promise<void> {
  for (const [digest, source] of [
    [expected, '--digest'],
    [await readDigestFile(path), `${path}.sha256`],
  ] as const) {
    if (digest === undefined || digest === found) continue;
    throw new PluginError('digest-mismatch', `${path} is another file than ${source} says: ${found ?? ''}`, {
      hint: 'Bring it again. Nothing was changed.',
    });
  }
}
