import { basename } from 'node:path';
import { servedTar } from '../bundle/deliver/serve.ts';
import type { Context } from '../context.ts';
import { isPluginError, PluginError } from '../errors.ts';
import type { Connections } from '../content/http/connections.ts';
import type { RetryOptions } from '../content/http/retry.ts';
import { Transport, type ContentRequest } from '../content/registry/transport.ts';

/** A server of a bundle. */
export interface RemoteServer {
  /** The URL of a `serve`, or of a file on another server. */
  readonly url: URL;
  /** The token of the server. */
  readonly token: string | undefined;
  /** The retries; by default those of the registry client. */
  readonly retry?: RetryOptions;
}

/** Returns the request for a file of a server, and the transport for it. `what` is its name for messages. */
export function requestFile(
  { url, token, retry }: RemoteServer,
  what: string,
  connections: Connections,
  context: Context,
): { transport: Transport; request: ContentRequest } {
  const target = new URL(url);
  if (target.pathname === '/') target.pathname = servedTar;
  const authorization = token === undefined ? undefined : `Bearer ${token}`;
  const authorizer = { authorize: () => Promise.resolve(authorization) };
  // The content is proven by its digest, also over plain HTTP.
  const transport = new Transport(connections, authorizer, context, { ...retry, insecure: true });
  const repository = basename(target.pathname);
  return { transport, request: { registry: target.host, repository, what, target, actions: 'pull' } };
}

/** Throws the error of the first request to a server. A missing token gets a hint of its own. */
export function explainRefusal({ registry }: ContentRequest, error: unknown): never {
  if (!isPluginError(error, 'unauthorized')) throw error;
  throw new PluginError('unauthorized', `${registry} requires a token for the bundle`, {
    hint: 'Name the file with the token of the server.',
    settings: ['tokenFile'],
    cause: error,
  });
}
