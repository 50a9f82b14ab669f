import { lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Archive } from '../../../lib/content/archive/archive.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { makeContext } from '../context.ts';
import { runSuccessfully } from '../peers.ts';
import { makeFolder, removeFolder } from '../release/mirrorDirectory.ts';

/**
 * The reading of a tar by a program: each file with size and digest and each link with its target, sorted; or its
 * error.
 */
export type Reading = readonly string[] | { readonly refused: string };

/** The readings of one tar by this program and by two others. */
export interface Readings {
  /** The reading of this program. If it refuses the tar, the others are not run. */
  readonly own: Reading;
  /** Whether the headers differ from those of layOutTar. */
  readonly isRepacked: boolean;
  readonly gnu: Reading;
  readonly bsd: Reading;
}

/** A tar that this program accepts and another one reads differently. */
export interface Disagreement extends Readings {
  readonly index: number;
}

/** The counts of a comparison. */
export interface Comparison {
  readonly accepted: number;
  readonly refused: number;
  readonly disagreements: readonly Disagreement[];
}

// One shell for many archives, because starting a program from Node.js costs more than its work.
const script = `
while read -r name; do
  tar -xf "$name.tar" -C "$name.gnu/in" 2> "$name.gnu.err" || echo "exit $?" >> "$name.gnu.err.code"
  bsdtar -xf "$name.tar" -C "$name.bsd/in" 2> "$name.bsd.err" || echo "exit $?" >> "$name.bsd.err.code"
done`;

/** Reads tars with this program and, if it accepts them, extracts them with GNU tar and bsdtar. */
export async function compareReaders(tars: readonly Buffer[]): Promise<Comparison> {
  const folder = await makeFolder();
  try {
    const accepted: { index: number; own: readonly string[]; isRepacked: boolean }[] = [];
    for (const [index, bytes] of tars.entries()) {
      const { own, isRepacked } = await readOwn(bytes, join(folder, `${index}.tar`));
      if ('refused' in own) continue;
      accepted.push({ index, own, isRepacked });
      for (const reader of ['gnu', 'bsd']) mkdirSync(join(folder, `${index}.${reader}`, 'in'), { recursive: true });
    }
    const input = accepted.map(({ index }) => `${index}\n`).join('');
    await runSuccessfully('sh', ['-c', script], { cwd: folder, input });
    const disagreements = accepted.flatMap(({ index, own, isRepacked }): Disagreement[] => {
      const [gnu, bsd] = [readTree(folder, index, 'gnu'), readTree(folder, index, 'bsd')];
      const isSame = [gnu, bsd].every((other) => JSON.stringify(other) === JSON.stringify(own));
      return isSame ? [] : [{ index, own, isRepacked, gnu, bsd }];
    });
    return { accepted: accepted.length, refused: tars.length - accepted.length, disagreements };
  } finally {
    await removeFolder(folder);
  }
}

async function readOwn(bytes: Buffer, path: string): Promise<{ own: Reading; isRepacked: boolean }> {
  await writeFile(path, bytes);
  try {
    const archive = await Archive.open(path, makeContext());
    const lines = [...archive.entries.values()].map((entry) => {
      const content = bytes.subarray(entry.start, entry.start + entry.size);
      return describe(entry.path, entry.target, content);
    });
    await archive.close();
    return { own: lines.sort(), isRepacked: archive.isRepacked };
  } catch (error) {
    return { own: { refused: String(error) }, isRepacked: false };
  }
}

function describe(path: string, target: string | undefined, content: Buffer): string {
  return target === undefined ? `${path} ${content.length} ${digestOf(content)}` : `${path} -> ${target}`;
}

/** Returns the tree that a program extracted. Files beside its folder were written outside of it. */
function readTree(folder: string, index: number, reader: string): Reading {
  const root = join(folder, `${index}.${reader}`);
  const lines: string[] = [];
  const visit = (path: string): void => {
    for (const name of readdirSync(join(root, path))) {
      const inner = path === '' ? name : `${path}/${name}`;
      const found = lstatSync(join(root, inner));
      const shown = inner.startsWith('in/') ? inner.slice('in/'.length) : `outside: ${inner}`;
      if (found.isDirectory()) visit(inner);
      else if (found.isSymbolicLink()) lines.push(describe(shown, readlinkSync(join(root, inner)), Buffer.alloc(0)));
      else if (found.isFile() && found.nlink === 1)
        lines.push(describe(shown, undefined, readFileSync(join(root, inner))));
      else lines.push(`${shown} is neither a file nor a link`);
    }
  };
  visit('');
  try {
    const code = readFileSync(`${root}.err.code`, 'utf8');
    return { refused: `${code}${readFileSync(`${root}.err`, 'utf8')}${lines.join('\n')}` };
  } catch {
    return lines.sort();
  }
}
