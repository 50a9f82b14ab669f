import { PluginError, isPluginError } from '#errors';
import { fieldsOf } from '#fields';
import { manifestSizeLimit, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import type { Digest, Reference } from '../oci/reference.ts';
import { parseJson } from '../oci/syntax.ts';
import type { RegistryRequest } from './authenticatedClient.ts';
import { errorCodesOf, type Reply } from './refusals.ts';
import type { Transport } from './transport.ts';

/**
 * The sizes of pages to ask for. Some registries refuse more than their own limit (docker-registry,
 * catalog.maxentries).
 */
const pageSizes = [1000, 100, undefined];
const pageLimit = 16 * 1024 * 1024;
/** The largest number of pages of tags. */
const pageCountLimit = 1000;

/**
 * Reads the tags of a repository, page by page; none if it does not exist. Throws `server-error`, `conflict` if
 * it changes meanwhile, and `too-large` above the limit of pages. `isOptional`: the caller continues without the tags,
 * so each page is asked for once, and a failure says nothing about the registry.
 */
export async function readTags(
  transport: Transport,
  { registry, repository }: Pick<Reference, 'registry' | 'repository'>,
  { pages = pageCountLimit, isOptional = false }: { readonly pages?: number; readonly isOptional?: boolean } = {},
): Promise<string[]> {
  const request = { registry, repository, what: 'list of tags', target: 'tags/list' };
  return readPages(transport, { ...request, field: 'tags', accept: [404], pages, isOptional });
}

/**
 * Reads the names of the repositories of a registry, page by page. Throws `not-found` and `denied` if the registry does
 * not list them.
 */
export async function listRepositoryNames(transport: Transport, registry: string): Promise<string[]> {
  // The path of the catalog is beside those of the repositories.
  const request = { registry, repository: '_catalog', what: 'list of repositories', scope: 'registry:catalog:*' };
  // Quay requires no login for the catalog, but then leaves out private repositories.
  await transport.send({ ...request, target: '../', method: 'GET', actions: 'pull', accept: [404] });
  return readPages(transport, { ...request, target: '../_catalog', field: 'repositories' });
}

/** A list of names in a registry. `target` is its path without a query. */
interface PagedList extends Pick<RegistryRequest, 'registry' | 'repository' | 'what' | 'scope' | 'accept'> {
  readonly target: string;
  readonly field: string;
  readonly pages?: number;
  readonly isOptional?: boolean;
}

async function readPages(transport: Transport, list: PagedList): Promise<string[]> {
  const { registry, repository, what, field, pages = pageCountLimit } = list;
  const names = new Set<string>();
  const seen = new Set<string>();
  let reply = await readFirstPage(transport, list);
  for (let page = 1; ; page += 1) {
    if (reply.status === 404 && page === 1) break;
    // zot does so if the last tag of the former page was removed meanwhile.
    if (reply.status === 404) {
      throw new PluginError('conflict', `${registry}/${repository} changed while its ${what} was read`, {
        hint: 'Another program removes images there. Run the same command again.',
      });
    }
    const before = names.size;
    for (const name of namesIn(reply, field, `${registry}/${repository} sent a malformed ${what}`)) names.add(name);
    const next = nextPage(transport, registry, reply, what);
    if (next === undefined) break;
    seen.add(reply.url.href);
    // The last page of some registries names itself as the next one.
    if (next.href === reply.url.href && names.size > before) break;
    if (seen.has(next.href))
      throw new PluginError('server-error', `${registry}/${repository} names a page of its ${what} again as the next`, {
        hint: 'Its list does not end. Ask the owner of the registry to update it, or the proxy in front of it.',
      });
    if (page === pages)
      throw new PluginError('too-large', `${registry}/${repository} has more than ${pages} pages in its ${what}`);
    reply = await readPage(transport, list, next);
  }
  return [...names];
}

/** Reads the first page of the largest size that the registry accepts. */
async function readFirstPage(transport: Transport, list: PagedList): Promise<Reply> {
  for (const size of pageSizes) {
    const target = size === undefined ? list.target : `${list.target}?n=${size}`;
    const reply = await readPage(transport, list, target, size === undefined ? [] : [400, 416, 422]);
    if (reply.status < 400 || reply.status === 404) return reply;
  }
  throw new PluginError('internal', 'no size of a page is left');
}

function readPage(
  transport: Transport,
  { registry, repository, what, scope, accept = [], isOptional = false }: PagedList,
  target: string | URL,
  more: readonly number[] = [],
): Promise<Reply> {
  const request = { registry, repository, what, ...(scope !== undefined && { scope }), target, limit: pageLimit };
  const whole = { ...request, method: 'GET', actions: 'pull', accept: [...accept, ...more] } as const;
  return isOptional ? transport.sendOnce(whole) : transport.send(whole);
}

function namesIn({ body }: Reply, field: string, fault: string): string[] {
  try {
    const names = fieldsOf(parseJson(body.toString()))[field];
    // Registries return null if there are none.
    if (names === null || names === undefined) return [];
    if (Array.isArray(names) && names.every((name) => typeof name === 'string')) return names;
  } catch {
    // Reported below.
  }
  throw new PluginError('server-error', fault);
}

/**
 * Returns the URL of the next page from a header such as `</v2/a/b/tags/list?last=x&n=1000>; rel="next"` (RFC 8288).
 */
function nextPage(transport: Transport, registry: string, reply: Reply, what: string): URL | undefined {
  const { headers } = reply;
  const link = Array.isArray(headers['link']) ? headers['link'].join(', ') : (headers['link'] ?? '');
  return transport.addressIn(reply, /<([^<>]*)>\s*;[^<]*\brel="?next"?/i.exec(link)?.[1], registry, what);
}

/** What registries without the API answer. */
const unsupportedStatuses = [400, 404, 405, 406, 410, 500, 501];

const referrersPages = 10;

/**
 * The referrers API of registries (distribution-spec 1.1). One request shows whether a registry has it; one that lacks
 * it is not asked again.
 */
export class ReferrersApi {
  readonly #transport: Transport;
  readonly #supported = new Map<string, Promise<boolean>>();

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Lists the manifests that refer to an image. Undefined if the registry lacks the API. Throws what the transport
   * throws.
   */
  async list(
    repository: Pick<Reference, 'registry' | 'repository'>,
    subject: Digest,
  ): Promise<readonly Descriptor[] | undefined> {
    const { registry } = repository;
    const earlierAnswer = this.#supported.get(registry);
    if (earlierAnswer) return (await earlierAnswer) ? ((await this.#read(repository, subject)) ?? []) : undefined;
    const first = this.#read(repository, subject);
    // A failure that tells nothing about the API is told by the first question alone.
    const answer = first.then(
      (referrers) => referrers !== undefined,
      () => false,
    );
    this.#supported.set(registry, answer);
    return first;
  }

  async #read(
    { registry, repository }: Pick<Reference, 'registry' | 'repository'>,
    subject: Digest,
  ): Promise<readonly Descriptor[] | undefined> {
    const what = `referrers of ${subject}`;
    const referrers: Descriptor[] = [];
    let target: string | URL | undefined = `referrers/${subject}`;
    for (let page = 0; target !== undefined && page < referrersPages; page += 1) {
      const reply = await this.#request({ registry, repository, what, target });
      if (!reply) return undefined;
      if (reply.status >= 300) break;
      referrers.push(...parseManifest(reply.body, `the ${what} in ${registry}/${repository}`).manifests);
      target = nextPage(this.#transport, registry, reply, what);
    }
    return referrers;
  }

  async #request(request: {
    readonly registry: string;
    readonly repository: string;
    readonly what: string;
    readonly target: string | URL;
  }): Promise<Reply | undefined> {
    try {
      const accept = unsupportedStatuses;
      const reply = await this.#transport.send({
        ...request,
        method: 'GET',
        actions: 'pull',
        limit: manifestSizeLimit,
        accept,
      });
      // Quay has the API, and answers so if it has no such image.
      const isUnknown = errorCodesOf(reply).includes('MANIFEST_INVALID');
      return reply.status < 300 || isUnknown ? reply : undefined;
    } catch (error) {
      // Some registries and proxies deny what they do not know.
      if (isPluginError(error, 'denied') || isPluginError(error, 'unauthorized')) return undefined;
      throw error;
    }
  }
}
