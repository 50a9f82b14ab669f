import type { Context } from '#context';
import { Certificates } from '../http/certificates.ts';
import { Connections } from '../http/connections.ts';
import type { Environment } from '../http/proxy.ts';
import type { Reference } from '../oci/reference.ts';
import type { Authorizer } from './auth/tokens.ts';
import { Registry } from './registry.ts';
import { ReferrersApi, listRepositoryNames } from './tags.ts';
import { Transport } from './transport.ts';

/** Settings for registries, as plain data for use in other threads. */
export interface RegistrySettings {
  readonly insecure: boolean;
  /** A PEM file with CAs to trust in addition to those of the system. */
  readonly certificateAuthority?: string;
  /** Contains HTTPS_PROXY, HTTP_PROXY and NO_PROXY. */
  readonly environment: Environment;
  readonly maxPerRegistry: number;
  readonly userAgent: string;
  /** The total wait that a registry may request for one operation (Retry-After), in milliseconds. */
  readonly retryTimeout?: number;
}

/** Connections of a run, or of one of its threads, to registries. */
export interface RegistrySession {
  readonly connections: Connections;
  /** Returns the repository of a reference. Its tag and digest are ignored. */
  repository(reference: Pick<Reference, 'registry' | 'repository'>): Registry;
  /** Lists the repositories of a registry. Throws the errors of listRepositoryNames. */
  repositories(registry: string): Promise<string[]>;
  close(): void;
}

/**
 * Opens the connections of a run. The authorizer is given, or created with the connections. All threads of a run share
 * one authorizer.
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
  const referrersApi = new ReferrersApi(transport);
  const singlePosts = new Map<string, boolean>();
  return {
    connections,
    repository: (reference) => new Registry(reference, transport, context, { referrersApi, singlePosts }),
    repositories: (registry) => listRepositoryNames(transport, registry),
    close: () => {
      connections.close();
    },
  };
}
