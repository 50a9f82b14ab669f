/**
 * Returns the URL that a registry names in a header of a response from `from`, such as the Location of an upload or the
 * Link of a page. Of an address of its own API only the path and the query count: proxies often pass on another scheme,
 * host or port (distribution #2572). An address elsewhere, such as a storage service, stays as it is, without a user.
 * Undefined if it is no HTTP URL.
 */
export function resolveNamedAddress(text: string, from: URL): URL | undefined {
  // Some registries leave out the first slash.
  const url = URL.parse(text.startsWith('v2/') ? `/${text}` : text, from);
  if (!url || !['http:', 'https:'].includes(url.protocol)) return undefined;
  if (url.hostname === from.hostname || url.pathname.startsWith('/v2/'))
    return new URL(`${url.pathname}${url.search}`, from.origin);
  url.username = url.password = '';
  return url;
}

/**
 * Returns the origin that a registry names for an address of its own API, if it has another host or port than its own.
 * Another scheme alone is usual behind a proxy that ends TLS.
 */
export function strangeOrigin(text: string, from: URL): string | undefined {
  const url = URL.parse(text, from);
  const resolved = resolveNamedAddress(text, from);
  return url && resolved?.origin === from.origin && url.host !== from.host ? url.origin : undefined;
}
