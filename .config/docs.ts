/** Writes the generated documents and golden help texts, which tests compare with the option records and outputs. */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { generatedDocs } from '../test/support/project/docs.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
await rm(`${root}/test/golden/help`, { recursive: true, force: true });
await mkdir(`${root}/test/golden/help`, { recursive: true });
for (const [path, text] of await generatedDocs()) {
  await writeFile(`${root}/${path}`, text);
}
