import { fieldsAt, fieldsOf, listOf, textOf, textsOf } from '../../fields.ts';
import { readClusterVersion } from '../../cluster/clusterVersion.ts';
import { conditionsOf, type StoredObject } from '../../cluster/storedObject.ts';
import { digestIn } from '../../content/oci/reference.ts';
import { isOlder } from '../../release/version.ts';
import { shellCommand } from '../../shellWord.ts';
import type { BundleFacts } from '../bundleFacts.ts';
import { falseCondition, listNames, type BundleCondition } from '../conditions.ts';
import type { UpgradeBundle } from '../upgradeBundle.ts';
import type { Observation } from './observation.ts';

/** The known risks of the next update, and of the updates after it. */
export interface RiskVerdict {
  /** Whether the next update has a risk that is not accepted. */
  readonly lacks: boolean;
  /** The condition about all of them; empty if it stays as it is. */
  readonly conditions: readonly BundleCondition[];
}

/**
 * Finds the known risks of the updates that neither `spec.acceptRisks` nor ClusterVersion accepts. The cluster knows
 * risks by its update graph, and metadata.json claims some. A claim can delay an update, and accepts nothing.
 */
export function checkRisks({ bundle, site }: Pick<Observation, 'bundle' | 'site'>, facts: BundleFacts): RiskVerdict {
  const { clusterVersion } = site;
  const { version: running } = readClusterVersion(clusterVersion);
  const { acceptRisks = [] } = bundle.spec;
  const accepted = new Set([...acceptRisks, ...listAcceptedRisks(clusterVersion)]);
  const own = facts.metadata.version;
  const due = (facts.hops ?? [facts]).filter(
    ({ metadata: { version } }) => version === own || isOlder(running, version),
  );
  const lacking = due.flatMap(({ metadata: { version, release, risks = [] } }) => {
    const clusterRisks = listKnownRisks(clusterVersion, release);
    const names = [...new Set([...clusterRisks, ...risks.map(({ name }) => name)])];
    const source = (name: string): string =>
      clusterRisks.includes(name) ? 'this cluster says' : 'the bundle says, not covered by its signature';
    return names.filter((name) => !accepted.has(name)).map((name) => ({ version, name, source: source(name) }));
  });
  if (lacking.length === 0) {
    const isStale = conditionsOf(bundle).get('RisksAccepted')?.status === 'False';
    const message = 'no known risk is left to accept';
    const accepted = { type: 'RisksAccepted', status: 'True', reason: 'Accepted', message } as const;
    return { lacks: false, conditions: isStale ? [accepted] : [] };
  }
  const words = lacking.map(({ version, name, source }) => `${name} of the update to ${version} (${source})`);
  const accepting = [...new Set([...acceptRisks, ...lacking.map(({ name }) => name)])];
  const command = formatSpecPatch(bundle.metadata.name, { acceptRisks: accepting });
  const message = `known risks are not accepted: ${listNames(words)}. Check whether they concern this cluster. To accept them: ${command}`;
  return {
    lacks: lacking.some(({ version }) => version === own),
    conditions: [falseCondition('RisksAccepted', 'RiskNotAccepted', message)],
  };
}

/** Returns the command that changes fields of the spec of an UpgradeBundle. */
export function formatSpecPatch(name: string, spec: Partial<UpgradeBundle['spec']>): string {
  return shellCommand`oc patch upgradebundle ${name} --type=merge --patch=${JSON.stringify({ spec })}`;
}

/** Lists the names of the risks that ClusterVersion accepts. */
export function listAcceptedRisks(clusterVersion: StoredObject): string[] {
  const { acceptRisks } = fieldsAt(clusterVersion, 'spec', 'desiredUpdate');
  return listOf(acceptRisks).flatMap(({ name }) => textOf(name) ?? []);
}

/** Lists the risks for which the version operator does not recommend the update to a release. */
function listKnownRisks(clusterVersion: StoredObject, release: string): string[] {
  const updates = listOf(fieldsOf(clusterVersion['status'])['conditionalUpdates']);
  return updates
    .filter((update) => {
      const { image } = fieldsOf(update['release']);
      const { status } = conditionsOf({ status: update }).get('Recommended') ?? {};
      return digestIn(textOf(image) ?? '') === digestIn(release) && status !== 'True';
    })
    .flatMap(({ risks, riskNames }) => [
      ...listOf(risks).flatMap(({ name }) => textOf(name) ?? []),
      ...textsOf(riskNames),
    ]);
}
