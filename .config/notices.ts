/** The licences of all parts of an executable. */
import { readdir, readFile } from 'node:fs/promises';

/** Returns the folders of the packages (`node_modules/tar`) that the files of a bundle are from, sorted. */
export function packagesOf(inputs: readonly string[]): string[] {
  const folders = inputs.flatMap((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? []);
  return [...new Set(folders)].sort();
}

/** Returns the text of THIRD-PARTY-NOTICES. Throws for a package that does not state its licence. */
export async function writeNotices(root: string, folders: readonly string[]): Promise<string> {
  const sections = await Promise.all(folders.map((folder) => describePackage(`${root}/${folder}`)));
  return [
    'This program contains the packages below, and Node.js with what it contains. Each is under its own licence.\n',
    ...sections,
  ].join(`\n${'='.repeat(100)}\n\n`);
}

async function describePackage(folder: string): Promise<string> {
  const manifest = JSON.parse(await readFile(`${folder}/package.json`, 'utf8')) as Readonly<
    Record<'name' | 'version' | 'license', unknown>
  >;
  const { name, version, license } = manifest;
  const file = (await readdir(folder)).sort().find((each) => /^(licen[cs]e|copying)/i.test(each));
  if (file === undefined && typeof license !== 'string') throw new Error(`${folder} has no licence`);
  // Some packages name a well-known licence, but do not include its text.
  const text =
    file === undefined ? 'The package has no text of its licence.' : await readFile(`${folder}/${file}`, 'utf8');
  return `${String(name)} ${String(version)} (${typeof license === 'string' ? license : 'see below'})\n\n${text.trim()}\n`;
}
