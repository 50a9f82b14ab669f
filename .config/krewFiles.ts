/**
 * Writes krew manifests for the archives of a folder: `npm run krew FOLDER URL`, where URL is the address that the
 * archives will have. Reads the checksums in SHA256SUMS, and adds the manifests to it. Also writes a custom index,
 * `FOLDER/krew-index/plugins/NAME.yaml`, to be pushed as a git repository for `kubectl krew index add`.
 */
import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { krewManifests } from './krew.ts';

const [folder, base = ''] = process.argv.slice(2);
if (folder === undefined || URL.parse(base) === null) {
  process.stderr.write('Usage: npm run krew FOLDER URL\n');
  process.exit(2);
}
const sums = `${folder}/SHA256SUMS`;
const lines = (await readFile(sums, 'utf8')).trimEnd().split('\n');
const checksums = new Map(lines.map((line) => [line.slice(66), line.slice(0, 64)] as const));
const manifests = krewManifests(checksums, base.replace(/\/$/, ''));
const index = `${folder}/krew-index/plugins`;
await mkdir(index, { recursive: true });
for (const [name, text] of manifests) {
  for (const place of [folder, index]) await writeFile(`${place}/${name}`, text);
  checksums.set(name, createHash('sha256').update(text).digest('hex'));
}
await writeFile(sums, [...checksums].map(([name, sum]) => `${sum}  ${name}\n`).join(''));
