import type { Context } from '../../context.ts';
import { isPluginError, messageOf } from '../../errors.ts';
import { fieldsAt, textOf } from '../../fields.ts';
import type { Cluster } from '../../cluster/client.ts';
import type { StoredObject } from '../../cluster/fields.ts';
import { subjectOf, type Finding, type Severity, type Subject } from '../../cluster/finding.ts';
import { Connections } from '../../content/http/connections.ts';
import { authorityMapName } from './mirrorObjects.ts';
import { listAddresses, listControlPlane, type MirrorSite } from './mirrorSite.ts';

/** Short limits, in milliseconds: the network of the nodes may be another one than that of this machine. */
const limits = { connectTimeout: 5000, idleTimeout: 10_000 };

const advice = {
  denied: 'Run preflight with an account that may read it, such as one with the role cluster-reader.',
  authority: 'Install the mirrors again: the machine config controller trusts them by this key.',
  unreachable:
    'Nodes and pods need this port, this machine does not. The controller asks each mirror before an update begins.',
  other:
    'Another service or machine answers there, or the certificate was not renewed: see journalctl -u oc-upgrade-bundle-mirror on the node.',
};

/**
 * Asks the mirror of each control plane node from this machine. Trusts the CA that the machine config controller trusts,
 * and no other. Returns a finding for each mirror that did not answer as one. Throws `interrupted`, and the errors of the
 * cluster, except that the CA may not be read.
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
  const certificates = { for: () => Promise.resolve({ ca: [authority] }) };
  const connections = new Connections({ certificates, ...limits });
  const probe = async (node: StoredObject, address: string): Promise<Finding[]> => {
    const url = new URL(`https://${address}:${port}/v2/`);
    try {
      const { body } = await connections.exchange({ method: 'GET', url, headers: {}, signal });
      body.destroy();
      // Nothing else has a certificate of this CA.
      return [];
    } catch (error) {
      if (!isPluginError(error) || error.code === 'interrupted') throw error;
      return error.code === 'unreachable'
        ? [find('info', subjectOf(node), `its mirror was not asked: ${messageOf(error)}`, advice.unreachable)]
        : [find('warning', subjectOf(node), `its mirror is not trusted: ${messageOf(error)}`, advice.other)];
    }
  };
  try {
    const asked = listControlPlane(nodes).flatMap((node) => listAddresses([node]).map((each) => probe(node, each)));
    return (await Promise.all(asked)).flat();
  } finally {
    connections.close();
  }
}

function find(severity: Severity, subject: Subject, message: string, advised: string): Finding {
  return { check: 'mirrors', severity, subject, message, advice: advised };
}
