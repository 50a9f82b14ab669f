import type { ApplyOutcome } from '#cluster/apply';
import { formatObjectName, type ObjectReference } from '#cluster/objects';
import { PluginError } from '#errors';
import { Lines, listBelow } from '#text';
import { agentNamespace } from '#update/record';
import type { Terminal } from '../terminal.ts';

/** The kind of dry run. */
export type DryRun = 'none' | 'client' | 'server';

/** Logs the warnings and errors of applied objects. */
export function warnOfOutcomes(outcomes: readonly ApplyOutcome[], { log }: Pick<Terminal, 'log'>): void {
  for (const { manifest, outcome, differences = [], kept = [], error, warning } of outcomes) {
    const name = formatObjectName(manifest.object);
    if (warning !== undefined) log('warn', warning);
    if (error) log('warn', new Lines(`${name}: ${error.message}`, ...(error.hint ? [`  ${error.hint}`] : [])));
    if (outcome === 'conflict') {
      const title = `${name} exists with other content and is left alone; --overwrite replaces it:`;
      log('warn', listBelow(title, differences));
    } else if (kept.length > 0) {
      const title = `${name} keeps mirrors that the manifest does not have; oc edit removes them:`;
      log('info', listBelow(title, kept));
    }
  }
}

/** Formats the line for an object: `configmap/sha256-… created`. */
export function formatOutcome({ manifest, outcome }: ApplyOutcome, dryRun: DryRun): string {
  return `${formatObjectName(manifest.object)} ${outcome}${suffixOf(dryRun)}`;
}

/** Returns the outcome of an applied object for `--output`. `error` is its message. */
export function toPlainOutcome({ manifest, outcome, differences, kept, error, warning }: ApplyOutcome) {
  const object = formatObjectName(manifest.object);
  return { object, path: manifest.path, outcome, differences, kept, error: error?.message, warning };
}

/** Throws one `partial` error for all objects that were not applied. */
export function checkOutcomes(outcomes: readonly ApplyOutcome[], dryRun: DryRun): void {
  const isSkipped = outcomes.every(({ outcome }) => outcome === 'skipped');
  const failed = outcomes.filter(({ outcome }) => isSkipped || outcome === 'failed' || outcome === 'conflict');
  if (failed.length === 0) return;
  const names = failed.map(({ manifest, outcome }) => `${formatObjectName(manifest.object)} ${outcome}`);
  const were = dryRun === 'none' ? 'were not' : 'would not be';
  const others = dryRun === 'none' && failed.length < outcomes.length ? 'The rest is done. ' : '';
  const message = `${failed.length} of ${outcomes.length} objects ${were} applied: ${names.join(', ')}`;
  const hint = `${others}Fix what the warnings name, and run the same command again.`;
  throw new PluginError('partial', message, { hint });
}

/** Returns the suffix for a line of a dry run. */
export function suffixOf(dryRun: DryRun): string {
  return { none: '', client: ' (dry run)', server: ' (server dry run)' }[dryRun];
}

/**
 * Formats the line for an object, in the words of kubectl. Adds its namespace if it is not our own:
 * `role/oc-upgrade-bundle -n openshift-config-managed created`.
 */
export function formatObject(object: ObjectReference, outcome: string, dryRun: DryRun): string {
  const { namespace = agentNamespace } = object.metadata;
  const place = namespace === agentNamespace ? '' : ` -n ${namespace}`;
  return `${formatObjectName(object)}${place} ${outcome}${suffixOf(dryRun)}`;
}
