import { request as plainRequest } from 'node:http';
import { request as secureRequest } from 'node:https';
import { isIndex, parseManifest, childrenOf } from '../../../lib/content/oci/descriptor.ts';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import type { TestContent } from './image.ts';

/** The access to the registry. */
export interface PushOptions {
  /** The CA of the registry, as PEM. */
  readonly ca?: string;
  /** Returns the Authorization header for a scope, or for several separated by spaces (`repository:a/b:pull,push`). */
  readonly authorization?: (scope: string) => string;
}

interface Answer {
  status: number;
  location: string | undefined;
  text: string;
}

type Send = (method: string, url: string, body?: Buffer, headers?: Record<string, string>) => Promise<Answer>;

/**
 * Pushes a release, or any test content, with its tags to a registry at `url` (`http://127.0.0.1:5000`). Holds one lazy
 * blob in memory for each of a few connections. Throws on the first unsuccessful response.
 */
export async function pushRelease(
  release: Pick<TestContent, 'content' | 'blobs'>,
  url: string,
  options: PushOptions = {},
): Promise<void> {
  const homes = new Map<string, string>();
  for (const [repository, { manifests, tags }] of release.content.repositories) {
    const scopes = [
      `repository:${repository}:pull,push`,
      ...[...new Set(homes.values())].map((home) => `repository:${home}:pull`),
    ];
    const authorization = options.authorization?.(scopes.join(' '));
    const send: Send = (method, path, body, headers = {}) =>
      exchange(method, new URL(path, url), body, { ...headers, ...(authorization && { authorization }) }, options.ca);
    const base = `${url}/v2/${repository}`;

    const digests = new Set<Digest>();
    for (const { bytes } of manifests.values()) {
      const manifest = parseManifest(bytes, repository);
      if (!isIndex(manifest)) for (const child of childrenOf(manifest)) digests.add(child.digest);
    }
    await inParallel(4, [...digests], async (digest) => {
      const home = homes.get(digest);
      homes.set(digest, home ?? repository);
      await pushBlob(send, base, digest, home, release);
    });

    // A registry accepts a manifest list only if it has the images in it.
    const inOrder = [...manifests].sort(([, a], [, b]) => Number(isIndex(a)) - Number(isIndex(b)));
    for (const [digest, { mediaType, bytes }] of inOrder) {
      const names = [digest, ...[...tags].filter(([, target]) => target === digest).map(([tag]) => tag)];
      for (const name of names) {
        await succeed(send('PUT', `${base}/manifests/${name}`, bytes, { 'content-type': mediaType }), 201, name);
      }
    }
  }
}

async function pushBlob(
  send: Send,
  base: string,
  digest: Digest,
  from: string | undefined,
  release: Pick<TestContent, 'blobs'>,
): Promise<void> {
  const mount = from === undefined ? '' : `?mount=${digest}&from=${encodeURIComponent(from)}`;
  const started = await send('POST', `${base}/blobs/uploads/${mount}`);
  if (started.status === 201) return;
  const blob = release.blobs.get(digest);
  if (started.status !== 202 || started.location === undefined || !blob) {
    throw new Error(`no upload of ${digest}: ${started.status} ${started.text}`);
  }
  const separator = started.location.includes('?') ? '&' : '?';
  const target = `${started.location}${separator}digest=${encodeURIComponent(digest)}`;
  await succeed(send('PUT', target, blob.read(), { 'content-type': 'application/octet-stream' }), 201, digest);
}

async function succeed(answer: Promise<Answer>, expected: number, what: string): Promise<void> {
  const { status, text } = await answer;
  if (status !== expected) throw new Error(`the registry answered ${status} to ${what}: ${text}`);
}

function exchange(
  method: string,
  url: URL,
  body: Buffer | undefined,
  headers: Record<string, string>,
  ca: string | undefined,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const open = url.protocol === 'https:' ? secureRequest : plainRequest;
    const sent = { ...headers, 'content-length': String(body?.length ?? 0) };
    const request = open(url, { method, headers: sent, ...(ca !== undefined && { ca }) }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => (text += chunk));
      response.on('error', reject);
      response.on('end', () => {
        resolve({ status: response.statusCode ?? 0, location: response.headers.location, text });
      });
    });
    request.on('error', reject);
    request.end(body);
  });
}

async function inParallel<Item>(width: number, items: Item[], work: (item: Item) => Promise<void>): Promise<void> {
  const worker = async (): Promise<void> => {
    for (let item = items.shift(); item !== undefined; item = items.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: width }, worker));
}
