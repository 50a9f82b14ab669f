import { Readable } from 'node:stream';
import type { Context } from '#context';
import { ignoreFailure, ignoring, isPluginError, PluginError } from '#errors';
import { TransientError } from '../http/retry.ts';
import { isManifest, manifestSizeLimit, mediaTypes, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import { digestOf, isDigest, type Digest, type Reference } from '../oci/reference.ts';
import { readContent, verifyStream, type ContentStore } from '../store/store.ts';
import type { RegistryRequest } from './authenticatedClient.ts';
import { quoteBody, type Reply } from './refusals.ts';
import { type ReferrersApi, readTags } from './tags.ts';
import type { ContentRequest, Transport } from './transport.ts';
import { BlobUpload, smallUpload, type UploadOptions } from './upload.ts';

const accepted = Object.values(mediaTypes).join(', ');

/** What registries without HEAD answer. */
const headlessStatuses = [405, 501];

/** Statuses for missing content, also from registries without HEAD, because another push does no harm. */
const absentStatuses = [404, ...headlessStatuses];

/** The codes of errors for a request that a registry refuses. */
const refusals = ['server-error', 'denied', 'unsupported', 'invalid-manifest'] as const;

/** The size of the cache of manifests that were read or pushed, in bytes. */
const manifestCacheSize = 8 * 1024 * 1024;

/** Options of a repository. Without `referrersApi`, referrers are read by their tag. */
interface RegistryOptions extends UploadOptions {
  readonly referrersApi?: ReferrersApi;
}

/** A repository in a registry (distribution-spec, version 2). The caller closes the transport and its connections. */
export class Registry implements ContentStore {
  readonly name: string;
  /** Up to this size in bytes, pushing a blob costs no more than asking for it. */
  readonly unaskedSize = smallUpload;
  readonly #repository: Pick<Reference, 'registry' | 'repository'>;
  readonly #transport: Transport;
  readonly #context: Context;
  readonly #options: RegistryOptions;
  readonly #manifests = new Map<Digest, Buffer>();
  /** The bytes of all of them. */
  #manifestsSize = 0;
  /** The repositories from which the registry has refused to mount. */
  readonly #unmountable = new Set<string>();

  constructor(
    { registry, repository }: Pick<Reference, 'registry' | 'repository'>,
    transport: Transport,
    context: Context,
    options: RegistryOptions = {},
  ) {
    this.name = `${registry}/${repository}`;
    this.#repository = { registry, repository };
    this.#transport = transport;
    this.#context = context;
    this.#options = options;
  }

  /**
   * Implements ContentSource. Throws `invalid-manifest` for an image of Docker’s schema 1, and `too-large` above 4 MiB.
   * Caches the manifest for the fetch that usually follows, which saves one request for each image.
   */
  async resolve(tagOrDigest: string): Promise<Descriptor> {
    const reply = await this.#send('GET', manifestRequest(tagOrDigest), { limit: manifestSizeLimit + 1 });
    this.#checkManifest(reply, tagOrDigest);
    const digest = digestOf(reply.body);
    const where = `${this.name}: manifest ${tagOrDigest}`;
    const stated = isDigest(tagOrDigest) ? tagOrDigest : (reply.headers['docker-content-digest'] ?? digest);
    if (digest !== stated) {
      throw new PluginError('digest-mismatch', `${where} is corrupt (its digest is ${digest}, not ${String(stated)})`);
    }
    this.#keep(digest, reply.body);
    const named = mediaTypeOf(reply);
    const mediaType = isManifest({ mediaType: named }) ? named : parseManifest(reply.body, where).mediaType;
    return { mediaType, digest, size: reply.body.length };
  }

  async fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    const kept = this.#manifests.get(descriptor.digest);
    const stream = kept
      ? Readable.from([kept.subarray(start)], { objectMode: false })
      : await this.#transport.open(this.#contentRequest(descriptor), descriptor.size, start);
    return verifyStream(stream, descriptor, this.name, start);
  }

  /** Returns content as a stream, which the caller verifies. Throws `not-found`. */
  async open(descriptor: Descriptor): Promise<Readable> {
    return this.#transport.open(this.#contentRequest(descriptor), descriptor.size);
  }

  /**
   * Passes the bytes from `start` to `receive`, synchronously, in order, each once. The caller verifies them. A chunk
   * is valid only during the call. Throws `not-found`, `size-mismatch`, and the errors of `receive`.
   */
  async download(descriptor: Descriptor, start: number, receive: (chunk: Buffer) => void): Promise<void> {
    await this.#transport.download(this.#contentRequest(descriptor), descriptor.size, start, receive);
  }

  async exists(descriptor: Descriptor): Promise<boolean> {
    const head = (actions: RegistryRequest['actions']): Promise<Reply> =>
      this.#send('HEAD', { ...targetOf(descriptor), actions }, { accept: absentStatuses });
    const reply = await head('pull').catch((error: unknown) => {
      // Only users who may create a repository can read one that does not exist yet.
      if (isPluginError(error, 'unauthorized') || isPluginError(error, 'denied')) return head('pull,push');
      throw error;
    });
    if (headlessStatuses.includes(reply.status) && isManifest(descriptor))
      return (await this.resolve(descriptor.digest).catch(ignoring('not-found'))) !== undefined;
    if (reply.status >= 300) return false;
    const size = reply.headers['content-length'];
    return size === undefined || Number(size) === descriptor.size || (await this.#hasBytes(descriptor));
  }

  async tags(): Promise<string[]> {
    return await readTags(this.#transport, this.#repository);
  }

  async knownTags(pages: number): Promise<ReadonlySet<string> | undefined> {
    try {
      return new Set(await readTags(this.#transport, this.#repository, { pages, isOptional: true }));
    } catch (error) {
      if (isPluginError(error) && error.code !== 'interrupted') return undefined;
      throw error;
    }
  }

  async referrers(subject: Digest): Promise<readonly Descriptor[] | undefined> {
    return this.#options.referrersApi?.list(this.#repository, subject);
  }

  async push(descriptor: Descriptor, open: () => Promise<Readable>): Promise<void> {
    if (!isManifest(descriptor)) {
      await new BlobUpload(this.#transport, this.#repository, this.#context, descriptor, open, this.#options).run();
      return;
    }
    const fetch = async (): Promise<Readable> => verifyStream(await open(), descriptor, this.name);
    const bytes = await readContent({ name: this.name, fetch }, descriptor);
    await this.#put(descriptor, descriptor.digest, bytes);
    this.#keep(descriptor.digest, bytes);
  }

  async tag(descriptor: Descriptor, tag: string): Promise<void> {
    const pushed = this.#manifests.get(descriptor.digest);
    // Existing content may already have its tag, and some registries refuse to push a tag twice.
    if (!pushed && (await this.#isTagged(descriptor, tag))) return;
    await this.pushTagged(descriptor, pushed ?? (await readContent(this, descriptor)), tag);
  }

  /** Pushes a manifest with a tag. Throws `conflict` if another manifest keeps the tag. */
  async pushTagged(descriptor: Descriptor, bytes: Buffer, tag: string): Promise<void> {
    try {
      await this.#put(descriptor, tag, bytes);
      this.#keep(descriptor.digest, bytes);
    } catch (error) {
      // Tags that cannot change are refused also if they are right already (Amazon ECR, Harbor).
      if (error instanceof TransientError || !refusals.some((code) => isPluginError(error, code))) throw error;
      const present = await this.#readTag(tag).catch(ignoreFailure);
      if (present === undefined) throw error;
      if (present === descriptor.digest) return;
      const message = `${this.name} keeps ${tag} as it is: it has ${present}, and ${descriptor.digest} is to get this tag`;
      const hint = 'Tags of the repository may be immutable. Remove the tag there, or mirror to another repository.';
      throw new PluginError('conflict', message, { hint, cause: error });
    }
  }

  /**
   * Mounts a blob from another repository of the registry. Returns false if the blob is missing there, or if the
   * registry does not mount. After a refusal, does not ask for that repository again. Throws `interrupted`.
   */
  async mount(descriptor: Descriptor, fromRepository: string): Promise<boolean> {
    if (this.#unmountable.has(fromRepository)) return false;
    const query = new URLSearchParams({ mount: descriptor.digest, from: fromRepository }).toString();
    const what = `blob ${descriptor.digest}`;
    const request = { ...this.#repository, target: `blobs/uploads/?${query}`, what, from: fromRepository };
    try {
      // A mount only saves time, so it is tried once, and any failure ends in an upload.
      const begun = await this.#transport.sendOnce({ ...request, method: 'POST', actions: 'pull,push' });
      // The registry started an upload instead, which is not needed.
      const location = begun.status === 202 ? begun.headers.location : undefined;
      if (location === undefined) return begun.status === 201;
      const target = this.#transport.addressIn(begun, location, this.#repository.registry, 'uploads');
      const cancel = { ...this.#repository, what, method: 'DELETE', actions: 'pull,push' } as const;
      if (target) await this.#transport.sendOnce({ ...cancel, target, accept: [400, 404, 405] });
      return false;
    } catch (error) {
      if (!isPluginError(error) || error.code === 'interrupted') throw error;
      this.#unmountable.add(fromRepository);
      const words = `${this.name}: nothing is mounted from ${fromRepository}: ${error.message}`;
      this.#context.log('debug', words);
      return false;
    }
  }

  /**
   * Removes a manifest, with most registries also its tags, or one tag. Returns false for a missing one. The registry
   * frees the space later. Throws `unsupported` if the registry deletes nothing, and `denied`.
   */
  async remove(tagOrDigest: string): Promise<boolean> {
    const request = { ...manifestRequest(tagOrDigest), actions: 'pull,push,delete' } as const;
    const reply = await this.#send('DELETE', request, { accept: [404, 405, 501] });
    if (isDigest(tagOrDigest)) this.#manifests.delete(tagOrDigest);
    if (reply.status < 400 || reply.status === 404) return reply.status < 400;
    const quoted = quoteBody(reply.body, reply.authorization);
    throw new PluginError('unsupported', `${this.name} does not delete images: it answered ${reply.status}${quoted}`, {
      hint:
        'It may be read-only, or its configuration must allow deletion (docker-registry: storage.delete.enabled: ' +
        'true).',
    });
  }

  /** Does nothing, because pushed content is already stored. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  #checkManifest(reply: Reply, tagOrDigest: string): void {
    const where = `${this.name}: manifest ${tagOrDigest}`;
    if (mediaTypeOf(reply).startsWith('application/vnd.docker.distribution.manifest.v1+')) {
      throw new PluginError('invalid-manifest', `${where} is an image of Docker’s old schema 1`, {
        hint: 'Push the image again with a current tool, which converts it to schema 2 or OCI.',
      });
    }
    if (reply.body.length > manifestSizeLimit) {
      const limit = String(manifestSizeLimit);
      throw new PluginError('too-large', `${where} exceeds the limit of ${limit} bytes`);
    }
  }

  async #isTagged({ digest }: Descriptor, tag: string): Promise<boolean> {
    const request = { ...manifestRequest(tag), actions: 'pull,push' } as const;
    const reply = await this.#send('HEAD', request, { accept: absentStatuses });
    const stated = reply.headers['docker-content-digest'];
    // Some registries have no HEAD, or do not state the digest.
    const isSilent = headlessStatuses.includes(reply.status) || (reply.status < 300 && stated === undefined);
    return isSilent ? (await this.#readTag(tag)) === digest : reply.status < 300 && stated === digest;
  }

  /** Reads which manifest has a tag; undefined if there is none. */
  async #readTag(tag: string): Promise<Digest | undefined> {
    return (await this.resolve(tag).catch(ignoring('not-found')))?.digest;
  }

  /**
   * Reads whether content has the size of its descriptor, if HEAD states another one: proxies answer HEAD with the
   * length 0 or of a body of their own. Reads a manifest, and the beginning of the response for the last byte of a
   * blob.
   */
  async #hasBytes(descriptor: Descriptor): Promise<boolean> {
    const missing = ignoring('not-found', 'size-mismatch', 'digest-mismatch');
    if (isManifest(descriptor)) {
      const stored = await this.resolve(descriptor.digest).catch(missing);
      return stored?.size === descriptor.size;
    }
    const start = Math.max(0, descriptor.size - 1);
    const stream = await this.#transport.open(this.#contentRequest(descriptor), descriptor.size, start).catch(missing);
    stream?.destroy();
    return stream !== undefined;
  }

  async #put(descriptor: Descriptor, tagOrDigest: string, bytes: Buffer): Promise<void> {
    const headers = { 'Content-Type': descriptor.mediaType };
    const request = { ...manifestRequest(tagOrDigest), headers, actions: 'pull,push' } as const;
    const reply = await this.#send('PUT', request, { body: bytes });
    const stored = reply.headers['docker-content-digest'];
    if (stored === undefined || stored === descriptor.digest) return;
    throw new PluginError('digest-mismatch', `${this.name} changed ${request.what}: it has another digest there`);
  }

  #keep(digest: Digest, bytes: Buffer): void {
    this.#manifestsSize += bytes.length - (this.#manifests.get(digest)?.length ?? 0);
    this.#manifests.set(digest, bytes);
    for (const [oldest, { length }] of this.#manifests) {
      if (this.#manifestsSize <= manifestCacheSize) return;
      this.#manifests.delete(oldest);
      this.#manifestsSize -= length;
    }
  }

  #contentRequest(descriptor: Descriptor): ContentRequest {
    return { ...this.#repository, ...targetOf(descriptor) };
  }

  #send(
    method: string,
    request: Omit<ContentRequest, 'method' | 'registry' | 'repository'>,
    more: Partial<RegistryRequest> = {},
  ): Promise<Reply> {
    return this.#transport.send({ ...this.#repository, ...request, ...more, method });
  }
}

function manifestRequest(tagOrDigest: string) {
  return {
    target: `manifests/${tagOrDigest}`,
    what: `manifest ${tagOrDigest}`,
    headers: { Accept: accepted },
    actions: 'pull',
  } as const;
}

function targetOf({ mediaType, digest }: Descriptor): Omit<ContentRequest, 'registry' | 'repository'> {
  if (isManifest({ mediaType })) return manifestRequest(digest);
  return { target: `blobs/${digest}`, what: `blob ${digest}`, actions: 'pull' };
}

function mediaTypeOf({ headers }: Reply): string {
  return (headers['content-type'] ?? '').split(';')[0]?.trim().toLowerCase() ?? '';
}
