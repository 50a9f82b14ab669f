import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections, type ConnectionsOptions } from '../../../lib/content/http/connections.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { Tokens } from '../../../lib/content/registry/auth/tokens.ts';
import type { RegistryRequest } from '../../../lib/content/registry/authenticatedClient.ts';
import { Transport, type ContentRequest, type TransportOptions } from '../../../lib/content/registry/transport.ts';
import { startContentHost, type ContentHost } from '../../fakes/http/contentHost.ts';
import { startRegistry, type RegistryOptions, type TestRegistry } from '../../fakes/registry/registry.ts';
import { makeContext, type TestContext } from '../../support/context.ts';

/** The user of the registries of `useTransport`. */
export const user = { username: 'user', password: 'pa-ss-word' };

/** The blob that they have. */
export const bytes = randomBytes(1_000_000);

/** Its digest. */
export const digest = digestOf(bytes);

/** Prepares transports and registries for the tests of a `describe`, and ends them after each. */
export function useTransport() {
  const closing: (() => unknown)[] = [];
  let context: TestContext;
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'transport-'));
  });
  after(() => rm(folder, { recursive: true }));
  beforeEach(() => {
    context = makeContext();
  });
  afterEach(async () => {
    for (const close of closing.splice(0)) await close();
  });

  const start = async (options?: RegistryOptions): Promise<TestRegistry> => {
    const server = await startRegistry(options);
    server.content.blobs.set(digest, bytes);
    closing.push(() => server.stop());
    return server;
  };
  const startContent = async (server: TestRegistry): Promise<ContentHost> => {
    const host = await startContentHost(server.content);
    closing.push(() => host.stop());
    return host;
  };
  const open = async (
    server: Pick<TestRegistry, 'host'>,
    options: TransportOptions & Partial<ConnectionsOptions> = {},
  ): Promise<Transport> => {
    const insecure = options.insecure ?? true;
    const connections = new Connections({ certificates: new Certificates({ insecure, folders: [] }), ...options });
    closing.unshift(() => {
      connections.close();
    });
    const file = join(folder, 'auth.json');
    const auth = Buffer.from(`${user.username}:${user.password}`).toString('base64');
    await writeFile(file, JSON.stringify({ auths: { [server.host]: { auth } } }));
    const tokens = new Tokens(new Credentials({ file, environment: {} }), connections, context, {
      insecure: true,
    });
    return new Transport(connections, tokens, context, { insecure, baseDelay: 1, ...options });
  };
  const blob = (server: TestRegistry): ContentRequest => ({
    registry: server.host,
    repository: 'a/b',
    target: `blobs/${digest}`,
    what: `blob ${digest}`,
    actions: 'pull',
  });
  const get = (server: TestRegistry, more: Partial<RegistryRequest> = {}): RegistryRequest => ({
    ...blob(server),
    method: 'GET',
    limit: 10_000_000,
    ...more,
  });
  const download = async (transport: Transport, server: TestRegistry, from = 0): Promise<Buffer> => {
    const chunks: Buffer[] = [];
    await transport.download(blob(server), bytes.length, from, (chunk) => chunks.push(Buffer.from(chunk)));
    return Buffer.concat(chunks);
  };
  const stream = async (transport: Transport, server: TestRegistry, from = 0): Promise<Buffer> =>
    await buffer(await transport.open(blob(server), bytes.length, from));

  return {
    start,
    startContent,
    open,
    get,
    blob,
    download,
    stream,
    /** What to call after the test. */
    closing,
    /** The context of the transports; a new one for each test. */
    get context(): TestContext {
      return context;
    },
    set context(value: TestContext) {
      context = value;
    },
  };
}
