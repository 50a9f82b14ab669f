import { execFileSync, fork } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { formatLoad } from './measure.ts';
import type { BenchRegistry } from './registry.ts';

/** The number of images in the release: the third argument of the command line (60). */
export const images = Number(process.argv[4] ?? 60);

/** A built program, and the release that a registry on this machine serves from a folder. */
export interface ServedRelease extends AsyncDisposable {
  readonly program: string;
  readonly folder: string;
  readonly release: BenchRegistry;
}

/**
 * Builds a program (`oc-…`), and serves a release. The second argument of the command line is its size in megabytes
 * (1500). Removes the folder at the end.
 */
export async function serveRelease(program: string): Promise<ServedRelease> {
  const root = new URL('../..', import.meta.url).pathname;
  execFileSync(process.execPath, [join(root, '.config/build.ts')], { stdio: 'inherit' });
  const folder = await mkdtemp(join(tmpdir(), 'bench-'));
  // A separate process, so that creating the release does not affect this one.
  const megabytes = process.argv[3] ?? '1500';
  const server = fork(new URL('registry.ts', import.meta.url), [folder, String(images), megabytes]);
  const release = await new Promise<BenchRegistry>((resolve) => server.once('message', resolve as () => void));
  return {
    program: join(root, 'dist/bin', program),
    folder,
    release,
    [Symbol.asyncDispose]: async () => {
      server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Prints what is measured, the processors, and the load of this machine before anything is measured. */
export function printMachine(what: string): void {
  console.log(`${what}; ${cpus().length} processors (${cpus()[0]?.model ?? ''}), load before: ${formatLoad()}`);
}
