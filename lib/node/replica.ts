import { createHash, type Hash } from 'node:crypto';
import { open, stat, type FileHandle } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { constants, writeSync } from 'node:fs';
import type { Bundle } from '../bundle/bundle.ts';
import { servedTar } from '../bundle/deliver/serve.ts';
import { checkInterrupted, type Context } from '../context.ts';
import { isPluginError, PluginError } from '../errors.ts';
import { hexOf, type Digest } from '../oci/digest.ts';
import type { Connections } from '../http/connections.ts';
import { renameDurably } from '../files/atomicWrite.ts';
import { checkSpace, describeWriteError, makeFolders } from '../files/disk.ts';
import { takeLock } from '../files/lock.ts';
import type { RetryOptions } from '../http/retry.ts';
import type { Authorizer } from '../registry/auth/tokens.ts';
import { Transport } from '../registry/transport.ts';

/** A bundle on another machine. */
export interface ReplicaSource {
  /** The URL of a `serve`, or of the tar on a server that supports range requests. */
  readonly url: URL;
  /** The token of the server. */
  readonly token: string | undefined;
  /** The digest of the whole tar. With it, the sender need not be trusted. */
  readonly digest: Digest;
  /** The retries; by default those of the registry client. */
  readonly patience?: RetryOptions;
}

/** Returns the path of the copy of a bundle in a folder. */
export function replicaPath(folder: string, digest: Digest): string {
  return join(folder, `bundle-${hexOf(digest).slice(0, 12)}.tar`);
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
  try {
    await makeFolders(folder);
  } catch (error) {
    throw describeWriteError(error, folder);
  }
  const unlock = await takeLock(`${path}.lock`, path);
  try {
    await download(source, path, connections, context);
  } finally {
    await unlock();
  }
  return path;
}

/** Reads a file, and compares its digest. Throws `digest-mismatch` and the errors of reading. */
export async function checkWholeDigest(path: string, digest: Digest, context: Context): Promise<void> {
  await using file = await open(path, 'r');
  const hash = createHash('sha256');
  await hashFile(file, hash, Infinity, context);
  compare(path, hash, digest);
}

/**
 * Reads the tar of a bundle, and compares its digest: on a device, in volumes or in a file. Throws `digest-mismatch`,
 * `unsupported` for a directory, `interrupted`, and the errors of reading.
 */
export async function checkBundleDigest(bundle: Bundle, digest: Digest, context: Context): Promise<void> {
  const { path, size, chunks } = bundle;
  if (!chunks) {
    throw new PluginError('unsupported', `${path} is a directory, which has no digest`, {
      hint: 'Name the tar, or the device that it was written onto.',
    });
  }
  const hash = createHash('sha256');
  for await (const chunk of chunks(0, size)) {
    checkInterrupted(context.signal);
    hash.update(chunk);
  }
  compare(path, hash, digest);
}

function compare(path: string, hash: Hash, digest: Digest): void {
  const found = `sha256:${hash.digest('hex')}`;
  if (found === digest) return;
  throw new PluginError(
    'digest-mismatch',
    `${path} is not the expected bundle: its digest is ${found}, not ${digest}`,
    { hint: 'Do not use it. Copy the bundle again.' },
  );
}

async function download(
  { url, token, digest, patience }: ReplicaSource,
  path: string,
  connections: Connections,
  context: Context,
): Promise<void> {
  const target = new URL(url);
  if (target.pathname === '/') target.pathname = servedTar;
  const authorization = token === undefined ? undefined : `Bearer ${token}`;
  const authorizer: Authorizer = { authorize: () => Promise.resolve(authorization) };
  // The digest proves the content, also over plain HTTP.
  const transport = new Transport(connections, authorizer, context, { ...patience, insecure: true });
  const request = {
    registry: target.host,
    repository: basename(target.pathname),
    what: 'the bundle',
    target,
    actions: 'pull' as const,
  };
  const size = await askSize(transport, request);
  const partial = `${path}.partial`;
  try {
    // The existing file may be a link that another account created.
    const { O_RDWR, O_APPEND, O_CREAT, O_NOFOLLOW } = constants;
    await using file = await open(partial, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW);
    let start = (await file.stat()).size;
    if (start > size) await file.truncate((start = 0));
    context.onEvent({ kind: 'plan', images: 0, blobs: 1, bytes: size, present: start });
    await checkSpace(partial, size - start);
    for (;;) {
      const hash = createHash('sha256');
      await hashFile(file, hash, start, context);
      await transport.download(request, size, start, (chunk) => {
        // The chunk is valid during this call only.
        for (let done = 0; done < chunk.length;) done += writeSync(file.fd, chunk, done);
        hash.update(chunk);
        context.onEvent({ kind: 'bytes', digest, bytes: chunk.length });
      });
      const found = `sha256:${hash.digest('hex')}`;
      if (found === digest) break;
      // A corrupt part cannot be resumed.
      await file.truncate(0);
      if (start === 0) throw wrongBundle(target, size, found, digest);
      context.log('warn', `${partial} of an earlier run is not part of that bundle: downloading all of it`);
      start = 0;
    }
    await file.sync();
    await renameDurably(partial, path);
  } catch (error) {
    throw describeWriteError(error, partial);
  }
}

function wrongBundle(url: URL, size: number, found: string, digest: Digest): PluginError {
  return new PluginError(
    'digest-mismatch',
    `${url.host} has another bundle: the digest of its ${size} bytes is ${found}, not ${digest}`,
    { hint: 'Compare the digest with the .sha256 file of the bundle, or ask another machine for it.' },
  );
}

type Request = Parameters<Transport['download']>[0];

async function askSize(transport: Transport, request: Request): Promise<number> {
  const { headers } = await transport.send({ ...request, method: 'HEAD' }).catch((error: unknown) => {
    if (!isPluginError(error, 'unauthorized')) throw error;
    throw new PluginError('unauthorized', `${request.registry} requires a token for the bundle`, {
      hint: 'Name the file with the token of the server.',
      settings: ['tokenFile'],
      cause: error,
    });
  });
  const size = Number(headers['content-length'] ?? Number.NaN);
  if (Number.isSafeInteger(size) && size > 0) return size;
  throw new PluginError('server-error', `${request.registry} does not say how large the bundle is`, {
    hint: 'Name a server of this program, or a bundle on a server that states its Content-Length.',
  });
}

async function hashFile(file: FileHandle, hash: Hash, size: number, context: Context): Promise<void> {
  const buffer = Buffer.allocUnsafe(1024 * 1024);
  for (let at = 0; at < size;) {
    checkInterrupted(context.signal);
    const { bytesRead } = await file.read(buffer, 0, Math.min(buffer.length, size - at), at);
    if (bytesRead === 0) return;
    hash.update(buffer.subarray(0, bytesRead));
    at += bytesRead;
  }
}
