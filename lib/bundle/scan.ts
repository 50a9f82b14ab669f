import { createHash } from 'node:crypto';
import type { Context } from '../context.ts';
import { manifestSizeLimit } from '../oci/descriptor.ts';
import { isDigest, type Digest } from '../oci/digest.ts';
import { Verifier } from '../store/store.ts';
import type { Bundle, BundleFile } from './open.ts';
import type { Problem } from './verify.ts';

/** What one reading of a whole bundle found. */
export interface ScannedContent {
  /** Of the whole tar; absent for a directory, and for a tar that is cut short. */
  readonly digest: Digest | undefined;
  readonly bytes: number;
  /** Manifests that are what their names say, with their bytes. */
  readonly manifests: ReadonlyMap<Digest, Buffer>;
  /** Blobs that are what their names say, with their sizes. */
  readonly blobs: ReadonlyMap<Digest, number>;
  /** Content that is not what its name says, or where the tar breaks off. */
  readonly failed: ReadonlyMap<Digest, 'altered' | 'truncated'>;
  /** The configuration manifests. */
  readonly config: readonly { readonly path: string; readonly text: string }[];
  /** What is wrong with the tar as such. */
  readonly problems: readonly Problem[];
}

/** Reads a bundle once from its first byte to its last, and checks everything in it against its name. */
export async function scanContent(bundle: Bundle, context: Context): Promise<ScannedContent> {
  const whole = createHash('sha256');
  const manifests = new Map<Digest, Buffer>();
  const blobs = new Map<Digest, number>();
  const failed = new Map<Digest, 'altered' | 'truncated'>();
  const config: { path: string; text: string }[] = [];
  let bytes = 0;
  let current: { file: BundleFile; verifier: Verifier | undefined; kept: Buffer[] | undefined } | undefined;

  const begin = (file: BundleFile): typeof current => {
    const [, kind, digest = ''] =
      /^v2\/.+\/(manifests|blobs)\/(sha256[:-][0-9a-f]{64})$/.exec(file.path.replace('sha256-', 'sha256:')) ?? [];
    const isSmall = file.size <= manifestSizeLimit;
    return {
      file,
      verifier: isDigest(digest) ? new Verifier({ digest, size: file.size }, bundle.path) : undefined,
      kept: isSmall && (kind === 'manifests' || file.path.startsWith('config/')) ? [] : undefined,
    };
  };
  const finish = (): void => {
    if (!current) return;
    const { file, verifier, kept } = current;
    if (verifier) {
      const digest: Digest = `sha256:${file.path.slice(-64)}`;
      if (!verifier.matches()) failed.set(digest, 'altered');
      else if (kept) manifests.set(digest, Buffer.concat(kept));
      else blobs.set(digest, file.size);
    } else if (kept) {
      config.push({ path: file.path, text: Buffer.concat(kept).toString() });
    }
    current = undefined;
  };

  await bundle.scan((file, chunk) => {
    bytes += chunk.length;
    if (bundle.form === 'tar') whole.update(chunk);
    context.onEvent({ kind: 'bytes', digest: file?.path ?? '', bytes: chunk.length });
    if (file !== current?.file) finish();
    if (!file) return;
    current ??= begin(file);
    current?.verifier?.update(chunk);
    current?.kept?.push(Buffer.from(chunk));
  });
  finish();
  const { damage } = bundle;
  const cut = `sha256:${bundle.cutEntry?.slice(-64) ?? ''}`;
  if (isDigest(cut)) failed.set(cut, 'truncated');
  return {
    digest: bundle.form === 'tar' && !damage ? `sha256:${whole.digest('hex')}` : undefined,
    bytes,
    manifests,
    blobs,
    failed,
    config,
    problems: damage ? [{ kind: 'truncated', what: bundle.path, images: [], message: damage.message }] : [],
  };
}
