import { dirname, join } from 'node:path';
import { formatManifest, type ConfigManifest } from '../config/manifest.ts';
import { writeTextFile, type FileOutcome } from '../config/manifestFile.ts';
import { checkFileWritable, describeWriteError, makeFolders } from '../files/disk.ts';

/** A file of the configuration. */
export interface TextFile {
  readonly path: string;
  readonly kind: string;
  readonly text: string;
}

/** A file that a run wrote, or in a dry run would write. */
export interface WrittenFile extends Pick<TextFile, 'path' | 'kind'> {
  readonly outcome: FileOutcome;
}

/** Makes the files of manifests below a folder, which replaces the `config` of their paths. */
export function configFiles(folder: string, manifests: readonly ConfigManifest[]): TextFile[] {
  return manifests.map(({ path, object }) => ({
    path: join(folder, path.replace(/^config\//, '')),
    kind: object.kind,
    text: formatManifest(object),
  }));
}

/** Makes the files of signature ConfigMaps with the names and the form (JSON in one line) of `oc adm release mirror`. */
export function signatureFiles(folder: string, signatures: readonly ConfigManifest[]): TextFile[] {
  return signatures.map(({ object }) => ({
    path: join(folder, `signature-${object.metadata.name.slice(0, 'sha256-'.length + 16)}.json`),
    kind: object.kind,
    text: `${JSON.stringify(object)}\n`,
  }));
}

/** Checks that files can be written, and makes their folders if this is no dry run. Throws `not-writable` and `disk-full`. */
export async function prepareFiles(files: readonly TextFile[], isDryRun: boolean): Promise<void> {
  for (const { path } of files) {
    await checkFileWritable(path);
    const folder = dirname(path);
    // Some folders look writable, and are not, such as /proc.
    if (!isDryRun) {
      await makeFolders(folder).catch((error: unknown) => {
        throw describeWriteError(error, folder);
      });
    }
  }
}

/** Writes files, or in a dry run only compares them. Throws what `writeTextFile` does. */
export async function writeFiles(files: readonly TextFile[], isDryRun: boolean): Promise<WrittenFile[]> {
  const written: WrittenFile[] = [];
  for (const { path, kind, text } of files) {
    written.push({ path, kind, outcome: await writeTextFile(path, text, isDryRun) });
  }
  return written;
}
