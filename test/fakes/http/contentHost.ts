import type { RegistryContent } from '../registry/content.ts';
import type { Answer } from './faults.ts';
import { FaultyServer, type Exchange, type ServerTls } from './faultyServer.ts';

const signature = 'X-Signature=do-not-print-me';

/**
 * The target of a registry’s redirects, on its own origin, like object storage behind a registry. It serves blobs by
 * digest to clients with the signed URL. Like S3, it returns 400 for a request with an Authorization header.
 */
export class ContentHost extends FaultyServer {
  readonly content: RegistryContent;

  constructor(content: RegistryContent, tls?: ServerTls) {
    super(tls);
    this.content = content;
  }

  /** Returns the signed URL of the blob in a registry’s path: the `to` of a redirect fault. */
  readonly locate = (path: string): string => `${this.url}/data/${path.slice(path.lastIndexOf('/') + 1)}?${signature}`;

  protected override answer({ method, path, query, headers }: Exchange): Answer {
    if (headers.authorization !== undefined) return fail(400, 'Only one auth mechanism allowed');
    if (query.toString() !== signature) return fail(403, 'SignatureDoesNotMatch');
    const body = this.content.blobs.get(path.slice('/data/'.length));
    if (!body || (method !== 'GET' && method !== 'HEAD')) return fail(404, 'NoSuchKey');
    return { status: 200, headers: { 'content-type': 'binary/octet-stream' }, body, ranged: true };
  }
}

/** Starts a content host for a registry's content. */
export async function startContentHost(content: RegistryContent, tls?: ServerTls): Promise<ContentHost> {
  const host = new ContentHost(content, tls);
  await host.start();
  return host;
}

function fail(status: number, code: string): Answer {
  return { status, headers: { 'content-type': 'application/xml' }, body: `<Error><Code>${code}</Code></Error>` };
}
