import { createHash } from 'node:crypto';
import { lstat, open, readdir, readFile, realpath, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { writeDurably, describeWriteError, makeFolders, measureFree, syncFolder } from '#content/files';
import { isDigest, parseJson } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { fieldsOf } from '#fields';
import { isVersion } from '#release/version';
import { count, object, optional, readStated, text, time, type Static } from '#schema';
import { formatBytes, toLine } from '#text';
import { pathOnHost, type Host, backupFolder } from './machine/host.ts';
import { findProgram, runProgram } from './machine/programs.ts';

/** A request for a backup. */
export interface ClusterBackupRequest {
  readonly version: string;
  /** The update that the backup precedes. */
  readonly purpose: string;
  /** A folder of a mounted file system for a copy. */
  readonly copyTo?: string | undefined;
}

const script = 'cluster-backup.sh';
/** Agents have no namespaces of the host, and the script calls the API server and etcd at the addresses of the host. */
const onHost = ['-t', '1', '-m', '-n', '-u', '-i', '--'];
/** The time limit of the script, in milliseconds. It waits without a limit for an API server that does not answer. */
const timeLimit = 20 * 60_000;
const database = '/var/lib/etcd/member/snap/db';
/** The space for the static pods, and for what etcd adds meanwhile, in bytes. */
const margin = 2 ** 28;
const marker = 'backup.json';
const pods = ['kube-apiserver', 'kube-controller-manager', 'kube-scheduler', 'etcd'];

/** Commands are made of these fields, so the folder is one of this program, and each field has its own form. */
const fields = {
  /** The folder on the node. */
  path: text({ where: (path) => /^\w[\w.+-]*$/.test(basename(path)) && path === join(backupFolder, basename(path)) }),
  /** The version of OpenShift that the cluster ran. */
  version: text({ where: isVersion }),
  /** The time of the backup, in ISO 8601. */
  time: time({ pattern: String.raw`^\d{4}-\d\d-\d\dT[\d:.]+Z$` }),
  /** The size of the etcd snapshot in bytes, and its SHA-256. */
  size: count(),
  digest: text({ where: isDigest }),
  /** The folder of a copy on another file system, as a path of the node. */
  copy: optional(text({ where: (path) => isAbsolute(path) && toLine(path) === path })),
};

/** The statement of a backup that another process or another node has written. */
export const clusterBackup = object(fields);

/** A checked backup of etcd and of the static pods, on the disk of a control plane node. */
export type ClusterBackup = Static<typeof clusterBackup>;

/** The statement of the file in a backup: `purpose` is the update that the backup precedes. */
const backupMarker = object({ ...fields, purpose: text() });

/** The number of backups that a node keeps. */
export const keptBackups = 2;

/**
 * Backs up etcd and the static pods with the script that the etcd operator keeps on each control plane node. Checks the
 * result, copies it if requested, and removes all but the last two backups. Throws `disk-full`, `not-found` if the node
 * has no script, `command-failed` with the words of the script, `incomplete` for a result that is no backup, and
 * `not-writable`.
 */
export async function backUpCluster(
  host: Host,
  { version, purpose, copyTo }: ClusterBackupRequest,
  context: Context,
): Promise<ClusterBackup> {
  const program = await findProgram(host, script);
  if (program === undefined) {
    throw new PluginError('not-found', `this node has no ${script}, which the etcd operator of OpenShift installs`, {
      hint: 'Check that etcd runs on it as a static pod: oc -n openshift-etcd get pods -o wide',
    });
  }
  const time = new Date().toISOString().replace(/\.\d+/, '');
  const name = `${version}-${time.replace(/[-:]/g, '')}`;
  const [partial, path] = [join(backupFolder, `${name}.partial`), join(backupFolder, name)];
  const folder = pathOnHost(host, partial);
  try {
    await removePartial(host);
    await makeFolders(folder, 0o700);
    await requireSpace(folder, 2 * ((await measureDatabase(host)) ?? 0) + margin);
    await runScript(host, program, partial, context);
    const snapshot = await checkBackup(host, partial, context);
    const copy = copyTo === undefined ? undefined : join(copyTo, `oc-upgrade-bundle-backup-${name}`);
    const backup = { path, version, time, ...snapshot, ...(copy !== undefined && { copy }) };
    if (copyTo !== undefined && copy !== undefined)
      await copyBackup(host, { partial, copyTo, copy, ...snapshot }, context);
    await syncFiles(folder);
    await writeDurably(join(folder, marker), JSON.stringify({ ...backup, purpose }), { mode: 0o600 });
    await syncFolder(folder);
    await rename(folder, pathOnHost(host, path));
    await syncFolder(pathOnHost(host, backupFolder));
    for (const old of (await listBackups(host)).slice(keptBackups))
      await rm(pathOnHost(host, old.path), { recursive: true, force: true });
    return backup;
  } catch (error) {
    throw describeWriteError(error, partial);
  } finally {
    await removePartial(host).catch(() => undefined);
  }
}

/** Returns the complete backups of a node, the newest first, with the updates that they precede. */
export async function listBackups(host: Host): Promise<(ClusterBackup & { readonly purpose: string })[]> {
  const folder = pathOnHost(host, backupFolder);
  const names = (await readdir(folder).catch(() => [])).filter((name) => !name.endsWith('.partial'));
  const markers = await Promise.all(names.map((name) => readMarker(join(folder, name), join(backupFolder, name))));
  return markers.filter((each) => each !== undefined).sort((a, b) => (a.time < b.time ? 1 : -1));
}

/** Returns the size of the etcd database of a node, in bytes; undefined on a node without etcd. */
export async function measureDatabase(host: Host): Promise<number | undefined> {
  return (await stat(pathOnHost(host, database)).catch(() => undefined))?.size;
}

async function readMarker(folder: string, path: string): Promise<Static<typeof backupMarker> | undefined> {
  const read = readFile(join(folder, marker), 'utf8').then(parseJson);
  return readStated(backupMarker, { ...fieldsOf(await read.catch(() => undefined)), path });
}

async function runScript(host: Host, program: string, folder: string, context: Context): Promise<void> {
  const limit = AbortSignal.timeout(timeLimit);
  const within = { ...context, signal: AbortSignal.any([context.signal, limit]) };
  // The script calls oc, podman and etcdctl, and podman needs a home.
  const paths = [host.environment['PATH'], '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin'];
  const environment = { PATH: paths.filter((each) => each !== undefined).join(':'), HOME: '/root' };
  try {
    const args = [...onHost, program, folder];
    const { code, stdout, stderr } = await runProgram(host, 'nsenter', args, within, { gentle: true, environment });
    if (code === 0) return;
    const words = `${stdout}\n${stderr}`.trim().split('\n').slice(-3).join('; ');
    throw new PluginError('command-failed', `${script} failed: ${words.slice(0, 1000)}`, {
      hint: 'It runs again after a pause.',
    });
  } catch (error) {
    checkInterrupted(context.signal);
    if (!isPluginError(error, 'interrupted')) throw error;
    const minutes = timeLimit / 60_000;
    throw new PluginError('command-failed', `${script} did not end within ${minutes} minutes`, {
      hint: 'Check etcd and the API server of this node. It runs again after a pause.',
    });
  }
}

/**
 * Checks what a restore needs: the digest at the end of the snapshot, and the static pods. Returns size and SHA-256.
 */
async function checkBackup(host: Host, folder: string, context: Context): Promise<{ size: number; digest: string }> {
  const names = await readdir(pathOnHost(host, folder));
  const [snapshot, resources] = [/^snapshot_.*\.db$/, /^static_kuberesources_.*\.tar\.gz$/].map((pattern) =>
    names.find((name) => pattern.test(name)),
  );
  if (snapshot === undefined || resources === undefined)
    throw new PluginError(
      'incomplete',
      `${script} wrote no snapshot and static pods, but ${names.join(', ') || 'nothing'}`,
    );
  const { code, stdout } = await runProgram(host, 'tar', ['-tzf', join(folder, resources)], context);
  const missing = pods.filter((pod) => code !== 0 || !stdout.includes(`/${pod}-pod.yaml`));
  if (missing.length > 0)
    throw new PluginError('incomplete', `${resources} of ${script} lacks the static pods ${missing.join(', ')}`);
  return await hashSnapshot(join(pathOnHost(host, folder), snapshot), context);
}

/** etcd appends the SHA-256 of the database to a snapshot (etcd, server/etcdserver/api/v3rpc/maintenance.go). */
async function hashSnapshot(path: string, { signal }: Context): Promise<{ size: number; digest: string }> {
  await using file = await open(path);
  const { size } = await file.stat();
  const [whole, content] = [createHash('sha256'), createHash('sha256')];
  const end = size - 32;
  let position = 0;
  let appended = Buffer.alloc(0);
  for (const buffer = Buffer.alloc(2 ** 20); ;) {
    checkInterrupted(signal);
    const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) break;
    const chunk = buffer.subarray(0, bytesRead);
    whole.update(chunk);
    content.update(chunk.subarray(0, Math.max(0, end - position)));
    appended = Buffer.concat([appended, chunk.subarray(Math.max(0, end - position))]);
    position += bytesRead;
  }
  if (end <= 0 || end % 512 !== 0 || !content.digest().equals(appended)) {
    const what = `${basename(path)} (${formatBytes(size)}) does not end with the digest that etcd appends`;
    throw new PluginError('incomplete', `the snapshot of etcd is corrupt: ${what}`);
  }
  return { size, digest: `sha256:${whole.digest('hex')}` };
}

/**
 * Returns whether a folder is reached through a link that is on a drive, whose owner chose where it leads. Links of the
 * node itself are not, such as /mnt. `device`: the file system of the backups.
 */
async function leadsElsewhere(host: Host, folder: string, device: number): Promise<boolean> {
  const system = await stat(pathOnHost(host, '/'));
  let at = '/';
  for (const name of pathOnHost(host, folder).split('/')) {
    const next = join(at, name);
    const stats = await lstat(next);
    if (stats.isSymbolicLink() && ![device, system.dev].includes(stats.dev)) return true;
    at = stats.isSymbolicLink() ? await realpath(next) : next;
  }
  return false;
}

/** Copies a backup, and reads the copy again. Its folder must be on another file system: a drive that is mounted. */
async function copyBackup(
  host: Host,
  {
    partial: from,
    copyTo: to,
    copy,
    size,
    digest,
  }: Record<'partial' | 'copyTo' | 'copy' | 'digest', string> & { readonly size: number },
  context: Context,
): Promise<void> {
  const [own, other] = await Promise.all([
    stat(pathOnHost(host, from)),
    stat(pathOnHost(host, to)).catch(() => undefined),
  ]);
  if (!other?.isDirectory() || other.dev === own.dev) {
    throw new PluginError('not-found', `${to} is not a folder of a mounted drive on this node`, {
      hint: 'Mount a drive there, on this node, or allow the bundle without a copy of the backup.',
    });
  }
  if (await leadsElsewhere(host, to, own.dev)) {
    throw new PluginError('not-writable', `${to} leads through a link on the drive itself`, {
      hint: 'Name a folder of the drive, and no link on it: a backup has the secrets of the cluster.',
    });
  }
  const partial = join(to, 'oc-upgrade-bundle-backup.partial');
  await rm(pathOnHost(host, partial), { recursive: true, force: true });
  await requireSpace(pathOnHost(host, partial), size + margin);
  const { code, stderr } = await runProgram(host, 'cp', ['-r', '--', from, partial], context);
  if (code !== 0) throw new PluginError('not-writable', `the backup cannot be copied to ${to}: ${stderr.trim()}`);
  await syncFiles(pathOnHost(host, partial));
  if ((await checkBackup(host, partial, context)).digest !== digest)
    throw new PluginError('incomplete', `the copy of the backup at ${copy} differs from the backup`);
  await rename(pathOnHost(host, partial), pathOnHost(host, copy));
  await syncFolder(pathOnHost(host, to));
}

/** Throws `disk-full` unless the file system of a folder has space. */
async function requireSpace(folder: string, needed: number): Promise<void> {
  const { free } = await measureFree(join(folder, marker));
  if (free >= needed) return;
  const words = `a backup needs ${formatBytes(needed)}, and only ${formatBytes(free)} are free at ${dirname(folder)}`;
  throw new PluginError('disk-full', words, {
    hint: 'Free some space there. The backup then starts without a command.',
  });
}

async function syncFiles(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    await using file = await open(join(folder, name));
    await file.sync();
  }
  await syncFolder(folder);
}

async function removePartial(host: Host): Promise<void> {
  const folder = pathOnHost(host, backupFolder);
  const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith('.partial'));
  for (const name of names) await rm(join(folder, name), { recursive: true, force: true });
}
