import { constants, closeSync, fstatSync, openSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { isPluginError, messageOf, PluginError } from '#errors';
import { isMissing } from './fileRange.ts';

/** The longest time without data from the writer of a pipe, in milliseconds. */
const pipeTimeout = 30_000;
const pipeInterval = 20;

/**
 * Reads a small file: a regular file, or a pipe with a writer, such as `<(…)` of a shell. Throws `not-found`,
 * `not-readable` and, above the limit (bytes), `too-large`. The messages begin with the path.
 */
export async function readSmallFile(path: string, limit: number): Promise<Buffer> {
  try {
    // Opening a pipe without a writer would block.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const stats = await file.stat();
    if (stats.isDirectory()) throw new PluginError('not-readable', `${path} is a folder`);
    if (!stats.isFile() && !stats.isFIFO()) throw new PluginError('not-readable', `${path} is not a regular file`);
    const bytes = await readWhole(file, path, limit);
    if (bytes.length === 0 && stats.isFIFO())
      throw new PluginError('not-readable', `${path} is a pipe without a writer`);
    return bytes;
  } catch (cause) {
    if (isPluginError(cause)) throw cause;
    if (isMissing(cause)) throw new PluginError('not-found', `${path} does not exist`, { cause });
    throw new PluginError('not-readable', `${path} cannot be read: ${messageOf(cause)}`, { cause });
  }
}

/** The largest PEM file in bytes. The CAs of a system have a quarter of a megabyte. */
const pemLimit = 16 * 1024 * 1024;

/**
 * Reads a PEM file with certificates or a key. Throws `not-readable` for each failure: for a request, `not-found` would
 * mean that its object is missing.
 */
export async function readPem(path: string): Promise<string> {
  try {
    return String(await readSmallFile(path, pemLimit));
  } catch (cause) {
    throw new PluginError('not-readable', `the PEM file ${messageOf(cause)}`, { cause });
  }
}

/** Reads the standard input to its end. Throws `too-large` above the limit (bytes). */
export async function readSmallInput(stdin: AsyncIterable<Buffer>, limit: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stdin) {
    size += chunk.length;
    if (size > limit) throw new PluginError('too-large', `the standard input has more than ${limit} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/**
 * Reads an open file. Throws `too-large` above the limit (bytes), and errors of the file system. `path` is for
 * messages.
 */
export async function readWhole(file: FileHandle, path: string, limit: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for (let length = 0; length <= limit;) {
    const chunk = await readChunk(file, Math.min(64 * 1024, limit + 1 - length), path);
    if (chunk.length === 0) return Buffer.concat(chunks);
    chunks.push(chunk);
    length += chunk.length;
  }
  throw new PluginError('too-large', `${path} exceeds the limit of ${limit} bytes`);
}

async function readChunk(file: FileHandle, size: number, path: string): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(size);
  for (let waited = 0; waited < pipeTimeout; waited += pipeInterval) {
    try {
      const { bytesRead } = await file.read(buffer, 0, size, null);
      return buffer.subarray(0, bytesRead);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
      await sleep(pipeInterval);
    }
  }
  throw new PluginError('not-readable', `${path} is a pipe, and sent no data for ${pipeTimeout / 1000} s`);
}

/** Decodes UTF-16 if its mark is there, because PowerShell writes it with `>`. Else UTF-8, without its mark. */
export function decodeText(bytes: Buffer): string {
  const encoding = bytes[0] === 0xfe && bytes[1] === 0xff ? 'utf-16be' : bytes[0] === 0xff ? 'utf-16le' : 'utf-8';
  return new TextDecoder(encoding).decode(bytes);
}

/** The permissions of every file that others may read. The umask can only remove some. */
export const publicMode = 0o644;

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/**
 * Opens a file of this program, such as a lock, a journal or an unfinished bundle, on a medium that another person may
 * have prepared. Follows no link, and does not wait for a pipe. `flags` are of `node:fs`; 0644 is the mode of a new
 * file. Throws `not-writable` with `name` if it is not a regular file, and the system’s errors.
 */
export async function openRegular(path: string, flags: number = O_RDONLY, name = path): Promise<FileHandle> {
  const file = await open(path, flags | O_NOFOLLOW | O_NONBLOCK, publicMode).catch((error: unknown) => {
    throw explain(error, name);
  });
  const isFile = await file.stat().then(
    (stats) => stats.isFile(),
    () => false,
  );
  if (isFile) return file;
  await file.close();
  throw irregular(name);
}

/** Does the same synchronously, and returns the file descriptor. */
export function openRegularSync(path: string, flags: number): number {
  let fd: number;
  try {
    fd = openSync(path, flags | O_NOFOLLOW | O_NONBLOCK, publicMode);
  } catch (error) {
    throw explain(error, path);
  }
  if (fstatSync(fd).isFile()) return fd;
  closeSync(fd);
  throw irregular(path);
}

/** Explains the errors of links (ELOOP), and of sockets and pipes without a reader (ENXIO). */
function explain(error: unknown, path: string): unknown {
  const { code = '' } = error as NodeJS.ErrnoException;
  return code === 'ELOOP' || code === 'ENXIO' ? irregular(path, error) : error;
}

function irregular(path: string, cause?: unknown): PluginError {
  return new PluginError('not-writable', `${path} is a link, a pipe or another special file`, {
    hint: 'This program did not make it. Check the folder, remove it, and run the same command again.',
    cause,
  });
}
