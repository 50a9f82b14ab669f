import { readFile, realpath, stat } from 'node:fs/promises';
import { basename, join, relative, sep, dirname } from 'node:path';
import {
  type ConfigManifest,
  type KubernetesObject,
  findManifestFiles,
  readObjects,
  type UnknownObject,
  formatManifest,
  prepareFolder,
  writeTextFile,
  type FileOutcome,
} from '#config/manifest';
import { checkFileWritable, describeWriteError } from '#content/files';
import { isPluginError, messageOf, PluginError } from '#errors';
import { isFields } from '#fields';

/**
 * Parses the manifests in texts: several documents and lists in each. `where` is the folder. Throws `not-found` without
 * a manifest, and `invalid-file` for a document that is not an object.
 */
export function parseManifests(texts: readonly ManifestText[], where: string): ConfigManifest[] {
  const manifests = texts.flatMap(({ path, text, file }) =>
    readObjects(text, file).map((object) => ({ path, object: checkObject(object, file) })),
  );
  if (manifests.length > 0) return manifests;
  throw new PluginError('not-found', `${where} has no manifests: no object in *.yaml, *.yml or *.json`, {
    hint: 'Name the “config” folder of a mirror directory.',
  });
}

/** A manifest file of a folder that is not parsed yet. */
export interface ManifestText {
  /** The path relative to the folder. */
  readonly path: string;
  readonly file: string;
  readonly text: string;
}

/**
 * Reads the texts of a file, or of a folder and its subfolders as `oc apply -Rf` does: `*.yaml`, `*.yml`, `*.json`,
 * sorted by path. Throws `not-found` without a folder, `not-readable`, and `too-large` above 4 MiB.
 */
export async function readManifestTexts(folder: string): Promise<ManifestText[]> {
  const texts: ManifestText[] = [];
  let length = 0;
  for (const { path, file } of await listFiles(folder)) {
    const text = await readFile(file, 'utf8').catch((cause: unknown) => {
      throw new PluginError('not-readable', `${file} cannot be read: ${messageOf(cause)}`, { cause });
    });
    length += text.length;
    if (length > 4 * largestFile) throw new PluginError('too-large', `${folder} has more than 4 MiB of manifests`);
    texts.push({ path, file, text });
  }
  return texts;
}

async function listFiles(folder: string): Promise<{ path: string; file: string }[]> {
  try {
    if (!(await stat(folder)).isDirectory()) {
      await checkFile(folder);
      return [{ path: basename(folder), file: folder }];
    }
    const files = (await findManifestFiles(folder))
      .map((file) => ({ path: relative(folder, file).replaceAll(sep, '/'), file }))
      .sort((a, b) => (a.path < b.path ? -1 : 1));
    const root = await realpath(folder);
    for (const { file } of files) await checkFile(file, root);
    return files;
  } catch (cause) {
    if (isPluginError(cause)) throw cause;
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') {
      throw new PluginError('not-found', `there is no ${folder}`, {
        hint: 'Check the path, and whether the medium is mounted.',
        cause,
      });
    }
    throw new PluginError('not-readable', `${folder} cannot be read: ${messageOf(cause)}`, { cause });
  }
}

/**
 * The largest file in bytes: the limit of an API server for one object. All files together may have four times as much.
 */
const largestFile = 1024 * 1024;

/** Throws `invalid-file` for pipes, devices, large files, and links that lead out of the folder `root`. */
async function checkFile(file: string, root?: string): Promise<void> {
  const stats = await stat(file);
  if (!stats.isFile()) throw new PluginError('invalid-file', `${file} is not a regular file`);
  if (root !== undefined && !(await realpath(file)).startsWith(join(root, sep))) {
    throw new PluginError('invalid-file', `${file} is a link that leads out of the folder`, {
      hint: 'Check its target (ls -l), and replace the link with a copy if it is intended.',
    });
  }
  if (stats.size <= largestFile) return;
  throw new PluginError('too-large', `${file} has ${stats.size} bytes, too many for manifests (at most 1 MiB)`, {
    hint: 'For a bundle or a mirror directory: oc adm-release-mirror-config apply BUNDLE',
  });
}

function checkObject(object: UnknownObject, file: string): KubernetesObject {
  checkIdentity(object, file);
  return object;
}

function checkIdentity(object: UnknownObject, file: string): asserts object is KubernetesObject {
  const { apiVersion, kind, metadata } = object;
  const name = isFields(metadata) ? metadata['name'] : undefined;
  const lacking = Object.entries({ apiVersion, kind, 'metadata.name': name })
    .filter(([, value]) => typeof value !== 'string' || value === '')
    .map(([field]) => field);
  if (lacking.length === 0) return;
  throw new PluginError('invalid-file', `${file} has an object without ${lacking.join(' and ')}`);
}

/** A file of the configuration. */
interface TextFile {
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
