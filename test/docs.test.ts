import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { generatedDocs, programs } from './support/docs.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

describe('the generated documents', () => {
  it('are what the option records say (`npm run docs` writes them)', async () => {
    for (const [path, text] of await generatedDocs()) {
      expect(await readFile(`${root}/${path}`, 'utf8').catch(() => ''), path).to.equal(text);
    }
  });

  it('have no help text of a command that is gone', async () => {
    const expected = [...(await generatedDocs()).keys()].filter((path) => path.startsWith('test/golden/help/'));
    const found = (await readdir(`${root}/test/golden/help`)).map((name) => `test/golden/help/${name}`);
    expect(found).to.have.members(expected);
  });

  it('show an example of every command, and describe every option by a phrase', async () => {
    for (const program of programs) {
      for (const entry of program.commands) {
        const { command } = await entry.load();
        expect(command.examples, entry.usage).not.to.be.empty;
        for (const [name, { describe }] of Object.entries({ ...command.options, ...command.positionals })) {
          expect(describe, `${entry.usage} ${name}`).to.match(/^[A-Z].*[^.\s]$/s);
        }
      }
    }
  });
});
