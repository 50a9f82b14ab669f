import { connectCluster, type Cluster } from '#cluster/client';
import { Credentials, MirrorSets, readMirrorSets, Registries, type RegistryAccess } from '#content/registry';
import type { Context } from '#context';
import manifest from '../../package.json' with { type: 'json' };
import type { Arguments } from './command.ts';
import { registryOptions, type clusterOptions } from './options.ts';
import { parseDuration } from './values.ts';

/** The name and version of this program, for registries and for files that it writes. */
export const tool = `${manifest.name}/${manifest.version}`;

/** Returns the settings, credentials and mirrors for registries, from the registry options of a command. */
export async function openAccess(
  args: Partial<Arguments<typeof registryOptions>>,
  environment: NodeJS.ProcessEnv,
): Promise<RegistryAccess> {
  const { pullSecret, idmsFile, certificateAuthority, insecure = false } = args;
  const { maxPerRegistry = registryOptions['max-per-registry'].default } = args;
  const retryTimeout = parseDuration(args.retryTimeout ?? registryOptions['retry-timeout'].default);
  const credentials = new Credentials({ file: pullSecret, environment, uid: process.getuid?.() });
  // Files on the command line must be valid, even if they are not needed.
  if (pullSecret !== undefined) await credentials.load();
  const proxies = pickProxies(environment);
  return {
    settings: { insecure, certificateAuthority, environment: proxies, maxPerRegistry, retryTimeout, userAgent: tool },
    credentials,
    mirrors: idmsFile === undefined ? new MirrorSets() : await readMirrorSets(idmsFile),
  };
}

/** Opens the registries that the registry options of a command describe. Throws `bad-credentials-file`. */
export async function openRegistries(
  args: Parameters<typeof openAccess>[0],
  environment: NodeJS.ProcessEnv,
  context: Context,
): Promise<Registries> {
  return new Registries(await openAccess(args, environment), context);
}

function pickProxies(environment: NodeJS.ProcessEnv): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => /^(?:https?|no|all)_proxy$/i.test(name)));
}

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
