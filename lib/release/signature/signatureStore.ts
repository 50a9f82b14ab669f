import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readSmallFile } from '#content/files';
import { isHttp, type FetchFile, formatUrl } from '#content/http';
import { hexOf, type Digest } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { asFailure, ignoring, PluginError } from '#errors';

/** The signatures that a store has for a digest, in the order of their numbers. */
export interface StoreAnswer {
  /** The URL of the store, without credentials. */
  readonly store: string;
  readonly signatures: readonly Buffer[];
  /** The error that ended the search in the store. */
  readonly problem?: PluginError;
}

/** The largest release signature in bytes (the limit of clusters). */
export const signatureSizeLimit = 50 * 1024;

// The limit of clusters: library-go's maxSignatureSearch.
const searchLimit = 10;

/**
 * Asks every store for the signatures of a release: `<store>/sha256=<hex>/signature-1`, `-2` and so on, until one is
 * missing. A store is an http(s) or file URL, or the path of a folder. Returns the answers in the order of the stores.
 * A failing store does not stop the others. Throws `usage` for an address of another kind, and `interrupted`.
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

interface StoreReader {
  readonly store: string;
  /** Checks that the store exists. */
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
    return { store: formatUrl(url), check: () => Promise.resolve(), read };
  }
  if (url && url.protocol !== 'file:') {
    throw new PluginError('usage', `“${url.protocol}” is not the protocol of a signature store`, {
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
      const failure = asFailure(error);
      problem ??= failure;
      // A signature that is too large says nothing about the next one. A failing server would fail
      // again, slowly.
      if (failure.code !== 'too-large') break;
    }
  }
  return { store: reader.store, signatures, problem };
}

async function checkFolder(folder: string): Promise<void> {
  const stats = await stat(folder).catch(() => undefined);
  if (!stats?.isDirectory()) throw new PluginError('not-readable', `the folder ${folder} does not exist`);
}

async function readSignature(path: string): Promise<Buffer | undefined> {
  return readSmallFile(path, signatureSizeLimit).catch(ignoring('not-found'));
}
