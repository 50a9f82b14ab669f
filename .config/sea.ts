/** Adds the program to Node.js, as a single executable application. */
import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** The parts of an executable, and its path. */
export interface Parts {
  /** A folder for intermediate files. */
  readonly work: string;
  /** The program in one file: its name in that folder, because its path becomes part of the executable. */
  readonly main: string;
  /** The path of the Node.js for the target platform. */
  readonly node: string;
  /** Whether to include compiled code, which works only on the platform that compiled it. */
  readonly codeCache: boolean;
  readonly executable: string;
}

/** Creates an executable from the running Node.js, or from the same version for another platform. */
export async function makeExecutable({ main, node, codeCache, executable, work }: Parts): Promise<void> {
  const config = { ...configure(main, executable, codeCache), executable: node };
  await runNode(process.execPath, '--build-sea', config, work);
}

/**
 * Creates an executable from a Node.js without `--build-sea`. `native` is the same version for this platform. The
 * running Node.js inserts a blank of the same length. It is then replaced with the output of `native`, because the two
 * versions use different formats.
 */
export async function makeExecutableOfOlder(parts: Parts, native: string): Promise<void> {
  const { node, executable, work } = parts;
  const [wanted, blank, place] = ['wanted', 'blank', 'blank.blob'];
  await runNode(native, '--experimental-sea-config', configure(parts.main, wanted, parts.codeCache), work);
  const blob = await readFile(join(work, wanted));
  const makePlace = async (length: number): Promise<Buffer> => {
    await writeFile(join(work, blank), Buffer.alloc(length, ' '));
    await runNode(process.execPath, '--experimental-sea-config', configure(blank, place, false), work);
    return readFile(join(work, place));
  };
  const around = (await makePlace(0)).length;
  const taken = await makePlace(blob.length - around);
  await makeExecutable({ ...parts, main: blank, node, codeCache: false });
  const content = await readFile(executable);
  const start = content.indexOf(taken);
  if (taken.length !== blob.length || start < 0 || content.includes(taken, start + 1)) {
    throw new Error(`the program has no place in ${executable}`);
  }
  blob.copy(content, start);
  await writeFile(executable, content);
}

function configure(main: string, output: string, useCodeCache: boolean): object {
  // Options for Node.js in NODE_OPTIONS are meant for other programs.
  return { main, output, useCodeCache, disableExperimentalSEAWarning: true, execArgvExtension: 'none' };
}

async function runNode(node: string, option: string, config: object, work: string): Promise<void> {
  await writeFile(join(work, 'sea.json'), JSON.stringify(config));
  // Compiled code depends on random numbers, so its bytes would differ each time. This option fixes
  // them, and is the only one that V8 does not check when it loads the code.
  execFileSync(node, ['--random-seed=1', option, 'sea.json'], { cwd: work, stdio: ['ignore', 'ignore', 'pipe'] });
}
