import { constants } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type {
  CoreV1Event,
  V1ClusterRole,
  V1ClusterRoleBinding,
  V1ConfigMap,
  V1CustomResourceDefinition,
  V1DaemonSet,
  V1Lease,
  V1Namespace,
  V1NetworkPolicy,
  V1Node,
  V1Pod,
  V1Role,
  V1RoleBinding,
  V1Secret,
  V1SelfSubjectAccessReview,
  V1Service,
  V1ServiceAccount,
  V1ValidatingAdmissionPolicy,
  V1ValidatingAdmissionPolicyBinding,
} from '@kubernetes/client-node';
import { stringify } from 'yaml';
import {
  readDocuments,
  type DocumentLimits,
  type Documents,
  describeWriteError,
  makeFolders,
  partialName,
  writeAtomically,
  ignoreMissing,
  OpenedFolder,
  openRegular,
  readWhole,
} from '#content/files';
import { PluginError, isPluginError, messageOf } from '#errors';

/** A Kubernetes object with a name, as in a manifest. Fields other than these are not checked. */
export interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

/** A Kubernetes object, and the path of its file in a mirror directory or a bundle. */
export interface ConfigManifest {
  /** The path, relative and with slashes: `config/signature/sha256/81154f5c03294534.yaml`. */
  readonly path: string;
  readonly object: KubernetesObject;
}

const firstKeys = ['apiVersion', 'kind', 'metadata', 'name', 'namespace'];

/**
 * Formats an object as YAML for `oc apply`: the same bytes for the same object, in any order of its keys. The fields
 * that identify the object come first. `indentSeq` is false for lists that are indented as oc prints them.
 */
export function formatManifest(object: KubernetesObject, { indentSeq = true } = {}): string {
  return stringify(object, {
    indentSeq,
    sortMapEntries: (a, b) => compareKeys(String(a.key), String(b.key)),
    lineWidth: 0,
    // oc and kubectl read YAML 1.1, where yes, no, on and off are booleans.
    compat: 'yaml-1.1',
    aliasDuplicateObjects: false,
  });
}

function compareKeys(a: string, b: string): number {
  const rank = (key: string): number => firstKeys.indexOf(key) + 1 || firstKeys.length + 1;
  return rank(a) - rank(b) || (a < b ? -1 : a > b ? 1 : 0);
}

/** A Kubernetes object that was not checked. */
export type UnknownObject = Readonly<Record<string, unknown>>;

/**
 * The limits of one configuration file. API servers store no larger object, and this program writes far fewer objects
 * into one file.
 */
const manifestLimits: DocumentLimits = { length: 1024 * 1024, tokens: 20_000 };

/** The limits of files of users or releases: a kubeconfig for hundreds of clusters, the definitions of a release. */
export const largeLimits: DocumentLimits = { length: 4 * 1024 * 1024, tokens: 60_000 };

/**
 * Reads every object in a YAML or JSON text, in all documents and lists, as `oc apply` does. Throws `invalid-file` with
 * `where`.
 */
export function readObjects(text: string, where: string, limits: DocumentLimits = manifestLimits): UnknownObject[] {
  return listObjects(text, where, limits).objects;
}

/** Does the same, and also returns the number of YAML tokens in the text. */
export function listObjects(
  text: string,
  where: string,
  limits: DocumentLimits = manifestLimits,
): { objects: UnknownObject[]; tokens: number } {
  const { values, tokens } = readValues(text, where, limits);
  const objects = values
    .filter((value) => value !== null)
    .map((value) => (typeof value === 'object' ? value : {}) as UnknownObject);
  return { objects, tokens };
}

function readValues(text: string, where: string, limits: DocumentLimits): Documents {
  try {
    const { values, tokens } = readDocuments(text, limits);
    return { values: values.flatMap(flatten), tokens };
  } catch (cause) {
    // Aliases that multiply and deep nesting are only detected when values are created from them.
    const odd = cause instanceof ReferenceError || cause instanceof RangeError;
    const what = odd ? 'has a size, aliases or nesting that no manifest needs' : 'is neither YAML nor JSON';
    throw new PluginError('invalid-file', `${where} ${what}`, { cause });
  }
}

function flatten(value: unknown): unknown[] {
  const items = (value as { items?: unknown } | null)?.items;
  return Array.isArray(items) ? items.flatMap(flatten) : [value];
}

/** The outcome of writing a file, in the words of kubectl. */
export type FileOutcome = 'created' | 'configured' | 'unchanged';

/** The largest existing file that is compared, in bytes. */
const comparedSize = 16 * 1024 * 1024;

/**
 * Writes a small text file atomically, by its path below a folder that the user named, unless it already has this
 * content. Creates the folders. Follows no link below the named folder. With `dryRun`, only returns the outcome. Throws
 * `disk-full` and `not-writable`.
 */
export async function writeTextFile(root: string, path: string, text: string, dryRun = false): Promise<FileOutcome> {
  const whole = join(root, path);
  const name = basename(path);
  try {
    await using folder = await prepareFolder(root, dirname(path), dryRun);
    const before = folder && (await readText(folder, name));
    if (before === text) return 'unchanged';
    if (folder && !dryRun)
      await writeAtomically(folder.at(name), text, { partial: folder.at(partialName(name)), name: whole });
    return before === undefined ? 'created' : 'configured';
  } catch (error) {
    const described = describeWriteError(error, whole);
    if (isPluginError(described)) throw described;
    throw new PluginError('not-writable', `${whole} cannot be written: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Opens a folder below one that the user named, and creates both. With `dryRun`, returns undefined if it does not
 * exist. Throws `not-writable` for a link below the named folder, and the system’s errors.
 */
export async function prepareFolder(root: string, path: string, dryRun: boolean): Promise<OpenedFolder | undefined> {
  if (dryRun) return OpenedFolder.open(root, path).catch(ignoreMissing);
  await makeFolders(root);
  return OpenedFolder.open(root, path, true);
}

/** Returns the content of a file; undefined if it does not exist or cannot be read. Throws for a special file. */
async function readText(folder: OpenedFolder, name: string): Promise<string | undefined> {
  try {
    await using file = await openRegular(folder.at(name), constants.O_RDONLY, join(folder.path, name));
    return String(await readWhole(file, name, comparedSize));
  } catch (error) {
    if (isPluginError(error, 'not-writable')) throw error;
    return isPluginError(error, 'too-large') ? '' : undefined;
  }
}

/** The largest number of manifests in a folder, and of entries of any kind to search. */
const folderLimits = { manifests: 1000, entries: 100_000 };

/**
 * Lists the files with a manifest's extension in a folder, at any depth, in no order. Does not follow links to folders,
 * as the `recursive` of readdir would, because some lead in circles. Throws `too-large` above the limits, and the
 * errors of readdir.
 */
export async function findManifestFiles(folder: string): Promise<string[]> {
  const paths: string[] = [];
  const folders = [folder];
  let entries = 0;
  for (let next = folders.pop(); next !== undefined; next = folders.pop()) {
    for (const entry of await readdir(next, { withFileTypes: true })) {
      const path = join(next, entry.name);
      entries += 1;
      if (entry.isDirectory()) folders.push(path);
      else if (/\.(?:ya?ml|json)$/.test(entry.name)) paths.push(path);
      if (paths.length <= folderLimits.manifests && entries <= folderLimits.entries) continue;
      throw new PluginError('too-large', `${folder} has more files than the configuration of releases may have`, {
        hint: `At most ${folderLimits.manifests} manifests are read: remove the other files.`,
      });
    }
  }
  return paths;
}

/** The kinds of Kubernetes that are written, each with its apiVersion and its class of @kubernetes/client-node. */
interface Kinds {
  readonly ClusterRole: ['rbac.authorization.k8s.io/v1', V1ClusterRole];
  readonly ClusterRoleBinding: ['rbac.authorization.k8s.io/v1', V1ClusterRoleBinding];
  readonly ConfigMap: ['v1', V1ConfigMap];
  readonly CustomResourceDefinition: ['apiextensions.k8s.io/v1', V1CustomResourceDefinition];
  readonly DaemonSet: ['apps/v1', V1DaemonSet];
  readonly Event: ['v1', CoreV1Event];
  readonly Lease: ['coordination.k8s.io/v1', V1Lease];
  readonly Namespace: ['v1', V1Namespace];
  readonly NetworkPolicy: ['networking.k8s.io/v1', V1NetworkPolicy];
  readonly Node: ['v1', V1Node];
  readonly Pod: ['v1', V1Pod];
  readonly Role: ['rbac.authorization.k8s.io/v1', V1Role];
  readonly RoleBinding: ['rbac.authorization.k8s.io/v1', V1RoleBinding];
  readonly Secret: ['v1', V1Secret];
  readonly SelfSubjectAccessReview: ['authorization.k8s.io/v1', V1SelfSubjectAccessReview];
  readonly Service: ['v1', V1Service];
  readonly ServiceAccount: ['v1', V1ServiceAccount];
  readonly ValidatingAdmissionPolicy: ['admissionregistration.k8s.io/v1', V1ValidatingAdmissionPolicy];
  readonly ValidatingAdmissionPolicyBinding: ['admissionregistration.k8s.io/v1', V1ValidatingAdmissionPolicyBinding];
}

/**
 * An object of a kind of Kubernetes, as this program writes it. A field that the kind does not have is an error of the
 * compiler.
 */
export type Written<Kind extends keyof Kinds> = {
  [Each in Kind]: WrittenAs<Kinds[Each][0], Each, Json<Omit<Kinds[Each][1], IdentifyingField | 'status'>>>;
}[Kind];

type IdentifyingField = 'apiVersion' | 'kind' | 'metadata';

/**
 * The same for a kind that @kubernetes/client-node does not have. `Content` has its fields beside apiVersion, kind and
 * metadata.
 */
export type WrittenAs<ApiVersion extends string, Kind extends string, Content> = {
  readonly [Field in keyof Content]: Content[Field];
} & { readonly apiVersion: ApiVersion; readonly kind: Kind; readonly metadata: KubernetesObject['metadata'] };

/** A merge patch (RFC 7386) of an object: some of its fields, and null for each field to remove. */
export type MergePatch<Target> = Target extends readonly unknown[]
  ? Target
  : Target extends KubernetesObject
    ? Changes<Omit<Target, 'metadata'>> & {
        readonly metadata?: Changes<KubernetesObject['metadata']> & { readonly resourceVersion?: string | undefined };
      }
    : Target extends object
      ? Changes<Target>
      : Target;

type Changes<Target> = { readonly [Field in keyof Target]?: MergePatch<Target[Field]> | null };

/**
 * The JSON of a class of @kubernetes/client-node. There, times are strings, and fields have their own names. The
 * classes have times as Date, and other names for reserved words and names with dashes: `_enum`,
 * `x_kubernetes_list_type`.
 */
export type Json<Model> = unknown extends Model
  ? unknown
  : Model extends Date
    ? string
    : Model extends readonly (infer Item)[]
      ? readonly Json<Item>[]
      : Model extends object
        ? { readonly [Field in keyof Model as FieldName<Field>]: Json<Model[Field]> }
        : Model;

type FieldName<Name> = Name extends `x_${infer Rest}`
  ? `x-${Dashed<Rest>}`
  : Name extends `_${infer Word}`
    ? Word
    : Name;

type Dashed<Name extends string> = Name extends `${infer Word}_${infer Rest}` ? `${Word}-${Dashed<Rest>}` : Name;
