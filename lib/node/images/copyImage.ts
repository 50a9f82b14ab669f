import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeFolders } from '#content/files';
import { repositoryIn, parseReference } from '#content/oci';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { describeHost, pathOnHost, type Host } from '../machine/host.ts';
import { findProgram, runProgram, type ProgramResult } from '../machine/programs.ts';
import { describeMainStore, type RunConfig, type StorageRules } from '../runtime/storageConfig.ts';
import type { ImageStore, StoreImage } from './imageStore.ts';

/** Programs that copy images into containers/storage, the preferred one first. */
export const copyPrograms = ['skopeo', 'podman'] as const;
export type CopyProgram = (typeof copyPrograms)[number];

/** The folder of the work folder that makes the programs read signatures: registries.d of its user. */
const signatureConfig = '.config/containers/registries.d';

/** The source, the destination and the work folder of copies. */
export interface CopySetting {
  readonly host: Host;
  readonly store: ImageStore;
  /** The address of the server for the bundle: `127.0.0.1:41234`. */
  readonly server: string;
  /** The folder of the host for temporary files. */
  readonly work: string;
  /** How the program reads storage.conf. */
  readonly rules: StorageRules;
  /** The variable with the storage.conf to copy with, instead of the host’s. */
  readonly storageConfig?: Readonly<Partial<Record<RunConfig['variable'], string>>>;
}

/** Finds the program of a host that copies images. Throws `not-found`. */
export async function findCopyProgram(host: Host): Promise<CopyProgram> {
  for (const name of copyPrograms) if ((await findProgram(host, name)) !== undefined) return name;
  throw new PluginError('not-found', `${describeHost(host)} has neither ${copyPrograms.join(' nor ')}`, {
    hint: 'One of them copies images into the image store: install it. An OpenShift node has both.',
  });
}

/**
 * Copies one image from the server into the store, by its name and digest, with low priority. The program verifies the
 * digests. Throws `disk-full`, `incomplete` for another failure, and `interrupted`.
 */
export async function copyImage(
  program: CopyProgram,
  image: StoreImage,
  setting: CopySetting,
  context: Context,
): Promise<void> {
  const temporary = join(setting.work, 'tmp');
  const registries = join(setting.work, 'registries.conf');
  const args = program === 'skopeo' ? skopeoArgs(image, setting) : podmanArgs(image, setting);
  const environment = {
    // The file system of the store has room for temporary layers, and the next run removes them.
    TMPDIR: temporary,
    // Less garbage collection in Go saves a thirtieth of the CPU time, for 10 MB more memory.
    GOGC: '400',
    // podman has no option for registries.d: it looks in the home folder first.
    ...(program === 'podman' && { CONTAINERS_REGISTRIES_CONF: registries, HOME: setting.work }),
    ...setting.storageConfig,
  };
  const result = await runProgram(setting.host, program, args, context, { gentle: true, environment });
  if (result.code !== 0) throw explain(program, result, setting);
}

/**
 * Creates the work folder, with the configuration that podman needs to find the server. Returns the setting to copy
 * with: it has a storage.conf without additional stores if the host has some.
 */
export async function prepareWork(images: readonly StoreImage[], setting: CopySetting): Promise<CopySetting> {
  const { host, work, server } = setting;
  // A killed run left its temporary files.
  await rm(pathOnHost(host, work), { recursive: true, force: true });
  await makeFolders(pathOnHost(host, join(work, 'tmp')), 0o700);
  const repositories = new Set(images.map(({ name }) => repositoryIn(name)));
  const tables = [...repositories].map((name) => {
    const { repository } = parseReference(name);
    return `[[registry]]\nprefix = "${name}"\nlocation = "${server}/${repository}"\ninsecure = true\n`;
  });
  await writeFile(pathOnHost(host, join(work, 'registries.conf')), tables.join('\n'));
  // The signature of the release and the digests of its images are verified already.
  const policy = JSON.stringify({ default: [{ type: 'insecureAcceptAnything' }] });
  await writeFile(pathOnHost(host, join(work, 'policy.json')), policy);
  // CRI-O checks a namespaced policy with the signatures that the store has (server/container_create.go).
  const attachments = 'default-docker:\n  use-sigstore-attachments: true\n';
  await makeFolders(pathOnHost(host, join(work, signatureConfig)), 0o700);
  await writeFile(pathOnHost(host, join(work, signatureConfig, 'bundle.yaml')), attachments);
  const mainStore = await describeMainStore(host, setting.rules);
  if (mainStore === undefined) return setting;
  const path = join(work, 'storage.conf');
  await writeFile(pathOnHost(host, path), mainStore.text);
  return { ...setting, storageConfig: { [mainStore.variable]: path } };
}

function skopeoArgs({ name, digest }: StoreImage, { server, work }: CopySetting): string[] {
  const { repository } = parseReference(name);
  return [
    '--insecure-policy',
    '--registries.d',
    join(work, signatureConfig),
    'copy',
    '--quiet',
    '--preserve-digests',
    '--src-tls-verify=false',
    '--src-no-creds',
    `docker://${server}/${repository}@${digest}`,
    `containers-storage:${name}`,
  ];
}

function podmanArgs({ name }: StoreImage, { work }: CopySetting): string[] {
  return ['pull', '--quiet', '--signature-policy', join(work, 'policy.json'), name];
}

function explain(program: CopyProgram, { code, stderr }: ProgramResult, { store }: CopySetting): PluginError {
  const printed = stderr
    .trim()
    .replace(/^time="[^"]*" level=(?:fatal|error) msg=/gm, '')
    .slice(-1000);
  if (/no space left on device|disk quota exceeded/i.test(printed)) {
    return new PluginError('disk-full', `the file system of the image store ${store.graphRoot} is full`, {
      hint: 'Free some space, and run the same command again: loaded images are skipped.',
      cause: new Error(printed),
    });
  }
  return new PluginError('incomplete', `${program} failed: ${printed === '' ? `exit code ${code}` : printed}`);
}
