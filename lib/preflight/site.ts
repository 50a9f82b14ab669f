import { fieldsAt, fieldsOf, listOf, textOf } from '../fields.ts';
import type { SiteOperator, SiteReport } from '../config/siteReport.ts';
import type { Cluster } from '../kubernetes/client.ts';
import { clusterVersionReference, readClusterVersion } from '../kubernetes/clusterVersion.ts';
import type { StoredObject } from '../kubernetes/fields.ts';
import { formatSubject } from '../kubernetes/finding.ts';
import { parseArchitecture } from '../release/version.ts';
import { readNode } from './node.ts';
import type { Preflight } from './preflight.ts';

const operatorGroup = 'operators.coreos.com/v1alpha1';

/** Reads the facts of a site after preflight. Throws the errors of the cluster. */
export async function readSite(cluster: Cluster, { findings }: Preflight, tool: string): Promise<SiteReport> {
  const clusterVersion = (await cluster.read(clusterVersionReference)) ?? clusterVersionReference;
  const { version, channel = '', multi } = readClusterVersion(clusterVersion);
  const nodes = (await cluster.list('v1', 'Node')).map(readNode);
  const architectures = [...new Set(nodes.map(({ architecture }) => architecture))];
  const [architecture = 'amd64'] = architectures;
  return {
    formatVersion: 1,
    created: new Date().toISOString(),
    tool,
    version,
    arch: multi || architectures.length > 1 ? 'multi' : parseArchitecture(architecture),
    channel,
    history: listOf(fieldsAt(clusterVersion, 'status')['history']).map((entry) => ({
      version: textOf(entry['version']) ?? '',
      state: textOf(entry['state']) ?? '',
    })),
    nodes: nodes.map(({ name, architecture: own, capacity }) => ({
      ...{ name, architecture: own },
      ...(capacity !== undefined && { capacity }),
    })),
    operators: await listOperators(cluster),
    findings: findings
      .filter(({ severity }) => severity !== 'info')
      .map(({ severity, subject, message }) => ({ severity, object: formatSubject(subject), message })),
  };
}

/** Lists the operators that OLM installed, by their Subscriptions and ClusterServiceVersions. */
async function listOperators(cluster: Cluster): Promise<SiteOperator[]> {
  const list = async (kind: string): Promise<StoredObject[]> =>
    (await cluster.findKind(operatorGroup, kind)) ? cluster.list(operatorGroup, kind) : [];
  const [subscriptions, installed] = await Promise.all([list('Subscription'), list('ClusterServiceVersion')]);
  const operators = subscriptions.flatMap(({ metadata, spec, status }): SiteOperator[] => {
    const { name, channel, source } = fieldsOf(spec);
    const { installedCSV } = fieldsOf(status);
    const own = installed.find((each) => isNamed(each, metadata.namespace, installedCSV));
    const version = textOf(fieldsOf(own?.['spec'])['version']);
    if (!own || version === undefined || typeof name !== 'string') return [];
    const max = maxOpenShiftVersion(own);
    return [
      {
        ...{ name, version, channel: textOf(channel) ?? '', catalog: textOf(source) ?? '' },
        ...(max !== undefined && { maxOpenShiftVersion: max }),
      },
    ];
  });
  return operators.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function isNamed({ metadata }: StoredObject, namespace: string | undefined, name: unknown): boolean {
  return metadata.namespace === namespace && metadata.name === name;
}

// OLM sets Upgradeable to false for the next minor version above it (operator-lifecycle-manager, openshift/helpers.go).
function maxOpenShiftVersion({ metadata }: StoredObject): string | undefined {
  const text = metadata.annotations?.['olm.properties'];
  if (text === undefined) return undefined;
  try {
    const property = listOf(JSON.parse(text)).find(({ type }) => type === 'olm.maxOpenShiftVersion');
    return property && String(property['value']);
  } catch {
    return undefined;
  }
}
