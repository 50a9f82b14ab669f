import { ChildProcess, type SpawnOptions } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { PassThrough } from 'node:stream';

/** A program that this process runs itself, because starting another process takes much longer. */
export type LocalProgram = (
  args: readonly string[],
  /** The standard input. */
  input: Buffer,
) => Promise<{ readonly code: number; readonly text: string }>;

/** The programs by their paths. */
export const localPrograms = new Map<string, LocalProgram>();

/** Runs a local program as a child process; undefined if there is none of that path, or if its file cannot be run. */
export function spawnLocal(path: string, args: readonly string[], { stdio }: SpawnOptions): ChildProcess | undefined {
  const program = localPrograms.get(path);
  if (!program || !isExecutable(path)) return undefined;
  const child = silentChild();
  const run = async (): Promise<void> => {
    const input: Buffer[] = [];
    if (Array.isArray(stdio) && stdio[0] === 'pipe') {
      for await (const chunk of child.stdin) input.push(chunk as Buffer);
    }
    const { code, text } = await program(args, Buffer.concat(input));
    child.stdout.end(code === 0 ? text : '');
    child.stderr.end(code === 0 ? '' : text);
    child.emit('exit', code);
    setImmediate(() => child.emit('close', code));
  };
  void run();
  return child;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Returns a child process that never says anything. */
export function silentChild(): ChildProcess & Record<'stdin' | 'stdout' | 'stderr', PassThrough> {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  return Object.assign(new ChildProcess(), { stdin, stdout, stderr });
}
