import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { messageOf, PluginError } from '../../errors.ts';
import type { NodeArchitecture } from './agentStart.ts';

/** The executable that agents are to run, and what nodes it is for. */
export interface Executable {
  readonly path: string;
  readonly architecture: NodeArchitecture;
  /** In bytes. */
  readonly size: number;
  /** Its SHA-256 in hex digits. */
  readonly digest: string;
}

/** The machines of ELF files (`e_machine`), by number. */
const elfMachines: Readonly<Record<number, NodeArchitecture | undefined>> = { 62: 'amd64', 183: 'arm64' };

/** What is in every executable that `npm run package` makes, and in no single-file script: Node.js itself. */
const smallest = 20 * 1024 * 1024;

/**
 * Reads what an executable is. Throws `not-readable`, and `usage` where it is not one that runs on a node by itself: an executable for Linux which
 * brings its Node.js along.
 */
export async function readExecutable(path: string): Promise<Executable> {
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
      hint: 'Take the one of an archive for Linux, which brings its Node.js along.',
    });
  }
  const machine = buffer.readUInt16LE(18);
  const architecture = elfMachines[machine];
  if (architecture) return { architecture, size };
  throw new PluginError('usage', `${path} is for a machine (ELF ${machine}) that there are no agents for`);
}
