import { spawnSync } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';

/**
 * Creates a pipe without a writer. A program that opens it for reading without O_NONBLOCK waits in a thread that
 * nothing can interrupt. After `patience` milliseconds the pipe gets a writer, so that the test fails and the suite
 * continues.
 */
export function makePipe(path: string, patience = 10_000): Disposable {
  const { status, stderr } = spawnSync('mkfifo', [path], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`mkfifo ${path}: ${stderr}`);
  const timer = setTimeout(() => {
    closeSync(openSync(path, constants.O_RDWR | constants.O_NONBLOCK));
  }, patience);
  return {
    [Symbol.dispose]: () => {
      clearTimeout(timer);
    },
  };
}
