import type { Context } from '../context.ts';
import type { Reference } from '../oci/reference.ts';
import { Certificates } from '../http/certificates.ts';
import { Connections } from '../http/connections.ts';
import type { Environment } from '../http/proxy.ts';
import { Registry } from './registry.ts';
import type { Authorizer } from './auth/tokens.ts';
import { Transport } from './transport.ts';

/** How registries are talked to, as plain data that can be given to another thread. */
export interface RegistrySettings {
  readonly insecure: boolean;
  /** A PEM file with certificate authorities to trust besides those of the system. */
  readonly certificateAuthority?: string | undefined;
  /** Where HTTPS_PROXY, HTTP_PROXY and NO_PROXY are looked up. */
  readonly environment: Environment;
  readonly maxPerRegistry: number;
  readonly userAgent: string;
  /** For how many milliseconds a registry may make one operation wait (Retry-After). */
  readonly retryTimeout?: number;
}

/** What a run, or one thread of it, talks to registries with. */
export interface RegistrySession {
  readonly connections: Connections;
  /** The repository that a reference names; its tag and digest do not matter. */
  repository(reference: Pick<Reference, 'registry' | 'repository'>): Registry;
  close(): void;
}

/**
 * Opens the connections of a run. The authorizer is given, or made with the connections; a run has one, whichever
 * thread asks it.
 */
export function openSession(
  settings: RegistrySettings,
  authorizer: Authorizer | ((connections: Connections) => Authorizer),
  context: Context,
): RegistrySession {
  const { insecure, certificateAuthority, retryTimeout, ...options } = settings;
  const certificates = new Certificates({ insecure, certificateAuthority });
  const connections = new Connections({
    ...options,
    certificates,
    log: (message) => {
      context.log('debug', message);
    },
  });
  const authorize = typeof authorizer === 'function' ? authorizer(connections) : authorizer;
  const transport = new Transport(connections, authorize, context, {
    insecure,
    ...(retryTimeout !== undefined && { longestWait: retryTimeout }),
  });
  return {
    connections,
    repository: (reference) => new Registry(reference, transport, context),
    close: () => {
      connections.close();
    },
  };
}
