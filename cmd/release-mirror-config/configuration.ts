import { join } from 'node:path';
import { applyManifests, type ApplyOptions, type ApplyOutcome } from '../../lib/kubernetes/apply.ts';
import type { Cluster } from '../../lib/kubernetes/client.ts';
import { formatManifest, type ConfigManifest, type KubernetesObject } from '../../lib/config/manifest.ts';
import { writeTextFile, type FileOutcome } from '../../lib/config/manifestFile.ts';
import type { Context } from '../../lib/context.ts';
import { PluginError } from '../../lib/errors.ts';

/** Whether and how something is only tried. */
export type DryRun = 'none' | 'client' | 'server';

/** A file that was, or would be, written. */
export interface WrittenFile {
  readonly path: string;
  readonly kind: string;
  readonly outcome: FileOutcome;
}

/** Writes manifests below a folder, which stands for the `config` of their paths. */
export async function writeConfiguration(
  folder: string,
  manifests: readonly ConfigManifest[],
  dryRun: DryRun,
): Promise<WrittenFile[]> {
  const files = manifests.map(({ path, object }) => ({
    path: join(folder, path.replace(/^config\//, '')),
    kind: object.kind,
    text: formatManifest(object),
  }));
  return writeFiles(files, dryRun);
}

/** Writes signature ConfigMaps into a folder by the names and in the form (JSON in one line) that `oc adm release mirror` has for them. */
export async function writeSignatureFiles(
  folder: string,
  signatures: readonly ConfigManifest[],
  dryRun: DryRun,
): Promise<WrittenFile[]> {
  const files = signatures.map(({ object }) => ({
    path: join(folder, `signature-${object.metadata.name.slice(0, 'sha256-'.length + 16)}.json`),
    kind: object.kind,
    text: `${JSON.stringify(object)}\n`,
  }));
  return writeFiles(files, dryRun);
}

/** The line for a file: `Configmap config/signature/sha256/81154f5c03294534.yaml created`. */
export function formatFile({ path, kind, outcome }: WrittenFile, dryRun: DryRun): string {
  return `${kind.charAt(0).toUpperCase()}${kind.slice(1).toLowerCase()} ${path} ${outcome}${suffixOf(dryRun)}`;
}

/** Applies manifests, and says on stderr what was wrong with some of them. */
export async function applyConfiguration(
  cluster: Cluster,
  manifests: readonly ConfigManifest[],
  { overwrite, dryRun }: { overwrite: boolean; dryRun: DryRun },
  context: Context,
): Promise<ApplyOutcome[]> {
  const options: ApplyOptions = { overwrite, ...(dryRun !== 'none' && { dryRun }) };
  const outcomes = await applyManifests(cluster, manifests, options, context);
  for (const { manifest, outcome, differences = [], error, warning } of outcomes) {
    const name = nameOf(manifest.object);
    if (warning !== undefined) context.log('warn', warning);
    if (error)
      context.log('warn', [`${name}: ${error.message}`, ...(error.hint ? [`  ${error.hint}`] : [])].join('\n'));
    if (outcome === 'conflict') {
      const lines = [`${name} exists with other content and is left alone; --overwrite replaces it:`, ...differences];
      context.log('warn', lines.join('\n  '));
    }
  }
  return outcomes;
}

/** The line for an object: `configmap/sha256-… created`. */
export function formatOutcome({ manifest, outcome }: ApplyOutcome, dryRun: DryRun): string {
  return `${nameOf(manifest.object)} ${outcome}${suffixOf(dryRun)}`;
}

/** An outcome as plain data. */
export function toPlainOutcome({ manifest, outcome, differences, error, warning }: ApplyOutcome): object {
  return { object: nameOf(manifest.object), path: manifest.path, outcome, differences, error: error?.message, warning };
}

/** Throws one error for all objects that could not be applied, when everything else is done. */
export function checkOutcomes(outcomes: readonly ApplyOutcome[], dryRun: DryRun): void {
  const failed = outcomes.filter(({ outcome }) => outcome === 'failed' || outcome === 'conflict');
  if (failed.length === 0) return;
  const names = failed.map(({ manifest, outcome }) => `${nameOf(manifest.object)} ${outcome}`);
  const were = dryRun === 'none' ? 'were not' : 'would not be';
  const others = dryRun === 'none' && failed.length < outcomes.length ? 'The rest is done. ' : '';
  throw new PluginError(
    'partial',
    `${failed.length} of ${outcomes.length} objects ${were} applied: ${names.join(', ')}`,
    { hint: `${others}Set right what is said above, and run the same command again.` },
  );
}

function nameOf({ kind, metadata }: KubernetesObject): string {
  return `${kind.toLowerCase()}/${metadata.name}`;
}

function suffixOf(dryRun: DryRun): string {
  return { none: '', client: ' (dry run)', server: ' (server dry run)' }[dryRun];
}

async function writeFiles(
  files: readonly { path: string; kind: string; text: string }[],
  dryRun: DryRun,
): Promise<WrittenFile[]> {
  const written: WrittenFile[] = [];
  for (const { path, kind, text } of files) {
    written.push({ path, kind, outcome: await writeTextFile(path, text, dryRun !== 'none') });
  }
  return written;
}
