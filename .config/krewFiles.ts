/**
 * Writes the krew manifests beside archives: `npm run krew FOLDER URL`, with the checksums in SHA256SUMS of the folder.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { krewManifests } from './krew.ts';

const [folder, base] = process.argv.slice(2);
if (folder === undefined || base === undefined) throw new Error('Usage: npm run krew FOLDER URL');
const sums = (await readFile(`${folder}/SHA256SUMS`, 'utf8')).matchAll(/^([0-9a-f]{64}) [ *](\S+)$/gm);
const checksums = new Map([...sums].map(([, sum = '', name = '']) => [name, sum] as const));
for (const [name, text] of krewManifests(checksums, { base, onlyKnown: true }))
  await writeFile(`${folder}/${name}`, text);
