import { type Bundle, describeExtraImages, openRemoteTar } from '#bundle/open';
import type { ArchiveFile } from '#content/archive';
import { type Connections, formatUrl } from '#content/http';
import type { ContentRequest, Transport } from '#content/registry';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { explainRefusal, requestFile, type RemoteServer } from './transfer.ts';

/** A bundle on another machine whose digest is unknown. */
export interface RemoteSource extends RemoteServer {
  /** Whether its release may be unsigned. */
  readonly allowUnsigned: boolean;
}

/**
 * Opens a bundle on another machine, and reads only the parts that are used. Only the release signature can prove them,
 * so throws `unsigned` if it does not cover all images, or may be missing. Also throws `unsupported` if the server
 * ignores range requests, `invalid-bundle`, and what asking the server throws.
 */
export async function openRemoteBundle(
  { allowUnsigned, ...server }: RemoteSource,
  connections: Connections,
  context: Context,
): Promise<Bundle> {
  const { transport, request } = requestFile(server, 'the bundle', connections, context);
  const { total } = await readPart(transport, request, 0, 1).catch((error: unknown) => explainRefusal(request, error));
  const name = formatUrl(server.url);
  const bundle = await openRemoteTar(name, new RemoteFile(name, transport, request, total), context);
  const extra = describeExtraImages(bundle.metadata.extraImages);
  const words = extra === undefined ? allowUnsigned && 'may be unsigned' : `has ${extra}`;
  if (words === false) return bundle;
  throw new PluginError('unsigned', `${name} ${words}, so only its digest proves the content`, {
    hint: 'The digest is in the .sha256 file of the bundle. With it, all of the bundle is downloaded.',
    settings: ['digest'],
  });
}

/** A file on another machine. */
class RemoteFile implements ArchiveFile {
  readonly size: number;
  readonly #name: string;
  readonly #transport: Transport;
  readonly #request: ContentRequest;

  constructor(name: string, transport: Transport, request: ContentRequest, size: number) {
    this.#name = name;
    this.#transport = transport;
    this.#request = request;
    this.size = size;
  }

  async read(
    buffer: Buffer,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ bytesRead: number; buffer: Buffer }> {
    const size = Math.min(length, this.size - position);
    if (size <= 0) return { bytesRead: 0, buffer };
    const { bytes, total } = await readPart(this.#transport, this.#request, position, size);
    if (total !== this.size)
      throw new PluginError('size-mismatch', `${this.#name} has changed during this run`, {
        hint: 'Run the same command again.',
      });
    return { bytesRead: bytes.copy(buffer, offset), buffer };
  }

  pieces(): { path: string }[] {
    return [{ path: this.#name }];
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** Reads bytes of a file on another machine, and the size of the file. */
async function readPart(
  transport: Transport,
  request: ContentRequest,
  start: number,
  size: number,
): Promise<{ bytes: Buffer; total: number }> {
  const headers = { Range: `bytes=${start}-${start + size - 1}` };
  const { status, body, headers: answer } = await transport.send({ ...request, method: 'GET', headers, limit: size });
  const [, first, total] = /^bytes (\d+)-\d+\/(\d+)$/.exec(answer['content-range'] ?? '') ?? [];
  if (status === 206 && Number(first) === start) return { bytes: body, total: Number(total) };
  throw new PluginError('unsupported', `${request.registry} does not send parts of ${request.what}`, {
    hint: 'With the digest from the .sha256 file, all of the bundle is downloaded.',
    settings: ['digest'],
  });
}
