import { splitReleases, type BundleMetadata } from '../../../lib/bundle/metadata.ts';
import type { Context } from '../../../lib/context.ts';
import { describeRisk } from '../../../lib/release/graph/updatePath.ts';
import { shellWord } from '../../../lib/shellWord.ts';

/** Warns of the known risks that a bundle claims. `accepted`: the names that the UpgradeBundle accepts; undefined if there is none. */
export function warnOfClaimedRisks(
  releases: readonly Pick<BundleMetadata, 'version' | 'risks'>[],
  accepted: readonly string[] | undefined,
  context: Context,
): void {
  for (const { version, risks = [] } of releases)
    for (const risk of risks) {
      const isAccepted = accepted?.includes(risk.name) === true;
      const option = `--accept-risk=${shellWord(risk.name)}`;
      const how = isAccepted ? 'it is accepted' : `to accept it, ${accepted ? 'add' : 'give apply'} ${option}`;
      const claim = `the bundle says, not covered by its signature: ${describeRisk(risk, version)}`;
      context.log(isAccepted ? 'info' : 'warn', `${claim}; ${how}`);
    }
}

/** Warns of the known risks that metadata.json claims, for a command that accepts none. */
export function warnOfRisksIn(metadata: BundleMetadata, context: Context): void {
  warnOfClaimedRisks(splitReleases(metadata), undefined, context);
}
