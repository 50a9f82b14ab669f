import { connectCluster, type Cluster } from '#cluster/client';
import type { Context } from '#context';
import type { Arguments } from './command.ts';
import type { clusterOptions } from './options.ts';

/** Connects to the cluster that the cluster options of a command name. In a dry run, no write takes effect. */
export function openCluster(
  args: Arguments<typeof clusterOptions>,
  environment: NodeJS.ProcessEnv,
  context: Context,
  dryRun: 'none' | 'client' | 'server' = 'none',
): Promise<Cluster> {
  const { kubeconfig, cluster, user, server, token, username, password, namespace, as, asGroup, asUid, asUserExtra } =
    args;
  const { clientCertificate, clientKey, tlsServerName, requestTimeout } = args;
  // A missing option must not override the kubeconfig.
  const insecureSkipTlsVerify = args.insecureSkipTlsVerify || undefined;
  return connectCluster(
    {
      kubeconfig,
      context: args.context,
      cluster,
      user,
      server,
      namespace,
      environment,
      token,
      username,
      password,
      as,
      asGroup,
      asUid,
      asUserExtra,
      clientCertificate,
      clientKey,
      insecureSkipTlsVerify,
      tlsServerName,
      requestTimeout,
      dryRun: dryRun === 'none' ? undefined : dryRun,
      certificateAuthority: args.clusterCertificateAuthority,
      hasTerminal: process.stdin.isTTY,
    },
    context,
  );
}

/** Returns a function that connects to that cluster. It gets the default request timeout. */
export function clusterOpener(
  args: Arguments<typeof clusterOptions>,
  environment: NodeJS.ProcessEnv,
  context: Context,
): (requestTimeout?: string) => Promise<Cluster> {
  return (timeout) => openCluster({ ...args, requestTimeout: args.requestTimeout ?? timeout }, environment, context);
}
