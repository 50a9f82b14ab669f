import { createHash } from 'node:crypto';
import { readFile, rm, readdir, stat, statfs } from 'node:fs/promises';
import { join, basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { writeAtomically, makeFolders } from '#content/files';
import { sumSizes, type Digest } from '#content/oci';
import { type Context, checkInterrupted } from '#context';
import { messageOf, PluginError } from '#errors';
import { pathOnHost, type Host, mirrorFolder, runProgram } from '#node/machine';
import { retentionShare } from '#readiness/nodes';
import { formatBytes } from '#text';
import { contentFile } from '../record/mirrorContent.ts';
import { mirrorUnit, mirrorUnitFile, mirrorUnitName } from './mirrorUnit.ts';

/** The file beside the certificate of a mirror with the quota of its bundles in bytes. It is empty for none. */
const quotaFile = 'quota';

/** The bytes that more copies of bundles may take in a folder; less than 0 if the present ones take too much. */
export interface RetentionRoom {
  readonly bytes: number;
  /** What limits them, for messages, and what to do. */
  readonly limit: string;
  readonly hint: string;
}

/** Measures the room for copies: within the quota, and within three quarters of the file system. */
export async function measureRoom(folder: string): Promise<RetentionRoom> {
  const { blocks, bfree, bsize } = await statfs(folder);
  const share = {
    bytes: blocks * bsize * (1 - retentionShare) - (blocks - bfree) * bsize,
    limit: `75 % of the file system of ${folder}`,
    hint: 'Mount a larger file system there. Above 85 %, the kubelet removes images.',
  };
  const text = await readFile(join(folder, basename(mirrorFolder), quotaFile), 'utf8').catch(() => '');
  if (text === '') return share;
  const names = (await readdir(folder)).filter((name) => /^bundle-[0-9a-f]{12}\.(?:tar|base)$/.test(name));
  const taken = await sumFiles(names.map((name) => join(folder, name)));
  const quota = {
    bytes: Number(text) - taken,
    limit: `the quota of ${formatBytes(Number(text))}`,
    hint: 'Install the mirrors again with a larger quota.',
  };
  return quota.bytes < share.bytes ? quota : share;
}

/** Returns the size of some files in bytes. Files that do not exist have none. */
export async function sumFiles(paths: readonly string[]): Promise<number> {
  return sumSizes(await Promise.all(paths.map((path) => stat(path).catch(() => ({ size: 0 })))));
}

/**
 * Copies content to a file, which gets its name when it is complete and synced. `digest`: the digest that it must have.
 * Throws `digest-mismatch`, `disk-full`, `not-writable`, `interrupted`, and the errors of reading.
 */
export async function copyToFile(
  chunks: AsyncIterable<Buffer>,
  path: string,
  digest: Digest | undefined,
  { signal }: Pick<Context, 'signal'>,
): Promise<void> {
  const hash = createHash('sha256');
  const verified = async function* (): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      checkInterrupted(signal);
      if (digest !== undefined) hash.update(chunk);
      yield chunk;
    }
    const copyDigest = `sha256:${hash.digest('hex')}`;
    if (digest !== undefined && copyDigest !== digest)
      throw new PluginError('digest-mismatch', `the copy of the bundle is ${copyDigest} instead of ${digest}`);
  };
  await writeAtomically(path, verified(), { mode: 0o600 });
}

/** What keeps the mirror of a control plane node. */
export interface MirrorKeeperOptions {
  readonly host: Host;
  /** The folder with the files of the Secret with the certificate. It is empty if the cluster has no mirrors. */
  readonly secrets: string;
  /** The SHA-256 of the executable on the node, in hex digits. */
  readonly executable: string;
  /** The pause between two checks, in milliseconds. */
  readonly interval: number;
}

const files = ['tls.crt', 'tls.key', 'ca.crt', 'port', quotaFile, contentFile];

/**
 * Has systemctl use the system bus, not the socket of systemd: there it refuses a systemd that has no process id in the
 * namespace of this container (systemd 252, getpeercred).
 */
const systemBus = { SYSTEMCTL_FORCE_BUS: '1' };

/** The unit that was started last. This process may end between writing a unit and starting it. */
const startedUnit = 'started.service';

/**
 * Keeps the mirror of a control plane node as the Secret says, until the signal is aborted: its certificate, and its
 * unit, which runs on without this process. Removes both if there is no Secret any more. Retries failures.
 */
export async function keepMirror(options: MirrorKeeperOptions, context: Context): Promise<void> {
  let logged = '';
  while (!context.signal.aborted) {
    try {
      await followSecret(options, context);
      logged = '';
    } catch (error) {
      const message = `the mirror of this node: ${messageOf(error)}`;
      if (message !== logged) context.log('warn', message);
      logged = message;
    }
    await sleep(options.interval, undefined, { signal: context.signal }).catch(() => undefined);
  }
}

/** Makes the node as the Secret says, once. Throws `command-failed`, `not-writable` and `interrupted`. */
async function followSecret({ host, secrets, executable }: MirrorKeeperOptions, context: Context): Promise<void> {
  const folder = pathOnHost(host, mirrorFolder);
  const unitFile = pathOnHost(host, mirrorUnitFile);
  const texts = await Promise.all(files.map((name) => readOrNothing(join(secrets, name))));
  const [certificate, , , port] = texts;
  const systemctl = async (...args: string[]): Promise<void> => {
    const { code, stderr } = await runProgram(host, 'systemctl', args, context, { environment: systemBus });
    if (code !== 0) throw new PluginError('command-failed', `systemctl ${args.join(' ')}: ${stderr.trim()}`);
  };
  if (certificate === undefined || port === undefined) {
    if ((await readOrNothing(unitFile)) === undefined) return;
    context.log('info', 'the mirror of this node is removed');
    await systemctl('disable', '--now', mirrorUnitName);
    await rm(unitFile, { force: true });
    await systemctl('daemon-reload');
    await rm(folder, { recursive: true, force: true });
    return;
  }
  await makeFolders(folder);
  // The server reads them again by itself.
  for (const [index, name] of files.entries()) {
    const [text = '', path] = [texts[index], join(folder, name)];
    if ((await readOrNothing(path)) !== text) await writeAtomically(path, text, { mode: 0o600 });
  }
  const unit = mirrorUnit({ port: Number(port), executable });
  const startedFile = join(folder, startedUnit);
  if ((await readOrNothing(unitFile)) === unit && (await readOrNothing(startedFile)) === unit) return;
  await writeAtomically(unitFile, unit);
  for (const args of [['daemon-reload'], ['enable', mirrorUnitName], ['restart', mirrorUnitName]])
    await systemctl(...args);
  await writeAtomically(startedFile, unit);
  context.log('info', `the mirror of this node starts at port ${port}: see journalctl -u ${mirrorUnitName}`);
}

async function readOrNothing(path: string): Promise<string | undefined> {
  return await readFile(path, 'utf8').catch(() => undefined);
}
