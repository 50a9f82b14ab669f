/**
 * Writes krew manifests for the archives of a folder: `npm run krew FOLDER URL`, where URL is the address that the
 * archives will have. Reads the checksums in SHA256SUMS, and adds the manifests to it. Also writes a custom index,
 * `FOLDER/krew-index/plugins/NAME.yaml`, to be pushed as a git repository for `kubectl krew index add`. Refuses to
 * change checksums that are signed, before it writes anything.
 */
import { createHash } from 'node:crypto';
import { access, mkdir, readFile, writeFile } from 'node:fs/promises';
import { krewManifests } from './krew.ts';

const [folder, base = ''] = process.argv.slice(2);
if (folder === undefined || URL.parse(base) === null) {
  process.stderr.write('Usage: npm run krew FOLDER URL\n');
  process.exit(2);
}
const sums = `${folder}/SHA256SUMS`;
const before = await readFile(sums, 'utf8');
const lines = before.trimEnd().split('\n');
const checksums = new Map(lines.map((line) => [line.slice(66), line.slice(0, 64)] as const));
const manifests = krewManifests(checksums, base.replace(/\/$/, ''));
for (const [name, text] of manifests) checksums.set(name, createHash('sha256').update(text).digest('hex'));
const after = [...checksums].map(([name, sum]) => `${sum}  ${name}\n`).join('');
const signature = `${sums}.asc`;
const isSigned = await access(signature).then(
  () => true,
  () => false,
);
if (isSigned && after !== before) {
  process.stderr.write(
    `error: ${signature} signs other checksums than with these manifests, and would no longer match.\n` +
      `If the key is yours, remove it, run this again, then sign: gpg --armor --detach-sign ${sums}\n` +
      'If it is not, copy the archives and SHA256SUMS into another folder without it, and name that folder.\n',
  );
  process.exit(1);
}
const index = `${folder}/krew-index/plugins`;
await mkdir(index, { recursive: true });
for (const [name, text] of manifests) for (const place of [folder, index]) await writeFile(`${place}/${name}`, text);
await writeFile(sums, after);
