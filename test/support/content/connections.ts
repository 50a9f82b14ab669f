import { text } from 'node:stream/consumers';
import { Certificates, type CertificatesOptions } from '../../../lib/content/http/certificates.ts';
import { Connections, type ConnectionsOptions } from '../../../lib/content/http/connections.ts';
import { startRegistry, type RegistryOptions, type TestRegistry } from '../../fakes/registry/registry.ts';

const { signal } = new AbortController();

/** Returns functions that start registries and connect to them. After each test of the suite, everything is closed. */
export function useConnections() {
  const closing: (() => unknown)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0)) await close();
  });

  const start = async (options?: RegistryOptions): Promise<TestRegistry> => {
    const server = await startRegistry(options);
    closing.push(() => server.stop());
    return server;
  };
  const connect = (
    options: Partial<ConnectionsOptions> = {},
    certificates: Partial<CertificatesOptions> = {},
  ): Connections => {
    const made = new Certificates({ insecure: false, folders: [], ...certificates });
    const connections = new Connections({ certificates: made, ...options });
    closing.unshift(() => {
      connections.close();
    });
    return connections;
  };
  const get = async (connections: Connections, url: string): Promise<string> => {
    const { body } = await connections.exchange({ method: 'GET', url: new URL(url), headers: {}, signal });
    return await text(body);
  };

  return { closing, start, connect, get };
}
