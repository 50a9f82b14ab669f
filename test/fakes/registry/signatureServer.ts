import { createReadStream } from 'node:fs';
import fs from 'node:fs/promises';
import path from 'node:path';
import type { Answer } from '../http/faults.ts';
import { FaultyServer, type Exchange, type ServerTls } from '../http/faultyServer.ts';
import type { Body } from './content.ts';

/** Files by their path from the root (`/sha256=…/signature-1`), or the folder with the files. */
export type StaticFiles = Map<string, Body | string> | string;

/** A server of static files with planned faults: a signature store, an update graph, the origin of a download. */
export class SignatureServer extends FaultyServer {
  /** The served files. Tests may change a map while the server runs. */
  readonly files: StaticFiles;

  constructor(files: StaticFiles, tls?: ServerTls) {
    super(tls);
    this.files = files;
  }

  protected override async answer(exchange: Exchange): Promise<Answer> {
    if (exchange.method !== 'GET' && exchange.method !== 'HEAD')
      return { status: 405, headers: { allow: 'GET, HEAD' } };
    const body =
      typeof this.files === 'string' ? await openFile(this.files, exchange.path) : this.files.get(exchange.path);
    if (body === undefined) return { status: 404, headers: { 'content-type': 'text/plain' }, body: 'not found\n' };
    const type = exchange.path.endsWith('.json') ? 'application/json' : 'application/octet-stream';
    return { status: 200, headers: { 'content-type': type }, body, ranged: true };
  }
}

/** Starts a server of static files on 127.0.0.1 and a free port. */
export async function startSignatureServer(files: StaticFiles = new Map(), tls?: ServerTls): Promise<SignatureServer> {
  const server = new SignatureServer(files, tls);
  await server.start();
  return server;
}

async function openFile(root: string, name: string): Promise<Body | undefined> {
  // Normalized as an absolute path first, so that no name leaves the folder.
  const file = path.join(root, path.posix.normalize(name));
  const stat = await fs.stat(file).catch(() => undefined);
  return stat?.isFile() ? { size: stat.size, open: (start) => createReadStream(file, { start }) } : undefined;
}
