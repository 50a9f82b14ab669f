import type { Bundle } from '../../lib/bundle/bundle.ts';
import type { SignedBundle } from '../../lib/bundle/signedBundle.ts';
import type { PushResult } from '../../lib/bundle/deliver/push.ts';
import type { Applied } from '../../lib/mirroring/clusterConfig.ts';
import { shellWord } from '../../lib/shellWord.ts';
import { formatBytes, formatFields, nameReleases } from '../cli/format.ts';
import { listExtraImages } from '../cli/extraImages.ts';
import { describePolicies, nameSigners, toPlainPolicies } from '../cli/trust.ts';
import { formatOutcome, toPlainOutcome } from '../release-mirror-config/applyReport.ts';
import { clusterWords, registryWords, trustWords, upgradeCommand } from '../release-mirror-config/carriedOptions.ts';

/** The result of a push, and what was applied to the cluster if that was requested. */
export type PushOutcome = PushResult & Partial<Applied>;

/** The arguments of a push that its report repeats. */
export interface PushArguments extends Readonly<Record<string, unknown>> {
  readonly to: string;
  readonly base: readonly string[];
}

/** Returns the result of a push as plain data. */
export function toPlainPushed(outcome: PushOutcome, { signatures, policies }: SignedBundle): object {
  const { applied, failure, ...result } = outcome;
  const signers = [...signatures.values()]
    .flat()
    .map(({ digest, fingerprint, userId }) => ({ digest, fingerprint, signer: userId }));
  const sigstore = toPlainPolicies(policies);
  const plain = { ...result, signatures: signers, sigstore, command: upgradeCommand(result.release) };
  return { ...plain, ...(applied && { applied: applied.map(toPlainOutcome), error: failure?.message }) };
}

/** Formats the result of a push as text, with the commands that follow on the cluster. */
export function formatPushed(
  outcome: PushOutcome,
  signed: SignedBundle,
  { path, metadata }: Pick<Bundle, 'path' | 'metadata'>,
  args: PushArguments,
): string {
  const { images, attachments, tags, blobs, bytes, applied } = outcome;
  const isNew = blobs.uploaded + blobs.mounted > 0;
  const uploaded = `${blobs.uploaded} uploaded (${formatBytes(bytes)})`;
  const rows = [
    ['Release', outcome.release],
    ['Version', `${nameReleases(metadata)} ${metadata.arch}`],
    ['Signed by', nameSigners(signed)],
    ...describePolicies(signed.policies),
    ['Images', `${images}, ${attachments} sigstore attachments, ${tags} tags`],
    ...listExtraImages(outcome.extraImages),
    ['Blobs', `${uploaded}, ${blobs.mounted} mounted, ${blobs.skipped} present`],
  ];
  const bases = args.base.map((base) => ` --base=${shellWord(base)}`).join('');
  const again = `${shellWord(path)} --to=${shellWord(args.to)}${bases}${registryWords(args)}${trustWords(args)}`;
  const updates = (outcome.releases ?? [outcome.release]).map(
    (release) => `  ${upgradeCommand(release)}${clusterWords(args)}`,
  );
  const steps = [
    ...(applied
      ? []
      : [
          'Apply the signature of the release, and a mirror set for the destination (from a machine that reaches the cluster):',
          `  oc adm-upgrade-bundle push ${again} --apply-config${clusterWords(args)}`,
        ]),
    ...(outcome.failure
      ? []
      : [`Update the cluster${updates.length > 1 ? ', to one release after the other' : ''}:`, ...updates]),
  ];
  return [
    isNew ? 'Pushed' : 'Nothing to do: everything is present',
    formatFields(rows),
    ...(applied ?? []).map((each) => formatOutcome(each, 'none')),
    ...steps,
  ].join('\n');
}
