import { createHash } from 'node:crypto';
import type { Answer } from '../http/faults.ts';
import { FaultyServer, type Exchange, type ServerTls } from '../http/faultyServer.ts';
import { emptyContent, repositoryOf, type RegistryContent, type StoredManifest } from './content.ts';
import { RepositoryBlobs, partsOf } from './repositoryBlobs.ts';
import { basicAuthorization, json, refuse, TokenServer, type TokenServerOptions } from './tokenServer.ts';
import { Uploads } from './uploads.ts';

export {
  emptyContent,
  repositoryOf,
  type RegistryContent,
  type RepositoryContent,
  type StoredManifest,
} from './content.ts';

/** Options of a registry. Without a login, every request is allowed. */
export interface RegistryOptions {
  /** The initial content. It is used and changed in place. */
  content?: RegistryContent;
  tls?: ServerTls;
  /** Require a login with a name and a password. */
  basic?: { username: string; password: string; anonymousPull?: boolean };
  /** Require a login with tokens, from a token server on its own port. */
  bearer?: TokenServerOptions;
  /** The largest number of tags on a page of the list, independent of the client’s `n`. */
  tagsPerPage?: number;
  /**
   * Serve the referrers API (distribution-spec 1.1), which docker-registry 2.8 lacks; or, as Quay, refuse other images.
   */
  referrers?: boolean | 'of known images';
  /**
   * Delete manifests: with their tags, or keep what a tag leads to until the tag is deleted. As Quay, delete tags only;
   * or, as zot and Harbor, refuse a manifest until the lists of it are deleted.
   */
  deletes?: 'with tags' | 'without tags' | 'tags only' | 'lists first';
  /** Send Location headers without an origin. */
  relativeLocations?: boolean;
}

/**
 * A read-write registry (OCI distribution-spec, version 2) in this process. A blob is in a repository if it was
 * uploaded or mounted there, or if one of its manifests needs it. A blob that no repository has is in all of them, so
 * that a test can simply add it.
 */
export class TestRegistry extends FaultyServer {
  /** The content. Tests may read and change it. */
  readonly content: RegistryContent;
  /** The token server, with its own requests, counters and faults; undefined without bearer login. */
  readonly tokens: TokenServer | undefined;
  /** The unfinished uploads. */
  readonly uploads: Uploads;
  readonly #options: RegistryOptions;
  readonly #holdings: RepositoryBlobs;
  readonly #keptByTags = new Map<string, StoredManifest>();

  constructor(options: RegistryOptions = {}) {
    super(options.tls);
    this.#options = options;
    this.content = options.content ?? emptyContent();
    this.#holdings = new RepositoryBlobs(this.content);
    this.tokens = options.bearer && new TokenServer(options.bearer, options.tls);
    this.uploads = new Uploads(
      () => this.#origin,
      (repository, digest, bytes) => {
        this.content.blobs.set(digest, bytes);
        this.#holdings.link(repository, digest);
      },
    );
  }

  override async start(): Promise<void> {
    await Promise.all([super.start(), this.tokens?.start()]);
  }

  override async stop(): Promise<void> {
    await Promise.all([super.stop(), this.tokens?.stop()]);
  }

  /** Invalidates all tokens. */
  revokeTokens(): void {
    this.tokens?.revokeTokens();
  }

  /** Returns whether a repository has a blob, by the rule above. */
  hasBlob(repository: string, digest: string): boolean {
    return this.#holdings.has(repository, digest);
  }

  protected override async answer(exchange: Exchange): Promise<Answer> {
    const answer = await this.#route(exchange);
    return { ...answer, headers: { 'docker-distribution-api-version': 'registry/2.0', ...answer.headers } };
  }

  async #route(exchange: Exchange): Promise<Answer> {
    const { method, path } = exchange;
    const [, name, kind, rest] =
      /^\/v2\/(.+?)\/(blobs\/uploads|blobs|manifests|tags|referrers)\/(.*)$/.exec(path) ?? [];
    if (path === '/v2/_catalog') return this.#listRepositories(exchange);
    const refusal = this.#authorize(exchange, name);
    if (refusal) return refusal;
    if (path === '/v2/' || path === '/v2') return json(200, {});
    if (name === undefined || rest === undefined) return refuse(404, 'NOT_FOUND', 'there is no such endpoint');
    const reading = method === 'GET' || method === 'HEAD';
    if (kind === 'blobs/uploads' && rest === '' && method === 'POST') return await this.#beginUpload(exchange, name);
    if (kind === 'blobs/uploads' && rest !== '') return await this.uploads.answer(exchange, name, rest);
    if (kind === 'blobs' && reading) return this.#readBlob(name, rest);
    if (kind === 'manifests' && reading) return this.#readManifest(exchange, name, rest);
    if (kind === 'manifests' && method === 'PUT') return await this.#putManifest(exchange, name, rest);
    if (kind === 'manifests' && method === 'DELETE' && this.#options.deletes) return this.#deleteManifest(name, rest);
    if (kind === 'referrers' && method === 'GET') return this.#listReferrers(name, rest);
    if (kind === 'tags' && rest === 'list' && reading) return this.#listTags(exchange, name);
    return refuse(405, 'UNSUPPORTED', 'the operation is unsupported');
  }

  #authorize(exchange: Exchange, repository: string | undefined): Answer | undefined {
    const { basic } = this.#options;
    const reading = exchange.method === 'GET' || exchange.method === 'HEAD';
    const header = exchange.headers.authorization;
    if (basic && header !== basicAuthorization(basic.username, basic.password)) {
      if (basic.anonymousPull && reading && header === undefined) return undefined;
      return refuse(401, 'UNAUTHORIZED', 'authentication required', {
        'www-authenticate': 'Basic realm="Test registry"',
      });
    }
    if (!this.tokens) return undefined;
    const token = /^Bearer (.+)$/i.exec(header ?? '')?.[1];
    const known = token !== undefined && this.tokens.accepts(token);
    if (known && (repository === undefined || this.tokens.allows(token, repository, reading ? 'pull' : 'push'))) {
      return undefined;
    }
    const scope = repository === undefined ? undefined : `repository:${repository}:${reading ? 'pull' : 'pull,push'}`;
    const error = known ? 'insufficient_scope' : token === undefined ? undefined : 'invalid_token';
    return refuse(401, 'UNAUTHORIZED', 'authentication required', {
      'www-authenticate': this.tokens.challenge(scope, error),
    });
  }

  #readBlob(name: string, digest: string): Answer {
    const body = this.content.blobs.get(digest);
    if (!body || !this.hasBlob(name, digest)) return refuse(404, 'BLOB_UNKNOWN', 'blob unknown to registry');
    const headers = { 'content-type': 'application/octet-stream', 'docker-content-digest': digest };
    return { status: 200, headers, body, ranged: true };
  }

  async #beginUpload(exchange: Exchange, name: string): Promise<Answer> {
    const [mount, from] = [exchange.query.get('mount'), exchange.query.get('from')];
    if (mount !== null && from !== null && !exchange.fault.ignoreMount && this.#mayMount(exchange, from, mount)) {
      this.#holdings.link(name, mount);
      const location = `${this.#origin}/v2/${name}/blobs/${mount}`;
      return { status: 201, headers: { location, 'docker-content-digest': mount } };
    }
    return await this.uploads.begin(exchange, name);
  }

  #mayMount(exchange: Exchange, from: string, digest: string): boolean {
    const token = /^Bearer (.+)$/i.exec(exchange.headers.authorization ?? '')?.[1] ?? '';
    return this.hasBlob(from, digest) && (!this.tokens || this.tokens.allows(token, from, 'pull'));
  }

  #readManifest(exchange: Exchange, name: string, tagOrDigest: string): Answer {
    const repository = this.content.repositories.get(name);
    if (!repository) return refuse(404, 'NAME_UNKNOWN', 'repository name not known to registry');
    const digest = repository.tags.get(tagOrDigest) ?? tagOrDigest;
    const manifest = repository.manifests.get(digest) ?? this.#keptByTags.get(`${name}:${tagOrDigest}`);
    if (!manifest) return refuse(404, 'MANIFEST_UNKNOWN', 'manifest unknown');
    const { accept } = exchange.headers;
    if (accept !== undefined && !accept.includes('*/*') && !accept.includes(manifest.mediaType)) {
      return refuse(404, 'MANIFEST_UNKNOWN', `the manifest is a ${manifest.mediaType}, which is not accepted`);
    }
    const headers = { 'content-type': manifest.mediaType, 'docker-content-digest': digest };
    return { status: 200, headers, body: manifest.bytes };
  }

  async #putManifest(exchange: Exchange, name: string, tagOrDigest: string): Promise<Answer> {
    const chunks: Buffer[] = [];
    for await (const chunk of exchange.body()) chunks.push(chunk);
    const manifest = { mediaType: exchange.headers['content-type'] ?? '', bytes: Buffer.concat(chunks) };
    const digest = `sha256:${createHash('sha256').update(manifest.bytes).digest('hex')}`;
    const byDigest = tagOrDigest.includes(':');
    if (byDigest && tagOrDigest !== digest) return refuse(400, 'DIGEST_INVALID', 'the digest is not the content’s');
    const parts = partsOf(manifest.bytes);
    const isOther = parts?.mediaType !== undefined && parts.mediaType !== manifest.mediaType;
    if (!parts || isOther || manifest.mediaType === '' || manifest.bytes.length > manifestLimit)
      return refuse(400, 'MANIFEST_INVALID', 'manifest invalid');
    const repository = repositoryOf(this.content, name);
    const missing = [
      ...parts.blobs.filter((blob) => !this.hasBlob(name, blob)),
      ...parts.manifests.filter((child) => !repository.manifests.has(child)),
    ];
    if (missing[0] !== undefined) return refuse(400, 'MANIFEST_BLOB_UNKNOWN', `unknown to registry: ${missing[0]}`);
    repository.manifests.set(digest, manifest);
    if (!byDigest) repository.tags.set(tagOrDigest, digest);
    const location = `${this.#origin}/v2/${name}/manifests/${digest}`;
    return { status: 201, headers: { location, 'docker-content-digest': digest } };
  }

  #deleteManifest(name: string, tagOrDigest: string): Answer {
    const repository = repositoryOf(this.content, name);
    const { deletes } = this.#options;
    const manifest = repository.manifests.get(tagOrDigest);
    const tags = [...repository.tags].filter(([tag, digest]) => tag === tagOrDigest || digest === tagOrDigest);
    if ((!manifest || deletes === 'tags only') && tags.length === 0)
      return refuse(404, 'MANIFEST_UNKNOWN', 'manifest unknown');
    const isListed = [...repository.manifests.values()].some(({ bytes }) =>
      partsOf(bytes)?.manifests.includes(tagOrDigest),
    );
    if (deletes === 'lists first' && isListed)
      return refuse(405, 'DENIED', 'requested access to the resource is denied');
    if (deletes !== 'tags only') repository.manifests.delete(tagOrDigest);
    for (const [tag] of tags) {
      if (manifest && deletes === 'without tags') this.#keptByTags.set(`${name}:${tag}`, manifest);
      else {
        repository.tags.delete(tag);
        this.#keptByTags.delete(`${name}:${tag}`);
      }
    }
    return { status: 202 };
  }

  #listReferrers(name: string, subject: string): Answer {
    // The response of docker-registry to an unknown path.
    if (!this.#options.referrers)
      return { status: 404, headers: { 'content-type': 'text/plain' }, body: Buffer.from('404 page not found\n') };
    const stored = this.content.repositories.get(name)?.manifests;
    if (this.#options.referrers === 'of known images' && !stored?.has(subject))
      return refuse(400, 'MANIFEST_INVALID', 'manifest invalid');
    const manifests = [...(stored ?? [])].flatMap(([digest, { mediaType, bytes }]) => {
      const { subject: of, artifactType, config, annotations } = JSON.parse(bytes.toString()) as Referrer;
      const type = artifactType ?? config?.mediaType;
      return of?.digest === subject ? [{ mediaType, digest, size: bytes.length, artifactType: type, annotations }] : [];
    });
    const mediaType = 'application/vnd.oci.image.index.v1+json';
    const body = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType, manifests }));
    return { status: 200, headers: { 'content-type': mediaType }, body };
  }

  #listRepositories({ headers }: Exchange): Answer {
    const token = /^Bearer (.+)$/i.exec(headers.authorization ?? '')?.[1] ?? '';
    const isKnown = !this.tokens || this.tokens.accepts(token);
    return json(200, { repositories: isKnown ? [...this.content.repositories.keys()] : [] });
  }

  #listTags(exchange: Exchange, name: string): Answer {
    const repository = this.content.repositories.get(name);
    if (!repository) return refuse(404, 'NAME_UNKNOWN', 'repository name not known to registry');
    const { tagsPerPage = Infinity } = this.#options;
    const [asked, last] = [exchange.query.get('n'), exchange.query.get('last') ?? ''];
    const count = Math.min(tagsPerPage, asked === null ? Infinity : Number(asked));
    const remaining = [...repository.tags.keys()].sort().filter((tag) => tag > last);
    const tags = remaining.slice(0, count);
    const next = remaining.length > tags.length ? tags.at(-1) : undefined;
    const page = new URLSearchParams({ last: next ?? '', n: String(count) }).toString();
    return json(200, { name, tags }, next === undefined ? {} : { link: `</v2/${name}/tags/list?${page}>; rel="next"` });
  }

  get #origin(): string {
    return this.#options.relativeLocations ? '' : this.url;
  }
}

/** The largest manifest, in bytes. */
const manifestLimit = 4 * 1024 * 1024;

interface Referrer {
  readonly subject?: { readonly digest?: string };
  readonly artifactType?: string;
  readonly config?: { readonly mediaType?: string };
  readonly annotations?: Record<string, string>;
}

/** Starts a registry on 127.0.0.1 and a free port. Call `stop` at the end. */
export async function startRegistry(options?: RegistryOptions): Promise<TestRegistry> {
  const registry = new TestRegistry(options);
  await registry.start();
  return registry;
}
