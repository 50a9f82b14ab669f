import { expect } from 'chai';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PluginError } from '../../lib/errors.ts';
import { checkSpace, describeWriteError, syncFolder } from '../../lib/files/disk.ts';
import { failureOf } from '../support/program/failure.ts';

describe('describeWriteError', () => {
  const of = (code: string): unknown =>
    describeWriteError(Object.assign(new Error(`${code}: it failed`), { code }), '/media/stick/upgrade.tar');

  it('says that the disk is full, and that the next run goes on', () => {
    for (const code of ['ENOSPC', 'EDQUOT']) {
      expect(of(code)).to.be.instanceOf(PluginError).and.include({ code: 'disk-full' });
    }
  });

  it('says which file systems hold large files', () => {
    expect(of('EFBIG')).to.include({ code: 'not-writable' }).and.have.property('hint').that.contains('FAT32');
  });

  it('says what cannot be written, and why', () => {
    for (const code of ['EACCES', 'EROFS', 'EPERM', 'ENOENT', 'EISDIR', 'ERR_FS_EISDIR', 'EIO']) {
      const error = of(code) as PluginError;
      expect(error).to.include({ code: 'not-writable' });
      expect(error.message).to.contain('/media/stick/upgrade.tar').and.contain(code);
    }
  });

  it('leaves everything else as it is', () => {
    for (const error of [new PluginError('digest-mismatch', 'x'), new TypeError('x'), 'x', undefined]) {
      expect(describeWriteError(error, 'x')).to.equal(error);
    }
  });
});

describe('checkSpace', () => {
  it('is content with what fits, and names both sizes of what does not', async () => {
    const path = join(tmpdir(), 'upgrade.tar');
    await checkSpace(path, 1);
    await checkSpace(path, -1);
    const error = await failureOf(checkSpace(path, 2 ** 52), 'disk-full');
    expect(error.message).to.match(/needs 4194304\.0 GiB more, and .* has [\d.]+ [MG]iB free/);
  });
});

describe('syncFolder', () => {
  it('is content with folders that are there, and with those that are not', async () => {
    await syncFolder(tmpdir());
    await syncFolder(join(tmpdir(), 'nowhere', 'at', 'all'));
  });
});
