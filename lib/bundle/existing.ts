import { stat } from 'node:fs/promises';
import type { Context } from '../context.ts';
import { isPluginError } from '../errors.ts';
import type { Digest } from '../oci/digest.ts';
import { formatReference, type Reference } from '../oci/reference.ts';
import type { CreateRequest } from './create.ts';
import type { BundleMetadata } from './metadata.ts';
import { openBundle } from './open.ts';
import { readDigestFile, writeSidecars } from './sidecars.ts';
import { checkSigned } from './signedBundle.ts';
import { verifyBundle } from './verify.ts';
import type { VerifyTrust } from './vouching.ts';

/**
 * Looks whether a finished bundle is there that holds what is expected: by its metadata, its list of entries and its
 * size, and by every byte when that is asked for or its .sha256 file is missing, which is then written again. An
 * unsigned bundle counts only where unsigned releases are allowed. Undefined where there is none, or another one.
 */
export async function checkExisting(
  path: string,
  expected: { readonly reference: Reference & { readonly digest: Digest }; readonly extraImages: readonly string[] },
  { verifyExisting, dryRun }: Pick<CreateRequest, 'verifyExisting' | 'dryRun'>,
  trust: VerifyTrust,
  context: Context,
): Promise<{ metadata: BundleMetadata; digest: Digest } | undefined> {
  if (!(await stat(path).catch(() => undefined))) return undefined;
  try {
    const bundle = await openBundle(path, context);
    try {
      const { metadata, size } = bundle;
      const isExpected =
        metadata.release === formatReference(expected.reference) &&
        [...metadata.extraImages].sort().join() === [...expected.extraImages].sort().join() &&
        metadata.size === size;
      if (!isExpected) {
        context.log('info', `${path} is another bundle: making it anew`);
        return undefined;
      }
      // What metadata.json says of signatures is for anybody to write.
      await checkSigned(bundle, trust, context);
      const known = verifyExisting ? undefined : await readDigestFile(path);
      if (known) return { metadata, digest: known };
      const report = await verifyBundle(bundle, {}, context);
      if (!report.digest || report.problems.length > 0) {
        context.log('warn', `${path} is damaged (${report.problems[0]?.message ?? ''}): making it anew`);
        return undefined;
      }
      if (!dryRun) await writeSidecars(path, report.digest, metadata);
      return { metadata, digest: report.digest };
    } finally {
      await bundle.close();
    }
  } catch (error) {
    if (!isPluginError(error) || error.code === 'interrupted') throw error;
    context.log('warn', `${error.message}; making it anew`);
    return undefined;
  }
}
