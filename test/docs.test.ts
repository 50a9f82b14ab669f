import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { defaultName, commandNameOf, type Program } from '../cmd/cli/command.ts';
import { parse, normalizeWords } from '../cmd/cli/program.ts';
import { errorCodes, messageOf } from '../lib/errors.ts';
import { generatedDocs, programs } from './support/project/docs.ts';
import { brokenLinks, headingsOf, pagesFrom, readPages } from './support/project/markdown.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

/** Reads a command line without running it. Returns the problem if it is invalid. */
function problemOf(program: Program, words: readonly string[]): Promise<string | undefined> {
  return parse(program, normalizeWords(words), () => Promise.resolve()).then(() => undefined, messageOf);
}

describe('the generated documents', () => {
  it('are those of the option records (`npm run docs` writes them)', async () => {
    for (const [path, text] of await generatedDocs()) {
      expect(await readFile(`${root}/${path}`, 'utf8').catch(() => ''), path).to.equal(text);
    }
  });

  it('have no help text of a command that is gone', async () => {
    const expected = [...(await generatedDocs()).keys()].filter((path) => path.startsWith('test/golden/help/'));
    const found = (await readdir(`${root}/test/golden/help`)).map((name) => `test/golden/help/${name}`);
    expect(found).to.have.members(expected);
  });

  it('show examples that are understood as they are written', async () => {
    for (const program of programs) {
      for (const entry of program.commands) {
        const name = commandNameOf(entry);
        for (const [args] of (await entry.load()).command.examples) {
          // The rest is for the shell.
          const [shown = ''] = args.split(/ [|>] /);
          const words = shown.replace('=sha256:…', `=sha256:${'0'.repeat(64)}`);
          const line = [...(name === defaultName ? [] : [name]), ...splitWords(words)];
          const problem = await problemOf(program, line);
          // The files of an example need not exist.
          if (problem !== undefined) expect(problem, args).to.match(/there is no file/);
        }
      }
    }
  });

  it('show an example of every command, and describe every option by a phrase', async () => {
    for (const program of programs) {
      for (const entry of program.commands) {
        const { command } = await entry.load();
        expect(command.examples, entry.usage).not.to.be.empty;
        for (const [name, { describe, suggest }] of Object.entries({ ...command.options, ...command.positionals })) {
          expect(describe, `${entry.usage} ${name}`).to.match(/^[A-Z].*[^.\s]$/s);
          // The completion of a shell for it.
          const [, kind] = /^(?:PEM |YAML )?(file|folder)\b/i.exec(describe) ?? [];
          const kinds = kind?.toLowerCase() === 'file' ? ['files', 'paths'] : ['folders'];
          if (kind) expect(kinds, `suggest of ${entry.usage} ${name}`).to.include(suggest);
        }
      }
    }
  });
});

describe('the written documents', () => {
  it('have links that lead somewhere', async () => {
    expect(brokenLinks(await readPages(root), (path) => existsSync(`${root}/${path}`))).to.deep.equal([]);
  });

  it('show commands that are understood as they are written', async () => {
    for (const [path, text] of await readPages(root)) {
      if (!/^(README|docs\/how-to\/.*)\.md$/.test(path)) continue;
      for (const { program, line } of commandsOf(text)) {
        const problem = await problemOf(program, line);
        if (problem !== undefined) expect(problem, `${path}: ${line.join(' ')}`).to.match(/there is no file/);
      }
    }
  });

  it('have how-to pages with the same parts, one command in each step, and releases that are supported', async () => {
    const pages = await readPages(root);
    const readme = pages.get('README.md');
    for (const [path, text] of pages) {
      if (!path.startsWith('docs/how-to/')) continue;
      expect(readme, 'README.md').to.include(`](${path})`);
      expect(headingsOf(text), path).to.include.members(['Before you begin', 'Verify', 'Troubleshoot']);
      expect(text, path).to.match(/^1\. /m);
      for (const block of blocksOf(text)) {
        const commands = block.split('\n').filter((line) => /^ {0,3}\S/.test(line));
        expect(commands.length === 1 || block.includes('; do\n'), `${path}: ${block}`).to.equal(true);
        for (const [release, minor] of block.matchAll(/\b4\.(\d+)\.\d+/g)) {
          expect(Number(minor), `${path}: ${release}`).to.be.at.least(18);
        }
      }
    }
  });

  it('have an architecture page that is short: 150 lines of 120 columns', async () => {
    const lines = (await readFile(`${root}/docs/architecture.md`, 'utf8')).split('\n');
    expect(lines).to.have.length.at.most(151);
    expect(lines.filter(({ length }) => length > 120)).to.deep.equal([]);
  });

  it('name files that exist', async () => {
    const missing = [...(await readPages(root))].flatMap(([path, text]) => {
      const named = [...text.matchAll(/`((?:lib|cmd|test|\.config|\.ci|\.github)\/[\w./-]*\w)`/g)].map(
        ([, name = '']) => name,
      );
      // The tests in SECURITY.md, below test/.
      const tests = path === 'SECURITY.md' ? [...text.matchAll(/`([a-z-]+(?:\/[\w-]+)+)`/g)] : [];
      const all = [...named, ...tests.map(([, name = '']) => `test/${name}.test.ts`)];
      return all.filter((name) => !existsSync(`${root}/${name}`)).map((name) => `${path}: ${name}`);
    });
    expect(missing).to.deep.equal([]);
  });

  it('can all be reached from the README', async () => {
    const pages = await readPages(root);
    expect([...pagesFrom('README.md', pages)]).to.include.members([...pages.keys()]);
  });

  it('explain every error code, in the order and with the words of the record, and none that is gone', async () => {
    const page = await readFile(`${root}/docs/troubleshooting.md`, 'utf8');
    const [, question, ...codes] = headingsOf(page);
    expect(question).to.equal('My update stands still: what now?');
    expect(codes).to.deep.equal(Object.keys(errorCodes));
    for (const [code, meaning] of Object.entries(errorCodes)) {
      const [, section = ''] = page.split(`\n## ${code}\n\n`);
      expect(section.split('\n')[0], code).to.equal(meaning);
      expect(section.split('\n## ')[0], code).to.include('**Usual causes.**').and.to.include('**What to do.**');
    }
  });
});

/** Returns the fenced blocks of a page that have no language. */
function blocksOf(page: string): string[] {
  const blocks = [...page.matchAll(/^ *```(\w*)\n([^]*?)^ *```$/gm)];
  return blocks.filter(([, language]) => language === '').map(([, , text = '']) => text);
}

/** Returns the commands in the fenced blocks of a page, without the rest of the shell's line. */
/** Splits a command line into words, with those in single quotes whole. */
function splitWords(line: string): string[] {
  return [...line.matchAll(/(?:'[^']*'|\S)+/g)].map(([word]) => word.replaceAll("'", ''));
}

function commandsOf(page: string): { program: Program; line: string[] }[] {
  const lines = blocksOf(page).flatMap((text) => text.replace(/\\\n */g, ' ').split('\n'));
  return lines.flatMap((text) => {
    const [, name = '', rest = ''] = /^(?:\$ | *|.*\$\()(oc adm-[a-z-]+)(?: (.*))?$/.exec(text) ?? [];
    const program = programs.find((each) => each.name === name);
    const words = rest.replace(/ [|>&].*|\)$/, '').replaceAll('sha256:…', `sha256:${'0'.repeat(64)}`);
    return program ? [{ program, line: splitWords(words) }] : [];
  });
}

describe('brokenLinks', () => {
  it('finds files and headings that are not there, and leaves code alone', () => {
    const pages = new Map([
      ['a.md', '# A\n\n## One: `two` & three\n\n[x](docs/b.md#b) [x](#one-two--three) [x](c.md) `[x](d.md)`'],
      ['docs/b.md', '# B\n\n[up](../a.md#nowhere) [web](http://example.com)\n\n```\n[x](e.md)\n```\n'],
    ]);
    expect(brokenLinks(pages)).to.deep.equal([
      'a.md: c.md',
      'docs/b.md: ../a.md#nowhere',
      'docs/b.md: http://example.com',
    ]);
  });
});
