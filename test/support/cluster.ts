import { connectCluster, type Cluster } from '../../lib/cluster/client.ts';
import { startApiServer, type ApiServerOptions, type TestApiServer } from '../fakes/kubernetes/apiServer.ts';
import { makeContext, type TestContext } from './context.ts';
import { makeKubeconfigFolder, type KubeconfigContent } from './kubeconfig.ts';

/** A connection of a test to a cluster, through a real kubeconfig file and without long pauses. */
export interface ConnectedCluster extends AsyncDisposable {
  readonly cluster: Cluster;
  readonly context: TestContext;
  close(): Promise<void>;
}

/** An API server in this process, and a connection to it. `close` ends both. */
export interface StartedCluster extends ConnectedCluster {
  readonly server: TestApiServer;
}

/** Short waits, so that a test of a fault is fast. */
export const hasty = { attempts: 3, baseDelay: 5, longestDelay: 20, longestWait: 5000 };

/** Connects to a server in this process. */
export async function connectTo(
  server: Pick<TestApiServer, 'url'>,
  content: Partial<KubeconfigContent> = {},
  requestTimeout = 60_000,
): Promise<ConnectedCluster> {
  const kubeconfigs = await makeKubeconfigFolder();
  const kubeconfig = await kubeconfigs.write({ ...content, cluster: { server: server.url, ...content.cluster } });
  const context = makeContext();
  const cluster = await connectCluster({ kubeconfig, environment: {}, retry: hasty, requestTimeout }, context);
  const close = async (): Promise<void> => {
    cluster[Symbol.dispose]();
    await kubeconfigs.remove();
  };
  return { cluster, context, close, [Symbol.asyncDispose]: close };
}

/** Starts an API server in this process, and connects to it; with `tokens` by the token `t`. */
export async function startCluster(options: ApiServerOptions = {}, requestTimeout?: number): Promise<StartedCluster> {
  const server = await startApiServer(options);
  const connected = await connectTo(server, options.tokens ? { user: { token: 't' } } : {}, requestTimeout);
  const close = async (): Promise<void> => {
    await connected.close();
    await server.stop();
  };
  return { ...connected, server, close, [Symbol.asyncDispose]: close };
}
