import type { Cluster } from '#cluster/client';
import { subjectOf, type Finding, type Severity, type Subject } from '#cluster/finding';
import { type TlsOptions, Connections } from '#content/http';
import type { Context } from '#context';
import { asFailure, isPluginError, type PluginError } from '#errors';
import { fieldsAt, textOf } from '#fields';
import { authorityMapName, findSiteMirror } from './mirrorObjects.ts';
import { listAddresses, listControlPlane, type MirrorSite } from './mirrorSite.ts';

/** Short limits, in milliseconds: the network of the nodes may be another one than that of this machine. */
const limits = { connectTimeout: 5000, idleTimeout: 10_000 };

const advice = {
  denied: 'Run preflight with an account that may read it, such as one with the role cluster-reader.',
  authority: 'Install the mirrors again: the machine config controller trusts them by this key.',
  unreachable:
    'Nodes and pods need this port, this machine does not. The controller asks each mirror before an update begins.',
  slow:
    'Start it, or remove it from the mirror set: a pull that comes to it waits up to 30 s, also in the machine ' +
    'config controller.',
  other:
    'Another service or machine answers there, or the certificate was not renewed: see journalctl -u ' +
    'oc-upgrade-bundle-mirror on the node.',
};

/**
 * Asks the mirror of each control plane node from this machine. Trusts the CA that the machine config controller
 * trusts, and no other. Returns a finding for each mirror that did not answer as one. Throws `interrupted`, and the
 * errors of the cluster, except that the CA may not be read.
 */
export async function probeMirrors(
  cluster: Cluster,
  { nodes, trustedAuthorities }: Pick<MirrorSite, 'nodes' | 'trustedAuthorities'>,
  port: number,
  { signal }: Pick<Context, 'signal'>,
): Promise<Finding[]> {
  const metadata = { name: trustedAuthorities ?? authorityMapName, namespace: 'openshift-config' };
  const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata };
  const read = await cluster.read(map).catch((error: unknown) => {
    if (!isPluginError(error, 'denied')) throw error;
    return 'denied' as const;
  });
  if (read === 'denied')
    return [find('info', subjectOf(map), 'may not be read: the mirrors were not asked', advice.denied)];
  const key = `localhost..${port}`;
  const authority = textOf(fieldsAt(read, 'data')[key]);
  if (authority === undefined) return [find('warning', subjectOf(map), `does not have ${key}`, advice.authority)];
  const mirrors = listControlPlane(nodes).flatMap((node) =>
    listAddresses([node]).map((address) => ({ host: `${address}:${port}`, subject: subjectOf(node) })),
  );
  // Nothing else has a certificate of this CA.
  return ask(mirrors, { ca: [authority] }, signal, ({ subject }, error) =>
    error.code === 'unreachable'
      ? find('info', subject, `its mirror was not asked: ${error.message}`, advice.unreachable)
      : find('warning', subject, `its mirror is not trusted: ${error.message}`, advice.other),
  );
}

/** Finds mirrors of the site for our sources that do not answer this machine. Throws `interrupted`. */
export async function probeSiteMirrors(
  { siteMirrors, sources }: Pick<MirrorSite, 'siteMirrors' | 'sources'>,
  { signal }: Pick<Context, 'signal'>,
): Promise<Finding[]> {
  const mirrors = sources.flatMap((source) => findSiteMirror(siteMirrors, source)?.mirrors ?? []);
  const hosts = [...new Set(mirrors.map((mirror) => mirror.split('/')[0] ?? ''))].map((host) => ({ host }));
  return ask(hosts, {}, signal, ({ host }, { code, message }) => {
    // A certificate that this machine does not trust is an answer too.
    if (code !== 'unreachable') return undefined;
    return find('warning', { kind: 'Mirror', name: host }, `does not answer: ${message}`, advice.slow);
  });
}

/** Asks registries by TLS whether they are there, all at once. Describes each failure. */
async function ask<Asked extends { readonly host: string }>(
  registries: readonly Asked[],
  trust: TlsOptions,
  signal: AbortSignal,
  describe: (registry: Asked, error: PluginError) => Finding | undefined,
): Promise<Finding[]> {
  const connections = new Connections({ certificates: { for: () => Promise.resolve(trust) }, ...limits });
  const probe = async (registry: Asked): Promise<Finding | undefined> => {
    try {
      const url = new URL(`https://${registry.host}/v2/`);
      (await connections.exchange({ method: 'GET', url, headers: {}, signal })).body.destroy();
      return undefined;
    } catch (error) {
      return describe(registry, asFailure(error));
    }
  };
  try {
    return (await Promise.all(registries.map(probe))).filter((each) => each !== undefined);
  } finally {
    connections.close();
  }
}

function find(severity: Exclude<Severity, 'blocker'>, subject: Subject, message: string, advised: string): Finding {
  return { check: 'mirrors', severity, subject, message, advice: advised };
}
