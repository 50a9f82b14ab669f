import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Bundle, describeExtraImages, openRemoteTar } from '#bundle/open';
import type { ArchiveFile } from '#content/archive';
import { hashFile, openRegular } from '#content/files';
import { type Connections, formatUrl } from '#content/http';
import { hexOf, type Digest } from '#content/oci';
import type { ContentRequest, Transport } from '#content/registry';
import { checkInterrupted, type Context } from '#context';
import { PluginError } from '#errors';
import { OutlineHash, type BundleOutline } from '../contentCheck.ts';
import { type RemoteServer, Transfer, explainRefusal, requestFile } from './transfer.ts';

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
  source: RemoteServer & { readonly digest: Digest },
  folder: string,
  connections: Connections,
  context: Context,
): Promise<string> {
  const { digest } = source;
  const path = replicaPath(folder, digest);
  if (await stat(path).catch(() => undefined)) {
    await checkWholeDigest(path, digest, context);
    return path;
  }
  await using transfer = await Transfer.open({ kind: 'bundle', digest, isAnyTar: true, isNamed: true }, path, context);
  await transfer.receive(source, connections, context);
  return path;
}

/** Reads a file, and compares its digest. Throws `digest-mismatch` and the errors of reading. */
export async function checkWholeDigest(path: string, digest: Digest, context: Context): Promise<void> {
  await using file = await openRegular(path);
  compareDigest(path, await hashFile(file, path, context.signal), digest);
}

/**
 * Reads every byte of the tar of a bundle, and compares its digest: on a device, in volumes or in files. Throws
 * `digest-mismatch`, also if the bundle was opened from other bytes, `unsupported` for a directory, `interrupted`, and
 * the errors of reading.
 */
export async function checkBundleDigest(bundle: Bundle, digest: Digest, context: Context): Promise<void> {
  compareDigest(bundle.path, (await hashBundle(bundle, context)).digest, digest);
}

/**
 * Reads a bundle completely, and returns its digest and outline. `onRead` gets the number of bytes of each part. Throws
 * `unsupported` for a directory, and `interrupted`.
 */
export async function hashBundle(
  bundle: Bundle,
  { signal }: Context,
  onRead: (bytes: number) => void = () => undefined,
): Promise<{ readonly digest: Digest; readonly outline: BundleOutline }> {
  const outline = new OutlineHash(bundle);
  const digests =
    bundle.form === 'tar' &&
    (await bundle.scan((_, chunk) => {
      checkInterrupted(signal);
      outline.update(chunk);
      onRead(chunk.length);
    }));
  if (digests) return { digest: digests.digest, outline: outline.finish() };
  throw new PluginError('unsupported', `${bundle.path} is a directory, which has no digest`, {
    hint: 'Name the tar, or the device that it was written onto.',
  });
}

/** Reads the outline of a copy of a bundle that only this account can change. Undefined for a directory. */
export async function readOutline(bundle: Bundle): Promise<BundleOutline | undefined> {
  if (!bundle.chunks) return undefined;
  const outline = new OutlineHash(bundle);
  if (outline.headSize !== undefined)
    for await (const chunk of bundle.chunks(0, outline.headSize)) outline.update(chunk);
  return outline.finish();
}

/** Throws `digest-mismatch` unless a bundle has the expected digest. */
export function compareDigest(path: string, actualDigest: Digest, digest: Digest): void {
  if (actualDigest === digest) return;
  const message = `${path} is not the expected bundle: its digest is ${actualDigest}, not ${digest}`;
  const hint = 'Do not use it. Copy the bundle again.';
  throw new PluginError('digest-mismatch', message, { hint });
}

/** A bundle on another machine whose digest is unknown. */
interface RemoteSource extends RemoteServer {
  /** Whether its release may be unsigned. */
  readonly allowUnsigned: boolean;
}

/**
 * Opens a bundle on another machine, and reads only the parts that are used. Only the release signature can prove them,
 * so throws `unsigned` if it does not cover all images, or may be missing. Also throws `unsupported` if the server
 * ignores range requests, `invalid-bundle`, and what asking the server throws.
 */
export async function openRemoteBundle(
  { allowUnsigned, ...server }: RemoteSource,
  connections: Connections,
  context: Context,
): Promise<Bundle> {
  const { transport, request } = requestFile(server, 'the bundle', connections, context);
  const { total } = await readPart(transport, request, 0, 1).catch((error: unknown) => explainRefusal(request, error));
  const name = formatUrl(server.url);
  const bundle = await openRemoteTar(name, new RemoteFile(name, transport, request, total), context);
  const extra = describeExtraImages(bundle.metadata.extraImages);
  const words = extra === undefined ? allowUnsigned && 'may be unsigned' : `has ${extra}`;
  if (words === false) return bundle;
  throw new PluginError('unsigned', `${name} ${words}, so only its digest proves the content`, {
    hint: 'The digest is in the .sha256 file of the bundle. With it, all of the bundle is downloaded.',
    settings: ['digest'],
  });
}

/** A file on another machine. */
class RemoteFile implements ArchiveFile {
  readonly size: number;
  readonly #name: string;
  readonly #transport: Transport;
  readonly #request: ContentRequest;

  constructor(name: string, transport: Transport, request: ContentRequest, size: number) {
    this.#name = name;
    this.#transport = transport;
    this.#request = request;
    this.size = size;
  }

  async read(
    buffer: Buffer,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ bytesRead: number; buffer: Buffer }> {
    const size = Math.min(length, this.size - position);
    if (size <= 0) return { bytesRead: 0, buffer };
    const { bytes, total } = await readPart(this.#transport, this.#request, position, size);
    if (total !== this.size)
      throw new PluginError('size-mismatch', `${this.#name} has changed during this run`, {
        hint: 'Run the same command again.',
      });
    return { bytesRead: bytes.copy(buffer, offset), buffer };
  }

  pieces(): { path: string }[] {
    return [{ path: this.#name }];
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** Reads bytes of a file on another machine, and the size of the file. */
async function readPart(
  transport: Transport,
  request: ContentRequest,
  start: number,
  size: number,
): Promise<{ bytes: Buffer; total: number }> {
  const headers = { Range: `bytes=${start}-${start + size - 1}` };
  const { status, body, headers: answer } = await transport.send({ ...request, method: 'GET', headers, limit: size });
  const [, first, total] = /^bytes (\d+)-\d+\/(\d+)$/.exec(answer['content-range'] ?? '') ?? [];
  if (status === 206 && Number(first) === start) return { bytes: body, total: Number(total) };
  throw new PluginError('unsupported', `${request.registry} does not send parts of ${request.what}`, {
    hint: 'With the digest from the .sha256 file, all of the bundle is downloaded.',
    settings: ['digest'],
  });
}
