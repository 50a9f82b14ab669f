import { createHash } from 'node:crypto';
import { rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { readDocuments, readSmallFile } from '#content/files';
import { repositoryIn, parseJsonIfValid } from '#content/oci';
import { nameSome, ignoreFailure } from '#errors';
import { fieldsAt, fieldsOf, isFields, listOf, textOf, textsOf, type Fields } from '#fields';
import { pathOnHost, type Host } from '../machine/host.ts';
import { listFolder, readIfThere } from './storageConfig.ts';

/** The records of a kubelet that verifies pulls; others have none (Kubernetes, pkg/kubelet/images/pullmanager). */
const folder = '/var/lib/kubelet/image_manager';

/** The largest record to read, in bytes. */
const recordLimit = 1024 * 1024;

/** An image that is present, and that the kubelet would still request from a registry for some or all pods. */
export interface GuardedImage {
  readonly name: string;
  /** Why: what its record says. */
  readonly reason: string;
  /** The file with the record. */
  readonly record: string;
  /** Whether the kubelet cannot read the record either: without the file, it uses the image. */
  readonly isUnreadable: boolean;
}

/**
 * Finds present images that the kubelet refuses by its own records. An image that it has pulled is only for pods that
 * could pull it, and only under the pulled name. `images`: their pullspecs by digest, with their IDs in the store.
 */
export async function findGuardedImages(
  host: Host,
  images: Iterable<readonly [name: string, id: string]>,
): Promise<GuardedImage[]> {
  const refused: GuardedImage[] = [];
  if (!(await stat(pathOnHost(host, folder)).catch(() => undefined))) return refused;
  const settings = await readSettings(host);
  for (const [name, id] of images) {
    const record = join(folder, 'pulled', fileOf(id));
    const text = await readRecord(host, record);
    const intent = join(folder, 'pulling', fileOf(name));
    const reason = text === undefined ? undefined : findRefusal(text, name);
    // Such a kubelet reads the record nevertheless.
    if (reason !== unreadable && isExempt(settings, name)) continue;
    if (reason !== undefined) refused.push({ name, record, reason, isUnreadable: reason === unreadable });
    else if (text === undefined && (await readRecord(host, intent)) !== undefined)
      refused.push({ name, record: intent, reason: 'a pull of it has not ended', isUnreadable: false });
  }
  return refused;
}

/**
 * The configuration of the kubelet, and the folder of what replaces parts of it (machine-config-operator,
 * kubelet.service).
 */
const kubeletConfig = ['/etc/kubernetes/kubelet.conf', '/etc/openshift/kubelet.conf.d'] as const;

/** The fields of a KubeletConfiguration that say which present images the kubelet refuses unless it has pulled them. */
export const pullPolicyFields = {
  policy: 'imagePullCredentialsVerificationPolicy',
  allowlist: 'preloadedImagesVerificationAllowlist',
} as const;

/**
 * Returns the repositories of images that a kubelet with these settings refuses unless it has pulled them, sorted
 * (Kubernetes, pkg/kubelet/images/pullmanager/image_pull_policies.go).
 */
export function listVerified(settings: Fields, images: readonly string[]): string[] {
  const policy = textOf(settings[pullPolicyFields.policy]);
  const repositories = [...new Set(images.map(repositoryIn))].sort();
  if (policy === 'AlwaysVerify') return repositories;
  if (policy !== 'NeverVerifyAllowlistedImages') return [];
  const allowed = textsOf(settings[pullPolicyFields.allowlist]);
  const isAllowed = (repository: string): boolean =>
    allowed.some((pattern) =>
      pattern.endsWith('/*') ? repository.startsWith(pattern.slice(0, -1)) : repository === pattern,
    );
  return repositories.filter((repository) => !isAllowed(repository));
}

/** Returns whether the policy of a kubelet lets all pods use an image that is present. */
function isExempt(settings: Fields, image: string): boolean {
  const policy = textOf(settings[pullPolicyFields.policy]);
  return (
    policy === 'NeverVerify' ||
    (policy === 'NeverVerifyAllowlistedImages' && listVerified(settings, [image]).length === 0)
  );
}

/** Returns the policy of the kubelet of a host if it refuses some of these images although they are loaded. */
export async function findVerifyingPolicy(host: Host, images: readonly string[]): Promise<string | undefined> {
  const settings = await readSettings(host);
  return listVerified(settings, images).length === 0 ? undefined : textOf(settings[pullPolicyFields.policy]);
}

/** Reads the configuration of the kubelet of a host; no fields of a file that cannot be read. */
async function readSettings(host: Host): Promise<Fields> {
  let settings: Fields = {};
  for (const path of [kubeletConfig[0], ...(await listFolder(host, kubeletConfig[1]))]) {
    const text = await readIfThere(host, path).catch(ignoreFailure);
    settings = { ...settings, ...parseSettings(text ?? '') };
  }
  return settings;
}

/** Parses YAML or JSON. */
function parseSettings(text: string): Fields {
  try {
    return fieldsOf(readDocuments(text, { length: recordLimit, tokens: 10_000 }).values[0]);
  } catch {
    return {};
  }
}

/** Removes a record that the kubelet cannot read, so that it uses the image. Throws the system’s error. */
export async function removeRecord(host: Host, { record }: GuardedImage): Promise<void> {
  await rm(pathOnHost(host, record), { force: true });
}

const unreadable = 'its record is corrupt';

function fileOf(key: string): string {
  return `sha256-${createHash('sha256').update(key).digest('hex')}`;
}

/** Returns the text of a record, which is empty if it cannot be read; undefined without one. */
async function readRecord(host: Host, path: string): Promise<string | undefined> {
  if (!(await stat(pathOnHost(host, path)).catch(() => undefined))) return undefined;
  return String(await readSmallFile(pathOnHost(host, path), recordLimit).catch(() => ''));
}

/** Returns why the kubelet refuses an image with this record; undefined if every pod may use it. */
function findRefusal(text: string, name: string): string | undefined {
  const record = parse(text);
  if (record?.['kind'] !== 'ImagePulledRecord') return unreadable;
  const repositories = fieldsAt(record, 'credentialMapping');
  const own = repositories[repositoryIn(name)];
  if (!isFields(own)) {
    const others = Object.keys(repositories);
    return others.length === 0 ? 'a pull of it was interrupted' : `it was pulled as ${nameSome(others)}`;
  }
  if (own['nodePodsAccessible'] === true) return undefined;
  const nameOf = ({ namespace, name: secret }: Fields): string => `${textOf(namespace) ?? ''}/${textOf(secret) ?? ''}`;
  const secrets = [...listOf(own['kubernetesSecrets']), ...listOf(own['kubernetesServiceAccounts'])].map(nameOf);
  return secrets.length === 0
    ? 'a pull of it was interrupted'
    : `it was pulled with ${nameSome(secrets)}, and is only for pods with that`;
}

function parse(text: string): Fields | undefined {
  const value = parseJsonIfValid(text);
  return isFields(value) ? value : undefined;
}
