import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { checkInterrupted, type Context } from '../../context.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import { hexOf, type Digest } from '../../oci/digest.ts';
import type { Connections } from '../../http/connections.ts';
import { isConnectionLost, printable } from '../../http/networkErrors.ts';
import { explainStatus, RetryBudget, TransientError, type RetryOptions } from '../../http/retry.ts';
import { readSmallFile } from '../../files/smallFile.ts';

/** Gets a small file by http(s): its bytes, or undefined where the server has none. Throws `too-large` above the limit (bytes). */
export type FetchFile = (url: URL, limit: number) => Promise<Buffer | undefined>;

/** What a signature store answered. */
export interface StoreAnswer {
  /** The store's address, without credentials. */
  readonly store: string;
  readonly signatures: readonly Buffer[];
  /** What kept the store from answering completely. */
  readonly problem?: PluginError;
}

/** No release signature may be larger than this many bytes (the cluster's own limit). */
export const signatureSizeLimit = 50 * 1024;

// The cluster looks for as many, library-go's maxSignatureSearch.
const searchLimit = 10;
const redirectLimit = 5;
const timeout = 30_000;
// What is larger than a signature, such as an update graph, gets as much more time as a slow line needs: 64 KiB a second.
const slowest = 64;
// Several stores have the same signatures: what one cannot give soon, another may.
const shortPatience: RetryOptions = { attempts: 4, baseDelay: 500, longestWait: 10_000 };

/**
 * Asks every store for the signatures of a release: `<store>/sha256=<hex>/signature-1`, `-2` and so on until there is no more.
 * A store is an http(s) or file URL, or the path of a folder. The answers are in the order of the stores; one that fails
 * does not keep the others from being asked. Throws `usage` for an address of another kind, and `interrupted`.
 */
export async function findSignatures(
  digest: Digest,
  stores: readonly string[],
  fetchFile: FetchFile,
  context: Context,
): Promise<StoreAnswer[]> {
  const readers = stores.map((store) => openStore(store, fetchFile));
  return Promise.all(readers.map((reader) => askStore(reader, digest, context)));
}

/**
 * Gets a small file over the project's connections, through proxies and up to five redirects, in at most thirty seconds, or
 * longer where the limit (bytes) is a large one. A server in passing trouble is asked again; one that cannot be reached is not, since a
 * site may have no network. Sends no credentials. Throws `unreachable`, `server-error`, `rate-limited`, `too-large` and `interrupted`.
 */
export async function fetchFile(
  connections: Connections,
  url: URL,
  limit: number,
  context: Context,
  patienceOptions: RetryOptions = shortPatience,
): Promise<Buffer | undefined> {
  const signal = AbortSignal.any([context.signal, AbortSignal.timeout(Math.max(timeout, Math.ceil(limit / slowest)))]);
  const patience = new RetryBudget(patienceOptions, { ...context, signal });
  for (;;) {
    try {
      return await fetchOnce(connections, url, limit, signal);
    } catch (error) {
      checkInterrupted(context.signal);
      if (signal.aborted || !mayPass(error)) throw error;
      try {
        await patience.waitAfter(error);
      } catch (final) {
        checkInterrupted(context.signal);
        // The time is over: what the server said last tells more than that.
        throw isPluginError(final, 'interrupted') ? error : final;
      }
    }
  }
}

function mayPass(error: unknown): boolean {
  return error instanceof TransientError || isConnectionLost(error);
}

async function fetchOnce(
  connections: Connections,
  url: URL,
  limit: number,
  signal: AbortSignal,
): Promise<Buffer | undefined> {
  let target = url;
  try {
    for (let redirects = 0; redirects <= redirectLimit; redirects++) {
      const headers = { accept: '*/*', 'accept-encoding': 'identity' };
      const {
        status,
        headers: answer,
        body,
      } = await connections.exchange({ method: 'GET', url: target, headers, signal });
      if (status === 200) return await readBody(body, limit, target);
      body.destroy();
      if (status === 404 || status === 410) return undefined;
      if (status < 300 || status >= 400 || answer.location === undefined) {
        throw explainStatus({ status, headers: answer }, `${printable(target)} answered with status ${status}`);
      }
      target = new URL(answer.location, target);
      if (!isHttp(target)) break;
    }
  } catch (cause) {
    if (signal.aborted) throw new PluginError('unreachable', `${target.host} did not answer in time`, { cause });
    throw cause;
  }
  throw new PluginError('server-error', `${printable(url)} redirects too often, or to where it should not`);
}

interface StoreReader {
  readonly store: string;
  /** Makes sure that there is a store. */
  readonly check: () => Promise<void>;
  readonly read: (name: string) => Promise<Buffer | undefined>;
}

function openStore(store: string, fetchFile: FetchFile): StoreReader {
  const url = /^[a-z][a-z0-9+.-]+:/i.test(store) && URL.canParse(store) ? new URL(store) : undefined;
  if (url && isHttp(url)) {
    const base = url.pathname.replace(/(?<!\/)\/+$/, '');
    const read = (name: string): Promise<Buffer | undefined> => {
      const file = new URL(url);
      file.pathname = `${base}/${name}`;
      return fetchFile(file, signatureSizeLimit);
    };
    return { store: printable(url), check: () => Promise.resolve(), read };
  }
  if (url && url.protocol !== 'file:') {
    throw new PluginError('usage', `“${url.protocol}” is not the kind of a signature store`, {
      hint: 'A signature store is an http, https or file URL, or the path of a folder.',
    });
  }
  const folder = url ? fileURLToPath(url) : resolve(store);
  return { store: folder, check: () => checkFolder(folder), read: (name) => readSignature(resolve(folder, name)) };
}

async function askStore(reader: StoreReader, digest: Digest, context: Context): Promise<StoreAnswer> {
  const signatures: Buffer[] = [];
  let problem: PluginError | undefined;
  for (let number = 1; number <= searchLimit; number++) {
    checkInterrupted(context.signal);
    try {
      if (number === 1) await reader.check();
      const signature = await reader.read(`sha256=${hexOf(digest)}/signature-${number}`);
      if (!signature) break;
      signatures.push(signature);
    } catch (error) {
      if (!isPluginError(error) || error.code === 'interrupted') throw error;
      problem ??= error;
      // One that is too large says nothing about the next one; a server that fails would fail again, slowly.
      if (error.code !== 'too-large') break;
    }
  }
  return { store: reader.store, signatures, ...(problem && { problem }) };
}

async function readBody(body: AsyncIterable<Buffer>, limit: number, url: URL): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > limit) throw tooLarge(printable(url), limit);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

async function checkFolder(folder: string): Promise<void> {
  const found = await stat(folder).catch(() => undefined);
  if (!found?.isDirectory()) throw new PluginError('not-readable', `there is no folder ${folder}`);
}

async function readSignature(path: string): Promise<Buffer | undefined> {
  try {
    return await readSmallFile(path, signatureSizeLimit);
  } catch (error) {
    if (isPluginError(error, 'not-found')) return undefined;
    throw error;
  }
}

function isHttp(url: URL): boolean {
  return url.protocol === 'http:' || url.protocol === 'https:';
}

function tooLarge(where: string, limit: number): PluginError {
  return new PluginError('too-large', `${where} is larger than the ${limit} bytes that it may have`);
}
