import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import type { Bundle } from '#bundle/open';
import { derivePreSharedKey } from '#content/http';
import type { Digest } from '#content/oci';
import {
  serveContent,
  type ContentServer,
  type ServedResponse,
  type ServedFile,
  type ServeOptions,
} from '#content/server';
import type { Context } from '#context';
import { peerBasePath, peerPath } from './agentPeers.ts';

/**
 * The largest number of nodes to which one node sends its bundle at a time. Other nodes fetch it from these nodes
 * later.
 */
const mostUploads = 2;
/** The limits for a client. A client that is disconnected resumes its transfer, here or at another node. */
const limits = { idleTimeout: 30_000, minimumRate: 64 * 1024, maximumTime: 60 * 60_000 };
const serviceName = 'bundle';

/** Settings of an agent’s server. */
export interface AgentServerOptions {
  readonly host: string;
  readonly port: number;
  /** The secret of all agents. It is never sent; the TLS key is derived from it. */
  readonly token: string;
  /** The executable of this agent, for nodes that do not have it yet. */
  readonly executable?: ServedExecutable;
  readonly limits?: NonNullable<ServeOptions['limits']>;
  /** Called for each request for a bundle. */
  readonly onResponse?: (response: ServedResponse) => void;
}

/** The executable that an agent serves to nodes that have none. */
export interface ServedExecutable {
  /** The SHA-256 of the executable, in hex digits. */
  readonly digest: string;
  readonly path: string;
  /** The port for plain HTTP. The executable is not secret, and curl, which fetches it, cannot use a pre-shared key. */
  readonly port: number;
}

/** The path that answers while the agent is ready, on the port of the executable. */
export const readyPath = '/ready';

/** Serves the executable and the bundle of a node to the agents of other nodes. */
export class AgentServer {
  readonly #files: Map<string, ServedFile>;
  readonly #server: ContentServer;
  readonly #program: ContentServer | undefined;
  /** The files on the port of the executable. */
  readonly #open: Map<string, ServedFile>;
  #offered: Digest | undefined;

  private constructor(
    { files, open }: Record<'files' | 'open', Map<string, ServedFile>>,
    server: ContentServer,
    program: ContentServer | undefined,
  ) {
    this.#files = files;
    this.#open = open;
    this.#server = server;
    this.#program = program;
  }

  /** Starts the server. Throws the errors of serveContent. */
  static async open(options: AgentServerOptions, context: Context): Promise<AgentServer> {
    const [files, open] = [new Map<string, ServedFile>(), new Map<string, ServedFile>()];
    const { executable, token, ...listen } = options;
    const preSharedKey = derivePreSharedKey(token);
    const server = await serveContent(() => undefined, { limits, ...listen, preSharedKey, files }, context);
    try {
      const program = executable && (await serveExecutable(options.host, executable, open, context));
      return new AgentServer({ files, open }, server, program);
    } catch (error) {
      await server.close();
      throw error;
    }
  }

  get port(): number {
    return this.#server.port;
  }

  /** The URL of the executable for other nodes; undefined if the agent serves none. */
  get executableOrigin(): string | undefined {
    return this.#program?.url;
  }

  /** The URL of this agent for other nodes; undefined if it listens on every address. */
  get origin(): string | undefined {
    const { host, url } = this.#server;
    return host === '0.0.0.0' || host === '::' ? undefined : url;
  }

  /**
   * Offers a verified bundle with this digest, and withdraws the bundle that was offered before. `base`: all base blobs
   * of a delta bundle.
   */
  offer({ size, chunks }: Pick<Bundle, 'size' | 'chunks'>, digest: Digest, base?: ServedFile): void {
    this.withdraw();
    if (chunks) this.#files.set(peerPath(digest), { size, chunks, maxClients: mostUploads });
    if (base) this.#files.set(peerBasePath(digest), { ...base, maxClients: mostUploads });
    this.#offered = digest;
  }

  /** Says to the kubelet whether the agent is ready. At the start it is not. */
  setReady(isReady: boolean): void {
    const words = Buffer.from('ready\n');
    if (isReady) this.#open.set(readyPath, { size: words.length, chunks: () => Readable.from([words]) });
    else this.#open.delete(readyPath);
  }

  /** Withdraws the offer. A running transfer ends when its source is closed. */
  withdraw(): void {
    for (const pathOf of [peerPath, peerBasePath])
      if (this.#offered !== undefined) this.#files.delete(pathOf(this.#offered));
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
  files: Map<string, ServedFile>,
  context: Context,
): Promise<ContentServer> {
  const { size } = await stat(path);
  const chunks = (start: number, length: number): AsyncIterable<Buffer> =>
    createReadStream(path, { start, end: start + length - 1 });
  files.set(`/executable/${digest}`, { size, chunks });
  return serveContent(() => undefined, { host, port, files, names: [serviceName], limits }, context);
}
