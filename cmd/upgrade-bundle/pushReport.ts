import type { SignedBundle } from '../../lib/bundle/signedBundle.ts';
import type { PushResult } from '../../lib/bundle/deliver/push.ts';
import type { Applied } from '../../lib/mirroring/clusterConfig.ts';
import { shellWord } from '../../lib/shellWord.ts';
import { formatFields } from '../cli/format.ts';
import { formatBytes } from '../../lib/byteSize.ts';
import { listExtraImages } from '../cli/bundle/extraImages.ts';
import { describeSigned, nameVersions, toPlainSigned } from '../cli/trust.ts';
import { suffixOf, toPlainOutcome, type DryRun } from '../release-mirror-config/applyReport.ts';
import { clusterWords, registryWords, trustWords, upgradeCommand } from '../release-mirror-config/carriedOptions.ts';
import { Lines } from '../../lib/lines.ts';

/** The result of a push, and what was applied to the cluster if that was requested. */
export type PushOutcome = PushResult & Partial<Applied>;

/** The arguments of a push that its report repeats. */
export interface PushArguments extends Readonly<Record<string, unknown>> {
  readonly to: string;
  readonly base: readonly string[];
  readonly dryRun: DryRun;
}

/** Returns the result of a push as plain data. */
export function toPlainPushed({ applied, failure, ...result }: PushOutcome, signed: SignedBundle) {
  return {
    ...toPlainSigned(signed),
    ...result,
    command: upgradeCommand(result.release),
    ...(applied && { applied: applied.map(toPlainOutcome), error: failure?.message }),
  };
}

/** Formats the result of a push as text, with the commands that follow on the cluster. `path` is that of the bundle. */
export function formatPushed(result: ReturnType<typeof toPlainPushed>, path: string, args: PushArguments): Lines {
  const { images, attachments, tags, blobs, bytes, applied, error } = result;
  const isNew = blobs.uploaded + blobs.mounted > 0;
  const isDry = args.dryRun !== 'none';
  const uploaded = `${blobs.uploaded} ${isDry ? 'missing' : 'uploaded'} (${formatBytes(bytes)})`;
  const rows = [
    ['Release', result.release],
    ['Version', nameVersions(result)],
    ...describeSigned(result),
    ['Images', `${images}, ${attachments} sigstore attachments, ${tags} tags`],
    ...listExtraImages(result.extraImages),
    ['Blobs', `${uploaded}, ${blobs.mounted} mounted, ${blobs.skipped} present`],
  ];
  const bases = args.base.map((base) => ` --base=${shellWord(base)}`).join('');
  const again = `${shellWord(path)} --to=${shellWord(args.to)}${bases}${registryWords(args)}${trustWords(args)}`;
  const updates = (result.releases ?? [result.release]).map(
    (release) => `  ${upgradeCommand(release)}${clusterWords(args)}`,
  );
  const steps = [
    ...(applied
      ? []
      : [
          'Apply the signature of the release, and a mirror set for the destination (from a machine that reaches the cluster):',
          `  oc adm-upgrade-bundle push ${again} --apply-config${clusterWords(args)}`,
        ]),
    ...(error !== undefined
      ? []
      : [`Update the cluster${updates.length > 1 ? ', to one release after the other' : ''}:`, ...updates]),
  ];
  return new Lines(
    isNew ? (isDry ? 'Would be pushed' : 'Pushed') : 'Nothing to do: everything is present',
    formatFields(rows),
    ...(applied ?? []).map(({ object, outcome }) => `${object} ${outcome}${suffixOf(args.dryRun)}`),
    ...(isDry ? [] : steps),
  );
}
