import { chmod, mkdir, mkdtemp, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostFolder } from '../../../lib/node/machine/hostFolder.ts';
import { ForgetfulDisk } from '../../fakes/files/forgetfulDisk.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('HostFolder', () => {
  let place: string;
  before(function () {
    if (process.platform !== 'linux') this.skip();
  });
  beforeEach(async () => {
    place = await mkdtemp(join(tmpdir(), 'host-folder-'));
    await writeFile(join(place, 'file'), 'content');
  });
  afterEach(() => rm(place, { recursive: true }));

  it('opens no file through a link', async () => {
    await symlink('file', join(place, 'link'));
    await using folder = await HostFolder.open(place, '/');
    const error = await failureOf(folder.openFile('link'), 'not-readable');
    expect(error.message).to.include('/link cannot be read');
  });

  it('copies a file with its mode, so that the copy survives a power failure', async () => {
    await chmod(join(place, 'file'), 0o664);
    await mkdir(join(place, 'copies'));
    using disk = await ForgetfulDisk.open(place);
    await using folder = await HostFolder.open(place, '/');
    await using copies = await HostFolder.open(place, '/copies');
    await folder.copyFile('file', copies, new AbortController().signal);
    expect((await stat(join(place, 'copies/file'))).mode & 0o777).to.equal(0o664);
    expect(disk.failPower().get('copies/file')?.toString()).to.equal('content');
  });
});
