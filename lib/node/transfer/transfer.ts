import { constants, writeSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { dirname, basename } from 'node:path';
import type { BlobRecord } from '#bundle/metadata';
import { servedTar } from '#bundle/serve';
import {
  renameDurably,
  checkSpace,
  describeWriteError,
  makeFolders,
  readChunks,
  takeLock,
  openRegular,
} from '#content/files';
import type { Connections, RetryOptions } from '#content/http';
import { sumSizes, type Digest } from '#content/oci';
import { type ContentRequest, Transport } from '#content/registry';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import {
  checkSequence,
  checkTar,
  checkWhole,
  largestStart,
  readStatedSize,
  type BundleOutline,
  type ContentCheck,
} from '../contentCheck.ts';

/** A bundle, or the base blobs of a delta bundle, that is on other machines. */
export type WantedContent =
  | {
      readonly kind: 'bundle';
      readonly digest: Digest;
      /** What a verified record says about the bundle. Without it, the first sender states the size. */
      readonly outline?: BundleOutline | undefined;
      /** Also take a tar that another program packed. Only its whole digest proves it. */
      readonly isAnyTar?: boolean;
      /** The user named the sender, so a lost connection does not make its bytes doubtful. */
      readonly isNamed?: boolean;
    }
  | {
      readonly kind: 'base';
      /** The digest of the delta bundle. */
      readonly digest: Digest;
      readonly blobs: readonly BlobRecord[];
    };

/** What to leave free on the disk, and the closed transfer of an earlier try, whose checks are not repeated. */
interface TransferOptions {
  /** Bytes that must stay free. */
  readonly floor?: number | undefined;
  readonly earlier?: Transfer | undefined;
}

/** An unfinished file, which several machines may send in turn. A lock keeps other processes from it. */
export class Transfer implements AsyncDisposable {
  readonly #wanted: WantedContent;
  readonly #path: string;
  readonly #lock: AsyncDisposable;
  readonly #file: FileHandle;
  readonly #floor: number;
  #size: number | undefined;
  #check: ContentCheck | undefined;
  /** Identifies the state of the file for which the checks are valid. */
  #fingerprint = '';

  private constructor(wanted: WantedContent, path: string, lock: AsyncDisposable, file: FileHandle, floor: number) {
    this.#wanted = wanted;
    this.#path = path;
    this.#lock = lock;
    this.#file = file;
    this.#floor = floor;
    this.#size = wanted.kind === 'base' ? sumSizes(wanted.blobs) : wanted.outline?.size;
  }

  /**
   * Opens the unfinished file of `path`, and checks the content of an earlier run. Wrong content is removed. Throws
   * `busy`, `disk-full`, `not-writable`, `not-readable` and `interrupted`.
   */
  static async open(
    wanted: WantedContent,
    path: string,
    context: Context,
    { floor = 0, earlier }: TransferOptions = {},
  ): Promise<Transfer> {
    const folder = dirname(path);
    const partial = `${path}.partial`;
    try {
      await makeFolders(folder);
    } catch (error) {
      throw describeWriteError(error, folder);
    }
    const lock = await takeLock(`${path}.lock`, path);
    let file: FileHandle | undefined;
    try {
      // The existing file may be a link or a pipe that another account created.
      const { O_RDWR, O_APPEND, O_CREAT } = constants;
      file = await openRegular(partial, O_RDWR | O_APPEND | O_CREAT);
      const transfer = new Transfer(wanted, path, lock, file, floor);
      await transfer.#resume(earlier, context);
      return transfer;
    } catch (error) {
      await file?.close();
      await lock[Symbol.asyncDispose]();
      throw describeWriteError(error, partial);
    }
  }

  /** Whether there are bytes that only agree with what a sender claimed. */
  get hasClaims(): boolean {
    return this.isClaimed && (this.#check?.position ?? 0) > 0;
  }

  /** Whether only a sender states the size. */
  get isClaimed(): boolean {
    return this.#wanted.kind === 'bundle' && !this.#wanted.outline;
  }

  /**
   * Receives the missing bytes from a machine, and gives the file its name. After a failure, only bytes stay that are
   * proven, or that agree with the claim of the first sender. Throws `digest-mismatch` and `size-mismatch` if the
   * sender is wrong, `disk-full`, `not-writable`, `interrupted`, and what asking it throws.
   */
  async receive(server: RemoteServer, connections: Connections, context: Context): Promise<void> {
    const { transport, request } = requestFile(server, describeWanted(this.#wanted), connections, context);
    try {
      const size = (this.#size ??= await askSize(transport, request));
      const check = (this.#check ??= await this.#checkFile(size, context));
      await checkSpace(this.#partial, size - check.position, this.#floor);
      context.onEvent({ kind: 'plan', images: 0, blobs: 1, bytes: size, present: check.position });
      while (!check.isComplete) await this.#download(check, { transport, request, size }, context);
      await this.#file.sync();
      await renameDurably(this.#partial, this.#path);
    } catch (error) {
      if (this.#isDoubtful(context.signal)) await this.#dropUnproven();
      throw describeWriteError(error, this.#partial);
    }
  }

  /** Removes all bytes. */
  async clear(): Promise<void> {
    await this.#file.truncate(0);
    this.#check = undefined;
    if (this.isClaimed) this.#size = undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#fingerprint = this.#check ? await this.#identify() : '';
    await this.#file.close();
    await this.#lock[Symbol.asyncDispose]();
  }

  get #partial(): string {
    return `${this.#path}.partial`;
  }

  async #identify(): Promise<string> {
    const { ino, size, mtimeMs } = await this.#file.stat();
    return JSON.stringify([this.#wanted, this.#path, ino, size, mtimeMs]);
  }

  /** Checks the bytes of an earlier run, unless the size of the whole is unknown. */
  async #resume(earlier: Transfer | undefined, context: Context): Promise<void> {
    if (earlier && (await this.#identify()) === earlier.#fingerprint) {
      this.#size = earlier.#size;
      this.#check = earlier.#check;
    }
    if (this.#check || (await this.#file.stat()).size === 0) return;
    this.#size ??= await this.#readStatedSize();
    const isAnyTar = this.#wanted.kind === 'bundle' && this.#wanted.isAnyTar;
    if (this.#size !== undefined) this.#check = await this.#checkFile(this.#size, context);
    else if (!isAnyTar) await this.clear();
  }

  /** Reads the size that the metadata.json of an earlier run states. It is a claim of the sender. */
  async #readStatedSize(): Promise<number | undefined> {
    const { buffer, bytesRead } = await this.#file.read(Buffer.alloc(largestStart), 0, largestStart, 0);
    return readStatedSize(buffer.subarray(0, bytesRead));
  }

  /** Checks the bytes of the file, and removes those after the first wrong part. */
  async #checkFile(size: number, context: Context): Promise<ContentCheck> {
    const present = (await this.#file.stat()).size;
    const check = this.#startCheck(size);
    for await (const chunk of readChunks(this.#file, this.#partial, 0, present, context.signal)) {
      check.update(chunk);
      if (check.wrong === undefined) continue;
      await this.#restart(check, context);
      break;
    }
    return check;
  }

  #startCheck(size: number): ContentCheck {
    if (this.#wanted.kind === 'base') return checkSequence(this.#wanted.blobs);
    const { digest, outline, isAnyTar } = this.#wanted;
    return outline && !outline.head
      ? checkWhole(digest, size)
      : checkTar(digest, size, { head: outline?.head, isAnyTar });
  }

  async #download(
    check: ContentCheck,
    { transport, request, size }: { transport: Transport; request: ContentRequest; size: number },
    context: Context,
  ): Promise<void> {
    const start = check.position;
    try {
      await transport.download(request, size, start, (chunk) => {
        // The chunk is valid during this call only.
        for (let done = 0; done < chunk.length;) done += writeSync(this.#file.fd, chunk, done);
        check.update(chunk);
        if (check.wrong !== undefined) throw wrongContent(request, check.wrong);
        context.onEvent({ kind: 'bytes', digest: this.#wanted.digest, bytes: chunk.length });
      });
      check.end();
      if (check.wrong !== undefined) throw wrongContent(request, check.wrong);
    } catch (error) {
      // A part that began in an earlier run is no fault of this sender.
      if (check.wrong === undefined || check.verified >= start) throw error;
      await this.#restart(check, context);
    }
  }

  async #restart(check: ContentCheck, context: Context): Promise<void> {
    check.rewind();
    await this.#file.truncate(check.verified);
    const message =
      `${this.#partial} of an earlier run is not part of ${describeWanted(this.#wanted)}: downloading it from ` +
      `byte ${check.verified} on`;
    context.log('warn', message);
  }

  /** Returns whether unproven bytes may be wrong after a failure: not if the run was interrupted. */
  #isDoubtful({ aborted, reason }: AbortSignal): boolean {
    if (this.#check?.wrong !== undefined) return true;
    const isNamed = this.#wanted.kind === 'bundle' && this.#wanted.isNamed;
    return !isNamed && (!aborted || isPluginError(reason));
  }

  async #dropUnproven(): Promise<void> {
    this.#check?.rewind();
    const verified = this.#check?.verified ?? 0;
    if (verified === 0) await this.clear();
    else await this.#file.truncate(verified);
  }
}

function describeWanted({ kind }: WantedContent): string {
  return kind === 'bundle' ? 'the bundle' : 'the base of the bundle';
}

function wrongContent({ registry, what }: ContentRequest, why: string): PluginError {
  const hint = 'Compare the digest with the .sha256 file of the bundle, or ask another machine for it.';
  return new PluginError('digest-mismatch', `${registry} has other content for ${what}: ${why}`, { hint });
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

/** A server of a bundle. */
export interface RemoteServer {
  /** The URL of a `serve`, or of a file on another server. */
  readonly url: URL;
  /** The token of the server. */
  readonly token: string | undefined;
  /** The retries; by default those of the registry client. */
  readonly retry?: RetryOptions;
}

/** Returns the request for a file of a server, and the transport for it. `what` is its name for messages. */
export function requestFile(
  { url, token, retry }: RemoteServer,
  what: string,
  connections: Connections,
  context: Context,
): { transport: Transport; request: ContentRequest } {
  const target = new URL(url);
  if (target.pathname === '/') target.pathname = servedTar;
  const authorization = token === undefined ? undefined : `Bearer ${token}`;
  const authorizer = { authorize: () => Promise.resolve(authorization) };
  // The content is proven by its digest, also over plain HTTP.
  const transport = new Transport(connections, authorizer, context, { ...retry, insecure: true });
  const repository = basename(target.pathname);
  return { transport, request: { registry: target.host, repository, what, target, actions: 'pull' } };
}

/** Throws the error of the first request to a server. A missing token gets a hint of its own. */
export function explainRefusal({ registry }: ContentRequest, error: unknown): never {
  if (!isPluginError(error, 'unauthorized')) throw error;
  throw new PluginError('unauthorized', `${registry} requires a token for the bundle`, {
    hint: 'Name the file with the token of the server.',
    settings: ['tokenFile'],
    cause: error,
  });
}
