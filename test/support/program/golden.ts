import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';

const root = new URL('../../golden/', import.meta.url);

/**
 * Expects a text to equal a file in test/golden. With UPDATE_GOLDEN in the environment, writes the file instead. Review
 * it before the commit.
 */
export async function expectGolden(name: string, text: string): Promise<void> {
  const file = fileURLToPath(new URL(name, root));
  if (process.env['UPDATE_GOLDEN']) {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text);
  }
  expect(text).to.equal(await readFile(file, 'utf8'), `differs from test/golden/${name}`);
}
