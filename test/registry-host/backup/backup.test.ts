import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { writeBackup } from '../../../lib/registry-host/backup/backup.ts';
import { ForgetfulDisk } from '../../fakes/files/forgetfulDisk.ts';

describe('writeBackup', () => {
  it('writes a backup that survives a power failure', async function () {
    // The fake disk reads open files through /proc.
    if (process.platform !== 'linux') this.skip();
    const folder = await mkdtemp(join(tmpdir(), 'backup-writer-'));
    try {
      using disk = await ForgetfulDisk.open(folder);
      const path = join(folder, 'registry.tar');
      const facts = { format: 1, created: '', version: undefined, quay: '', hostname: '', hasImages: false } as const;
      const content = Buffer.from('SERVER_HOSTNAME: localhost');
      const packed = async function* () {
        yield await Promise.resolve({ path: 'quay-config/config.yaml', size: content.length, content: [content] });
      };
      await writeBackup(path, facts, packed());
      expect(disk.failPower().get('registry.tar')).to.deep.equal(await readFile(path));
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
