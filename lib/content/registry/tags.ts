import { PluginError } from '../../errors.ts';
import { fieldsOf } from '../../fields.ts';
import type { Reference } from '../oci/reference.ts';
import { parseJson } from '../oci/syntax.ts';
import type { RegistryRequest } from './authenticatedClient.ts';
import type { Reply } from './refusals.ts';
import type { Transport } from './transport.ts';

const pageSize = 1000;
const pageLimit = 16 * 1024 * 1024;
/** The largest number of pages of tags. */
const pageCountLimit = 1000;

/**
 * Reads the tags of a repository, page by page; none if it does not exist. Throws `server-error`, `conflict` if
 * it changes meanwhile, and `too-large` above the limit of pages.
 */
export async function readTags(
  transport: Transport,
  { registry, repository }: Pick<Reference, 'registry' | 'repository'>,
  pages = pageCountLimit,
): Promise<string[]> {
  const request = { registry, repository, what: 'list of tags', target: `tags/list?n=${pageSize}` };
  return readPages(transport, { ...request, field: 'tags', accept: [404], pages });
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
  return readPages(transport, { ...request, target: `../_catalog?n=${pageSize}`, field: 'repositories' });
}

async function readPages(
  transport: Transport,
  {
    field,
    pages = pageCountLimit,
    ...request
  }: Pick<RegistryRequest, 'registry' | 'repository' | 'what' | 'target' | 'scope' | 'accept'> & {
    readonly field: string;
    readonly pages?: number;
  },
): Promise<string[]> {
  const { registry, repository, what } = request;
  const names = new Set<string>();
  let target: string | URL | undefined = request.target;
  for (let page = 0; target !== undefined; page += 1) {
    if (page === pages)
      throw new PluginError('too-large', `${registry}/${repository} has more than ${pages} pages in its ${what}`);
    const reply: Reply = await transport.send({ ...request, target, method: 'GET', actions: 'pull', limit: pageLimit });
    if (reply.status === 404 && page === 0) break;
    // zot does so if the last tag of the former page was removed meanwhile.
    if (reply.status === 404) {
      throw new PluginError('conflict', `${registry}/${repository} changed while its ${what} was read`, {
        hint: 'Another program removes images there. Run the same command again.',
      });
    }
    for (const name of namesIn(reply, field, `${registry}/${repository} sent a malformed ${what}`)) names.add(name);
    target = nextPage(reply);
  }
  return [...names];
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
export function nextPage({ headers, url }: Reply): URL | undefined {
  const link = Array.isArray(headers['link']) ? headers['link'].join(', ') : (headers['link'] ?? '');
  const target = /<([^<>]*)>\s*;[^<]*\brel="?next"?/i.exec(link)?.[1];
  return target === undefined ? undefined : (URL.parse(target, url) ?? undefined);
}
