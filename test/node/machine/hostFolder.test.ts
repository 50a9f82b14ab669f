import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostFolder } from '../../../lib/node/machine/hostFolder.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('HostFolder', () => {
  it('opens no file through a link', async function () {
    if (process.platform !== 'linux') this.skip();
    const place = await mkdtemp(join(tmpdir(), 'host-folder-'));
    try {
      await writeFile(join(place, 'secret'), 'secret');
      await symlink('secret', join(place, 'link'));
      await using folder = await HostFolder.open(place, '/');
      const error = await failureOf(folder.openFile('link'), 'not-readable');
      expect(error.message).to.include('/link cannot be read');
    } finally {
      await rm(place, { recursive: true });
    }
  });
});
