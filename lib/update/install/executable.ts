import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import type { BundleMetadata } from '#bundle/metadata';
import type { Cluster } from '#cluster/client';
import { messageOf, PluginError, ignoring } from '#errors';
import { fieldsOf, textOf } from '#fields';
import { isOlder } from '#release/version';
import type { NodeArchitecture } from './agentScript.ts';
import { agentSet } from './agentSurvey.ts';

/** An executable for the agents, and the architecture of its nodes. */
export interface Executable {
  readonly path: string;
  readonly architecture: NodeArchitecture;
  /** The size in bytes. */
  readonly size: number;
  /** The SHA-256 in hex digits. */
  readonly digest: string;
}

/** The machines of ELF files (`e_machine`), by number. */
const elfMachines: Readonly<Record<number, NodeArchitecture | undefined>> = { 62: 'amd64', 183: 'arm64' };

/**
 * The smallest executable that `npm run package` builds, in bytes. It includes Node.js.
 */
const smallest = 20 * 1024 * 1024;

/**
 * Reads the headers and the digests of executables. Throws `not-readable`, and `usage` for two of the same
 * architecture, and for one that is not an executable for Linux that includes Node.js.
 */
export async function readExecutables(paths: readonly string[]): Promise<Executable[]> {
  const executables: Executable[] = [];
  for (const path of paths) {
    const executable = await readExecutable(path);
    const { architecture } = executable;
    const other = executables.find((each) => each.architecture === architecture);
    if (other)
      throw new PluginError('usage', `${other.path} and ${path} are for the same architecture, ${architecture}`);
    executables.push(executable);
  }
  return executables;
}

async function readExecutable(path: string): Promise<Executable> {
  const { architecture, size } = await readHeader(path).catch((cause: unknown) => {
    if (cause instanceof PluginError) throw cause;
    throw new PluginError('not-readable', `${path} cannot be read: ${messageOf(cause)}`, { cause });
  });
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return { path, architecture, size, digest: hash.digest('hex') };
}

async function readHeader(path: string): Promise<Pick<Executable, 'architecture' | 'size'>> {
  await using file = await open(path);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(20), 0, 20, 0);
  const isElf = bytesRead === 20 && buffer.subarray(0, 4).equals(Buffer.from('\x7fELF', 'latin1'));
  const { size } = await file.stat();
  if (!isElf || size < smallest) {
    throw new PluginError('usage', `${path} is not an executable that runs on a node: it needs other files`, {
      hint: 'Use the executable of an archive for Linux, which includes Node.js.',
    });
  }
  const machine = buffer.readUInt16LE(18);
  const architecture = elfMachines[machine];
  if (architecture) return { architecture, size };
  throw new PluginError('usage', `${path} is for a machine (ELF ${machine}) that no agent supports`);
}

const versionKey = 'upgrade-bundle.openshift.io/version';
const formatsKey = 'upgrade-bundle.openshift.io/bundle-formats';

// A record, so that a new format must be added.
const ownFormats: Record<BundleMetadata['formatVersion'], true> = { 1: true, 2: true };

/** What `install` recorded about the agents of a cluster. */
interface AgentVersion {
  /** The version of the program that installed them. */
  readonly version: string;
  /** The formats of metadata.json that they read. */
  readonly formats: readonly number[];
}

/** Returns the annotations that record a version for readAgentVersion. */
export function recordVersion(version: string): Record<string, string> {
  return { [versionKey]: version, [formatsKey]: Object.keys(ownFormats).join(',') };
}

/**
 * Reads the record of the agents; undefined without agents or a record, or if the user may not read them. Throws the
 * errors of reading.
 */
export async function readAgentVersion(cluster: Cluster): Promise<AgentVersion | undefined> {
  const agents = await cluster.read(agentSet).catch(ignoring('denied', 'not-served'));
  if (!agents) return undefined;
  const annotations = fieldsOf(agents.metadata.annotations);
  const [version, formats] = [textOf(annotations[versionKey]), textOf(annotations[formatsKey])];
  return version === undefined || formats === undefined
    ? undefined
    : { version, formats: formats.split(',').map(Number) };
}

/** Describes how the agents differ from a program of a version, with what to do; undefined if they do not. */
export function compareAgents({ version }: AgentVersion, own: string): string | undefined {
  const advice = 'to update them, run oc adm-upgrade-bundle install with its former options';
  if (isOlder(version, own)) return `the agents (${version}) are older than this program (${own}): ${advice}`;
  if (!isOlder(own, version)) return undefined;
  return (
    `the agents (${version}) are newer than this program (${own}), which may not know what they report: use ` +
    `${version} here too`
  );
}
