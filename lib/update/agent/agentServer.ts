import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { Bundle } from '../../bundle/bundle.ts';
import type { Context } from '../../context.ts';
import type { Digest } from '../../oci/digest.ts';
import { derivePreSharedKey } from '../../http/preSharedKey.ts';
import {
  serveContent,
  type ContentServer,
  type ServedResponse,
  type ServedFile,
  type ServeOptions,
} from '../../server/server.ts';
import { peerPath } from './agentPeers.ts';

/** To how many nodes one node sends its bundle at a time. The others find one that has got it meanwhile. */
const mostUploads = 2;
/** What the node at the other end has to keep up with to hold one of these: it goes on where it was, here or elsewhere. */
const limits = { idleTimeout: 30_000, minimumRate: 64 * 1024, maximumTime: 60 * 60_000 };
/** The name of the Service that leads to all agents. */
const serviceName = 'bundle';

/** Where an agent listens, and for whom. */
export interface AgentServerOptions {
  readonly host: string;
  readonly port: number;
  /** The secret that all agents have. It is never sent: the key of TLS is derived from it. */
  readonly token: string;
  /** The executable that this agent runs from, for nodes that have none yet. */
  readonly executable?: ServedExecutable | undefined;
  readonly limits?: NonNullable<ServeOptions['limits']>;
  /** Is told of every request for a bundle. */
  readonly onResponse?: (response: ServedResponse) => void;
}

/** The executable of an agent, and where it is served. */
export interface ServedExecutable {
  /** Its SHA-256 in hex digits. */
  readonly digest: string;
  readonly path: string;
  /** A port of its own, by plain HTTP: it is no secret, and curl, which fetches it, cannot use a pre-shared key. */
  readonly port: number;
}

/** What an agent gives to the agents of other nodes: its executable, and the bundle that it has. */
export class AgentServer {
  readonly #files: Map<string, ServedFile>;
  readonly #server: ContentServer;
  readonly #program: ContentServer | undefined;
  #offered: Digest | undefined;

  private constructor(files: Map<string, ServedFile>, server: ContentServer, program: ContentServer | undefined) {
    this.#files = files;
    this.#server = server;
    this.#program = program;
  }

  /** Begins to listen. Throws what serveContent throws. */
  static async open(options: AgentServerOptions, context: Context): Promise<AgentServer> {
    const files = new Map<string, ServedFile>();
    const { executable, token, ...listen } = options;
    const preSharedKey = derivePreSharedKey(token);
    const server = await serveContent(() => undefined, { limits, ...listen, preSharedKey, files }, context);
    try {
      const program = executable && (await serveExecutable(options.host, executable, context));
      return new AgentServer(files, server, program);
    } catch (error) {
      await server.close();
      throw error;
    }
  }

  get port(): number {
    return this.#server.port;
  }

  /** Where other nodes fetch the executable; undefined for an agent that serves none. */
  get executableOrigin(): string | undefined {
    return this.#program?.url;
  }

  /** Where other nodes reach it; undefined for one that listens on every address. */
  get origin(): string | undefined {
    const { host, url } = this.#server;
    return host === '0.0.0.0' || host === '::' ? undefined : url;
  }

  /** Offers a verified bundle that has the digest, in place of any other. */
  offer({ size, chunks }: Pick<Bundle, 'size' | 'chunks'>, digest: Digest): void {
    this.withdraw();
    if (chunks) this.#files.set(peerPath(digest), { size, chunks, maxClients: mostUploads });
    this.#offered = digest;
  }

  /** Offers no bundle any more. Who is being sent one gets no further than its source does. */
  withdraw(): void {
    if (this.#offered !== undefined) this.#files.delete(peerPath(this.#offered));
    this.#offered = undefined;
  }

  async close(): Promise<void> {
    await this.#program?.close();
    await this.#server.close();
  }
}

async function serveExecutable(
  host: string,
  { digest, path, port }: ServedExecutable,
  context: Context,
): Promise<ContentServer> {
  const { size } = await stat(path);
  const chunks = (start: number, length: number): AsyncIterable<Buffer> =>
    createReadStream(path, { start, end: start + length - 1 });
  const files = new Map<string, ServedFile>([[`/executable/${digest}`, { size, chunks }]]);
  return serveContent(() => undefined, { host, port, files, names: [serviceName], limits }, context);
}
