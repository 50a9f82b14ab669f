import { join } from 'node:path';
import { formatManifest, type ConfigManifest } from '../config/manifest.ts';
import { writeTextFile, type FileOutcome } from '../config/manifestFile.ts';

/** A file that a run wrote, or in a dry run would write. */
export interface WrittenFile {
  readonly path: string;
  readonly kind: string;
  readonly outcome: FileOutcome;
}

/**
 * Writes manifests below a folder, which replaces the `config` of their paths. Throws the errors of `writeTextFile`.
 */
export function writeConfigFiles(
  folder: string,
  manifests: readonly ConfigManifest[],
  isDryRun: boolean,
): Promise<WrittenFile[]> {
  const files = manifests.map(({ path, object }) => ({
    path: join(folder, path.replace(/^config\//, '')),
    kind: object.kind,
    text: formatManifest(object),
  }));
  return writeFiles(files, isDryRun);
}

/** Writes signature ConfigMaps with the names and the form (JSON in one line) of `oc adm release mirror`. */
export function writeSignatureFiles(
  folder: string,
  signatures: readonly ConfigManifest[],
  isDryRun: boolean,
): Promise<WrittenFile[]> {
  const files = signatures.map(({ object }) => ({
    path: join(folder, `signature-${object.metadata.name.slice(0, 'sha256-'.length + 16)}.json`),
    kind: object.kind,
    text: `${JSON.stringify(object)}\n`,
  }));
  return writeFiles(files, isDryRun);
}

async function writeFiles(
  files: readonly { path: string; kind: string; text: string }[],
  isDryRun: boolean,
): Promise<WrittenFile[]> {
  const written: WrittenFile[] = [];
  for (const { path, kind, text } of files) {
    written.push({ path, kind, outcome: await writeTextFile(path, text, isDryRun) });
  }
  return written;
}
