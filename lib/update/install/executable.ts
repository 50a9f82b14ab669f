import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { messageOf, PluginError } from '#errors';
import type { NodeArchitecture } from './agentScript.ts';

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
