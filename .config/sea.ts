/** Puts the program into Node.js, by the support that it has for single executable applications. */
import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** What an executable is made of, and where it goes. */
export interface Parts {
  /** A folder for what is made on the way. */
  readonly work: string;
  /** The program, in one file: its name in that folder, since the path goes into the executable. */
  readonly main: string;
  /** The Node.js of the platform that it is for. */
  readonly node: string;
  /** Whether compiled code goes in: it is for the platform that compiled it, and for none other. */
  readonly codeCache: boolean;
  readonly executable: string;
}

/** Makes an executable of the Node.js that this runs under, or of its like for another platform. */
export async function makeExecutable({ main, node, codeCache, executable, work }: Parts): Promise<void> {
  const config = { ...configure(main, executable, codeCache), executable: node };
  await runNode(process.execPath, '--build-sea', config, work);
}

/**
 * Makes an executable of a Node.js that came before `--build-sea`: `native` is the same version for this platform. The Node.js that this
 * runs under puts something of the same length in, whose place is then taken by what the other makes of the program, since the two
 * versions have it in different forms.
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
  // Compiled code depends on random numbers, and would be other bytes each time; this option, alone of those that can, is no part of what it is checked against.
  execFileSync(node, ['--random-seed=1', option, 'sea.json'], { cwd: work, stdio: ['ignore', 'ignore', 'pipe'] });
}
