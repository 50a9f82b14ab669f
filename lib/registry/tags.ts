import { PluginError } from '../errors.ts';
import type { Reference } from '../oci/reference.ts';
import { parseJson } from '../oci/syntax.ts';
import type { Reply } from './refusals.ts';
import type { Transport } from './transport.ts';

const pageSize = 1000;
const pageLimit = 16 * 1024 * 1024;
/** The largest number of pages of tags. */
const pageCountLimit = 1000;

/**
 * Reads the tags of a repository, page by page; none if it does not exist. Throws `server-error`, and `too-large`
 * above the limit of pages.
 */
export async function readTags(
  transport: Transport,
  { registry, repository }: Pick<Reference, 'registry' | 'repository'>,
): Promise<string[]> {
  const what = 'list of tags';
  const tags = new Set<string>();
  let target: string | URL | undefined = `tags/list?n=${pageSize}`;
  for (let page = 0; target !== undefined; page += 1) {
    if (page === pageCountLimit)
      throw new PluginError(
        'too-large',
        `${registry}/${repository} has more than ${pageCountLimit} pages in its ${what}`,
      );
    const request = { method: 'GET', registry, repository, what, target, actions: 'pull', limit: pageLimit } as const;
    const reply: Reply = await transport.send({ ...request, accept: [404] });
    if (reply.status === 404) break;
    for (const tag of tagsOf(reply, `${registry}/${repository}`)) tags.add(tag);
    target = nextPage(reply);
  }
  return [...tags];
}

function tagsOf({ body }: Reply, where: string): string[] {
  try {
    const { tags } = parseJson(body.toString()) as { tags?: unknown };
    // Registries return null if there are no tags.
    if (tags === null || tags === undefined) return [];
    if (Array.isArray(tags) && tags.every((tag) => typeof tag === 'string')) return tags;
  } catch {
    // Reported below.
  }
  throw new PluginError('server-error', `${where} sent a malformed list of tags`);
}

/**
 * Returns the URL of the next page from a header such as `</v2/a/b/tags/list?last=x&n=1000>; rel="next"` (RFC 8288).
 */
export function nextPage({ headers, url }: Reply): URL | undefined {
  const link = Array.isArray(headers['link']) ? headers['link'].join(', ') : (headers['link'] ?? '');
  const target = /<([^<>]*)>\s*;[^<]*\brel="?next"?/i.exec(link)?.[1];
  return target === undefined ? undefined : (URL.parse(target, url) ?? undefined);
}
