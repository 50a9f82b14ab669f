import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { checkFolder, checkOutput, lockOf } from '../../../lib/bundle/open/sidecars.ts';
import { takeLock } from '../../../lib/content/files/lock.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('where a bundle goes', () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'output-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('may be a folder, a link to one, or nothing yet', async () => {
    await symlink(folder, join(folder, 'link'));
    for (const path of [folder, join(folder, 'link'), join(folder, 'a', 'b')]) await checkFolder(path);
  });

  it('is neither a file nor a link that leads nowhere', async () => {
    await writeFile(join(folder, 'file'), '');
    await symlink('nowhere', join(folder, 'link'));
    const file = await failureOf(checkFolder(join(folder, 'file')), 'not-writable');
    expect(file.message).to.equal(`${join(folder, 'file')} is not a folder`);
    const link = await failureOf(checkFolder(join(folder, 'link')), 'not-writable');
    expect(link.message).to.equal(`${join(folder, 'link')} is a link to a folder that does not exist`);
  });

  it('is refused while another run writes it', async () => {
    const path = join(folder, 'upgrade.tar');
    await using _lock = await takeLock(lockOf(path), path);
    await failureOf(checkOutput(path), 'busy');
  });

  it('refuses a folder at the path of a file before anything is written', async () => {
    const path = join(folder, 'upgrade.tar');
    await checkOutput(path);
    for (const suffix of ['', '.partial', '.sha256', '.yaml']) {
      await mkdir(path + suffix);
      const { message } = await failureOf(checkOutput(path), 'not-writable');
      expect(message).to.contain(`${path}${suffix} is a folder`);
      expect(await readdir(folder)).to.deep.equal([`upgrade.tar${suffix}`]);
      await rm(path + suffix, { recursive: true });
    }
  });
});
