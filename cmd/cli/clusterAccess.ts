import { connectCluster, type Cluster } from '../../lib/kubernetes/client.ts';
import type { Context } from '../../lib/context.ts';
import type { Arguments } from './command.ts';
import type { clusterOptions } from './options.ts';

/** Connects to the cluster that the cluster options of a command name. `certificateAuthority` is a PEM file. */
export function openCluster(
  args: Arguments<typeof clusterOptions> & { readonly certificateAuthority?: string | undefined },
  environment: NodeJS.ProcessEnv,
  context: Context,
): Promise<Cluster> {
  const { kubeconfig, cluster, user, server, token, username, password, namespace, as, asGroup, asUid, asUserExtra } =
    args;
  const { clientCertificate, clientKey, tlsServerName, requestTimeout } = args;
  // A missing option must not override the kubeconfig.
  const insecureSkipTlsVerify = args.insecureSkipTlsVerify || undefined;
  return connectCluster(
    {
      ...{ kubeconfig, context: args.context, cluster, user, server, namespace, environment },
      ...{ token, username, password, as, asGroup, asUid, asUserExtra },
      ...{ clientCertificate, clientKey, insecureSkipTlsVerify, tlsServerName, requestTimeout },
      certificateAuthority: args.certificateAuthority,
      hasTerminal: process.stdin.isTTY,
    },
    context,
  );
}

/**
 * Returns a function that connects to that cluster, for a command whose `--certificate-authority` is for registries, as
 * in oc. The function gets the default request timeout.
 */
export function clusterOpener(
  args: Arguments<typeof clusterOptions>,
  environment: NodeJS.ProcessEnv,
  context: Context,
): (requestTimeout?: string) => Promise<Cluster> {
  return (timeout) => {
    const requestTimeout = args.requestTimeout ?? timeout;
    return openCluster({ ...args, requestTimeout, certificateAuthority: undefined }, environment, context);
  };
}
