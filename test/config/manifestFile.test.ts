import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { writeTextFile } from '../../lib/config/manifestFile.ts';
import { failureOf } from '../support/program/failure.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';

describe('writeTextFile', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await makeFolder();
  });
  afterEach(() => removeFolder(folder));

  it('makes a file with its folders, and says whether it changed', async () => {
    const path = join(folder, 'a/b/c.yaml');
    expect(await writeTextFile(path, 'one\n')).to.equal('created');
    const { mtimeMs } = await stat(path);
    expect(await writeTextFile(path, 'one\n')).to.equal('unchanged');
    expect((await stat(path)).mtimeMs).to.equal(mtimeMs);
    expect(await writeTextFile(path, 'two\n')).to.equal('configured');
    expect(await readFile(path, 'utf8')).to.equal('two\n');
    expect(await readdir(join(folder, 'a/b'))).to.deep.equal(['c.yaml']);
  });

  it('only says so in a dry run', async () => {
    const path = join(folder, 'a/c.yaml');
    expect(await writeTextFile(path, 'one\n', true)).to.equal('created');
    expect(await readdir(folder)).to.deep.equal([]);
    await mkdir(join(folder, 'a'));
    await writeFile(path, 'one\n');
    expect(await writeTextFile(path, 'two\n', true)).to.equal('configured');
    expect(await readFile(path, 'utf8')).to.equal('one\n');
  });

  it('says which file cannot be written', async () => {
    await writeFile(join(folder, 'a'), '');
    const path = join(folder, 'a/b.yaml');
    expect((await failureOf(writeTextFile(path, 'one\n'), 'not-writable')).message).to.contain(path);
  });
});
