import { join } from 'node:path';
import { listObjects, type UnknownObject } from '#config/manifest';
import { mergeSignatures, readAllSignatures, signaturesIn, type SignaturesByDigest } from '#config/signatures';
import type { RootFolder } from '#content/files';
import { sumSizes } from '#content/oci';
import { takeTurn, type Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { type Bundle, type BundleFile, entryKindOf, describeProblem, type Problem } from '../open/bundle.ts';

/**
 * The limits for configuration in a bundle. A signature has 3 KB. A mirror directory may have signatures of a few
 * hundred releases.
 */
const configLimits = {
  files: 1000,
  /** The limits of one file and of all files, in bytes. */
  fileBytes: 1024 * 1024,
  bytes: 4 * 1024 * 1024,
  tokens: 200_000,
  /** The number of unreadable files after which reading stops. */
  unreadable: 5,
  /** The number of signatures of one digest. */
  signatures: 32,
} as const;

const manifestName = /\.(?:ya?ml|json)$/;

/** A configuration manifest that is not parsed yet. */
export interface ConfigText {
  readonly path: string;
  readonly text: string;
}

/** A configuration manifest that could be read. Nothing in it is verified. */
export interface ConfigFile extends ConfigText {
  readonly objects: readonly UnknownObject[];
  readonly signatures: SignaturesByDigest;
}

/** The parsed manifests in the `config` folder of a bundle. Their content is not checked yet: see checkConfig. */
export interface BundledConfig {
  readonly files: readonly ConfigFile[];
  /** The signatures of all files, each once. */
  readonly signatures: SignaturesByDigest;
  /** Manifests that cannot be read or exceed a limit. */
  readonly problems: readonly Problem[];
}

/**
 * Lists the configuration files of a bundle: all files below `config` in a tar, and the manifests there in a directory.
 * No other file is applied.
 */
export function listConfig({ files, form }: Pick<Bundle, 'files' | 'form'>): BundleFile[] {
  return files.filter(
    (file) => entryKindOf(file).kind === 'config' && (form === 'tar' || manifestName.test(file.path)),
  );
}

/**
 * Checks the number and the sizes of the configuration files of a bundle before they are read. Returns the limit that
 * is exceeded; undefined if none is.
 */
export function findExcess(files: readonly BundleFile[]): Problem | undefined {
  const excess = (what: string, words: string): Problem =>
    describeProblem('unexpected', 'file', what, `config ${words}: nothing of it is read`);
  if (files.length > configLimits.files) {
    return excess('config', `has ${files.length} files, more than the limit of ${configLimits.files}`);
  }
  const large = files.find(({ size }) => size > configLimits.fileBytes);
  if (large) return excess(large.path, `has ${large.path} of ${large.size} bytes, more than a manifest may have`);
  const bytes = sumSizes(files);
  if (bytes <= configLimits.bytes) return undefined;
  return excess('config', `has ${bytes} bytes, more than the limit of ${configLimits.bytes}`);
}

/**
 * Reads the configuration of a bundle, within limits. Throws the errors of reading the bundle. Reports all other faults
 * as problems.
 */
export async function readBundledConfig(bundle: Bundle, context: Context): Promise<BundledConfig> {
  const files = listConfig(bundle);
  const excess = findExcess(files);
  if (excess) return { files: [], signatures: new Map(), problems: [excess] };
  const texts: ConfigText[] = [];
  for (const { path } of files) texts.push({ path, text: (await bundle.read(path)).toString() });
  return parseConfig(texts, context);
}

/**
 * Reads the signatures in the configuration of a bundle, unverified. Throws `invalid-file` for a file that cannot be
 * read.
 */
export async function readBundledSignatures(bundle: Bundle, context: Context): Promise<SignaturesByDigest> {
  const { signatures, problems } = await readBundledConfig(bundle, context);
  const [first] = problems;
  if (first) throw new PluginError('invalid-file', `${bundle.path}: ${first.message}`);
  return signatures;
}

/** Parses configuration manifests one by one. Stops between two manifests if the signal is aborted. */
export async function parseConfig(texts: readonly ConfigText[], context: Context): Promise<BundledConfig> {
  const files: ConfigFile[] = [];
  const problems: Problem[] = [];
  let total = 0;
  for (const { path, text } of texts) {
    await takeTurn(context.signal);
    try {
      const { objects, tokens } = listObjects(text, path);
      total += tokens;
      if (total > configLimits.tokens) {
        problems.push(describeProblem('unexpected', 'file', path, 'config has more YAML than any release needs'));
        break;
      }
      files.push({ path, text, objects, signatures: signaturesIn(objects, path) });
    } catch (error) {
      if (!isPluginError(error, 'invalid-file')) throw error;
      problems.push(describeProblem('corrupt', 'file', path, error.message));
      // Unreadable files take as much time as readable ones.
      if (problems.length >= configLimits.unreadable) break;
    }
  }
  const signatures = mergeSignatures(files.map((file) => file.signatures));
  for (const [digest, list] of signatures) {
    if (list.length <= configLimits.signatures) continue;
    const words = `config has ${list.length} signatures of ${digest}, more than any release has`;
    problems.push(describeProblem('unexpected', 'signature', digest, words));
  }
  const usable = [...signatures].filter(([, list]) => list.length <= configLimits.signatures);
  return { files, signatures: new Map(usable), problems };
}

/**
 * Reads the manifests in a folder below a root as texts; none if the folder does not exist. Throws the errors of
 * RootFolder, and `too-large` above the limits of a bundle.
 */
export async function readConfigFolder(root: RootFolder, folder: string, signal: AbortSignal): Promise<ConfigText[]> {
  const files = (await root.tree(signal, folder)).filter(({ path }) => manifestName.test(path));
  const excess = findExcess(files.map(({ path, stats }) => ({ path, size: stats.size })));
  if (excess) throw new PluginError('too-large', `${root.path}: ${excess.message}`);
  const texts: ConfigText[] = [];
  for (const { path } of files) {
    texts.push({ path: join(root.path, path), text: String(await root.read(path, configLimits.fileBytes)) });
  }
  return texts;
}

/**
 * Reads the signatures in the `config` folder of a mirror directory, unverified. Throws the errors of readConfigFolder,
 * and `invalid-file`.
 */
export async function readFolderSignatures(root: RootFolder, { signal }: Context): Promise<SignaturesByDigest> {
  return readAllSignatures(await readConfigFolder(root, 'config', signal));
}
