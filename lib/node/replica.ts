import { createHash } from 'node:crypto';
import { stat, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { constants, writeSync } from 'node:fs';
import type { Bundle } from '../bundle/bundle.ts';
import type { BlobRecord } from '../bundle/metadata.ts';
import { checkInterrupted, type Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import { sumSizes } from '../content/oci/descriptor.ts';
import { hexOf, type Digest } from '../content/oci/digest.ts';
import type { Connections } from '../content/http/connections.ts';
import { renameDurably } from '../content/files/atomicWrite.ts';
import { checkSpace, describeWriteError, makeFolders } from '../content/files/disk.ts';
import { takeLock } from '../content/files/lock.ts';
import { openRegular } from '../content/files/regularFile.ts';
import type { ContentRequest, Transport } from '../content/registry/transport.ts';
import { explainRefusal, requestFile, type RemoteServer } from './remoteServer.ts';

/** A bundle on another machine. */
export interface ReplicaSource extends RemoteServer {
  /** The digest of the whole tar. With it, the sender need not be trusted. */
  readonly digest: Digest;
}

/** Returns the path of the copy of a bundle in a folder. */
export function replicaPath(folder: string, digest: Digest): string {
  return join(folder, `bundle-${hexOf(digest).slice(0, 12)}.tar`);
}

/** Returns the path of the fetched base blobs of a delta bundle in a folder. */
export function baseBlobsPath(folder: string, digest: Digest): string {
  return replicaPath(folder, digest).replace(/tar$/, 'base');
}

/**
 * Downloads a bundle from another machine into a folder, and returns its path. Resumes an interrupted transfer. Only a
 * file with the right digest gets its final name. Throws `busy`, `disk-full`, `not-writable`, `digest-mismatch`, and
 * what asking the server throws.
 */
export async function fetchBundle(
  source: ReplicaSource,
  folder: string,
  connections: Connections,
  context: Context,
): Promise<string> {
  const path = replicaPath(folder, source.digest);
  if (await stat(path).catch(() => undefined)) {
    await checkWholeDigest(path, source.digest, context);
    return path;
  }
  await fetchFile({ ...source, what: 'the bundle' }, path, connections, context);
  return path;
}

/**
 * Downloads the base blobs of a delta bundle from another machine into a folder, in the order of `blobs`, and returns
 * the path of the file. Verifies each blob. Resumes and throws as fetchBundle does.
 */
export async function fetchBaseBlobs(
  source: ReplicaSource,
  blobs: readonly BlobRecord[],
  folder: string,
  connections: Connections,
  context: Context,
): Promise<string> {
  const path = baseBlobsPath(folder, source.digest);
  if (!(await stat(path).catch(() => undefined)))
    await fetchFile({ ...source, what: 'the base of the bundle', blobs }, path, connections, context);
  return path;
}

/** Downloads a file. A lock keeps other processes from the same. */
async function fetchFile(file: WantedFile, path: string, connections: Connections, context: Context): Promise<void> {
  const folder = dirname(path);
  try {
    await makeFolders(folder);
  } catch (error) {
    throw describeWriteError(error, folder);
  }
  await using _lock = await takeLock(`${path}.lock`, path);
  await download(file, path, connections, context);
}

/** Reads a file, and compares its digest. Throws `digest-mismatch` and the errors of reading. */
export async function checkWholeDigest(path: string, digest: Digest, context: Context): Promise<void> {
  await using file = await openRegular(path);
  const hash = createHash('sha256');
  await hashFile(file, hash, Infinity, context);
  compareDigest(path, `sha256:${hash.digest('hex')}`, digest);
}

/**
 * Reads every byte of the tar of a bundle, and compares its digest: on a device, in volumes or in files. Throws
 * `digest-mismatch`, also if the bundle was opened from other bytes, `unsupported` for a directory, `interrupted`, and
 * the errors of reading.
 */
export async function checkBundleDigest(bundle: Bundle, digest: Digest, context: Context): Promise<void> {
  compareDigest(bundle.path, await hashBundle(bundle, context), digest);
}

/** Reads a bundle completely, and returns its digest. Throws `unsupported` for a directory, and `interrupted`. */
export async function hashBundle(bundle: Bundle, { signal }: Context): Promise<Digest> {
  const digests = bundle.form === 'tar' && (await bundle.scan(() => checkInterrupted(signal)));
  if (!digests) {
    throw new PluginError('unsupported', `${bundle.path} is a directory, which has no digest`, {
      hint: 'Name the tar, or the device that it was written onto.',
    });
  }
  return digests.digest;
}

/** Throws `digest-mismatch` unless a bundle has the expected digest. */
export function compareDigest(path: string, actualDigest: Digest, digest: Digest): void {
  if (actualDigest === digest) return;
  const message = `${path} is not the expected bundle: its digest is ${actualDigest}, not ${digest}`;
  const hint = 'Do not use it. Copy the bundle again.';
  throw new PluginError('digest-mismatch', message, { hint });
}

/** A file on another machine. */
interface WantedFile extends ReplicaSource {
  /** Its name for messages. */
  readonly what: string;
  /** The blobs that it consists of; by default it is one, with the digest. */
  readonly blobs?: readonly BlobRecord[];
}

async function download(
  { digest, what, blobs, ...server }: WantedFile,
  path: string,
  connections: Connections,
  context: Context,
): Promise<void> {
  const { transport, request } = requestFile(server, what, connections, context);
  const size = await askSize(transport, request);
  const parts = blobs ?? [{ digest, size }];
  if (sumSizes(parts) !== size)
    throw new PluginError('size-mismatch', `${request.registry} has ${size} bytes of ${what}, not ${sumSizes(parts)}`);
  const partial = `${path}.partial`;
  try {
    // The existing file may be a link or a pipe that another account created.
    const { O_RDWR, O_APPEND, O_CREAT } = constants;
    await using file = await openRegular(partial, O_RDWR | O_APPEND | O_CREAT);
    let start = (await file.stat()).size;
    if (start > size) await file.truncate((start = 0));
    context.onEvent({ kind: 'plan', images: 0, blobs: 1, bytes: size, present: start });
    await checkSpace(partial, size - start);
    for (;;) {
      const check = new BlobCheck(parts);
      await hashFile(file, check, start, context);
      // A corrupt part cannot be resumed.
      if (!check.wrong)
        await transport.download(request, size, start, (chunk) => {
          // The chunk is valid during this call only.
          for (let done = 0; done < chunk.length;) done += writeSync(file.fd, chunk, done);
          check.update(chunk);
          context.onEvent({ kind: 'bytes', digest, bytes: chunk.length });
        });
      const { wrong, verified } = check;
      if (!wrong) break;
      await file.truncate(verified);
      if (start <= verified) throw wrongContent(request, wrong);
      const message = `${partial} of an earlier run is not part of ${what}: downloading it from byte ${verified} on`;
      context.log('warn', message);
      start = verified;
    }
    await file.sync();
    await renameDurably(partial, path);
  } catch (error) {
    throw describeWriteError(error, partial);
  }
}

function wrongContent({ registry, what }: ContentRequest, { digest, size, found: actual }: WrongBlob): PluginError {
  const message = `${registry} has other content for ${what}: the digest of ${size} bytes is ${actual}, not ${digest}`;
  const hint = 'Compare the digest with the .sha256 file of the bundle, or ask another machine for it.';
  return new PluginError('digest-mismatch', message, { hint });
}

/** A blob with another digest, and that digest. */
interface WrongBlob extends BlobRecord {
  readonly found: string;
}

/** Compares bytes that come in order with the digests of blobs that follow one another. */
class BlobCheck {
  /** The size of all blobs that are complete and right, in bytes. */
  verified = 0;
  wrong: WrongBlob | undefined;
  readonly #blobs: readonly BlobRecord[];
  #index = 0;
  #hash = createHash('sha256');
  #done = 0;

  constructor(blobs: readonly BlobRecord[]) {
    this.#blobs = blobs.filter(({ size }) => size > 0);
  }

  update(bytes: Buffer): void {
    for (let rest = bytes; rest.length > 0;) {
      const blob = this.#blobs[this.#index];
      if (!blob || this.wrong) return;
      const part = rest.subarray(0, blob.size - this.#done);
      this.#hash.update(part);
      this.#done += part.length;
      rest = rest.subarray(part.length);
      if (this.#done === blob.size) this.#finish(blob);
    }
  }

  #finish(blob: BlobRecord): void {
    const actualDigest = `sha256:${this.#hash.digest('hex')}`;
    if (actualDigest !== blob.digest) this.wrong = { ...blob, found: actualDigest };
    else this.verified += blob.size;
    this.#hash = createHash('sha256');
    this.#done = 0;
    this.#index += 1;
  }
}

async function askSize(transport: Transport, request: ContentRequest): Promise<number> {
  const { headers } = await transport
    .send({ ...request, method: 'HEAD' })
    .catch((error: unknown) => explainRefusal(request, error));
  const size = Number(headers['content-length'] ?? Number.NaN);
  if (Number.isSafeInteger(size) && size > 0) return size;
  throw new PluginError('server-error', `${request.registry} did not send the size of the bundle`, {
    hint: 'Name a server of this program, or a bundle on a server that states its Content-Length.',
  });
}

async function hashFile(
  file: FileHandle,
  hash: { update(bytes: Buffer): unknown },
  size: number,
  context: Context,
): Promise<void> {
  const buffer = Buffer.allocUnsafe(1024 * 1024);
  for (let at = 0; at < size;) {
    checkInterrupted(context.signal);
    const { bytesRead } = await file.read(buffer, 0, Math.min(buffer.length, size - at), at);
    if (bytesRead === 0) return;
    hash.update(buffer.subarray(0, bytesRead));
    at += bytesRead;
  }
}
