import { dirname, join, relative } from 'node:path';
import { formatManifest, type ConfigManifest, prepareFolder, writeTextFile, type FileOutcome } from '#config/manifest';
import { checkFileWritable, describeWriteError } from '#content/files';

/** A file of the configuration. */
export interface TextFile {
  /** The folder that the user named. Links below it are not followed. */
  readonly root: string;
  /** The path below it. */
  readonly path: string;
  readonly kind: string;
  readonly text: string;
}

/** A file that a run wrote, or in a dry run would write. */
export interface WrittenFile extends Pick<TextFile, 'path' | 'kind'> {
  readonly outcome: FileOutcome;
}

/**
 * Makes the files of manifests in a folder, which replaces the `config` of their paths. `root` is the folder that the
 * user named: this one or a parent.
 */
export function configFiles(folder: string, manifests: readonly ConfigManifest[], root = folder): TextFile[] {
  return manifests.map(({ path, object }) => ({
    root,
    path: join(relative(root, folder), path.replace(/^config\//, '')),
    kind: object.kind,
    text: formatManifest(object),
  }));
}

/**
 * Makes the files of signature ConfigMaps with the names and the form (JSON in one line) of `oc adm release mirror`.
 */
export function signatureFiles(folder: string, signatures: readonly ConfigManifest[]): TextFile[] {
  return signatures.map(({ object }) => ({
    root: folder,
    path: `signature-${object.metadata.name.slice(0, 'sha256-'.length + 16)}.json`,
    kind: object.kind,
    text: `${JSON.stringify(object)}\n`,
  }));
}

/**
 * Checks that files can be written, and makes their folders if this is no dry run. Throws `not-writable`, also for a
 * link below the named folder, and `disk-full`.
 */
export async function prepareFiles(files: readonly TextFile[], isDryRun: boolean): Promise<void> {
  for (const { root, path } of files) {
    const whole = join(root, path);
    await checkFileWritable(whole);
    try {
      // Some folders look writable, and are not, such as /proc.
      await using _folder = await prepareFolder(root, dirname(path), isDryRun);
    } catch (error) {
      throw describeWriteError(error, dirname(whole));
    }
  }
}

/** Writes files, or in a dry run only compares them. Returns whole paths. Throws what `writeTextFile` does. */
export async function writeFiles(files: readonly TextFile[], isDryRun: boolean): Promise<WrittenFile[]> {
  const written: WrittenFile[] = [];
  for (const { root, path, kind, text } of files) {
    written.push({ path: join(root, path), kind, outcome: await writeTextFile(root, path, text, isDryRun) });
  }
  return written;
}
