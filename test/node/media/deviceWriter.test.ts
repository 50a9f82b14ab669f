import { mkdir, open, readFile, rm, writeFile, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import * as openpgp from 'openpgp';
import { openWorkshop, runProgram, type ProgramOptions, type Workshop } from '../../support/content/creation.ts';
import { requireLoopDevices, Drives, type Drive } from '../../support/loopDevice.ts';
import { runSuccessfully } from '../../support/peers.ts';
import type { Execution } from '../../support/program/execution.ts';

describe('writeDevice', () => {
  let workshop: Workshop;
  let drives: Drives;
  before(async function () {
    await requireLoopDevices(this);
    workshop = await openWorkshop();
  });
  // There is none if the suite is skipped.
  after(() => (workshop as Workshop | undefined)?.close());
  beforeEach(async () => {
    for (const each of [join(workshop.folder, 'bin'), workshop.output])
      await rm(each, { recursive: true, force: true });
    drives = await Drives.open(workshop.folder);
  });
  afterEach(() => drives.close());

  const create = (device: string, changes: ProgramOptions = {}): Promise<Execution> =>
    runProgram(workshop.folder, 'create', workshop.options({ device, ...changes }), { PATH: drives.path });
  const headOf = async ({ device }: Drive): Promise<string> => {
    await using file = await open(device, 'r');
    return (await file.read(Buffer.alloc(16), 0, 16, 0)).buffer.toString('latin1').replace(/\0+$/, '');
  };

  it('writes the bundle onto an empty drive, from where it verifies and agents find it', async () => {
    const drive = await drives.plug(await drives.makeImage(8));
    const { code, stdout, stderr } = await create(drive.device);
    expect(code, stderr).to.equal(0);
    expect(stdout)
      .to.match(/^Created/)
      .and.contain(`  the drive in ${drive.device}\n`)
      .and.match(/Remove the drive\.\n$/);
    const written = await readFile(drive.image);
    const bundle = await readFile(workshop.bundle);
    expect(written.subarray(0, bundle.length).equals(bundle)).to.equal(true);
    const verified = await runProgram(workshop.folder, 'verify', [
      drive.device,
      `--sha256=${workshop.bundle}.sha256`,
      `--trust-fingerprint=${workshop.key.fingerprint}`,
    ]);
    expect(verified.code, verified.stderr).to.equal(0);
    const place = `--mount-dir=${join(workshop.folder, 'media')}`;
    const found = await runProgram(workshop.folder, 'watch', ['--once', place], { PATH: drives.path });
    expect(found.stdout).to.match(new RegExp(`^found +4\\.12\\.4 x86_64, .*${drive.device}`));
    const again = await create(drive.device, { overwrite: true });
    expect(again.stdout)
      .to.match(/^Nothing to do/)
      .and.match(/Remove the drive\.\n$/);
  });

  it('leaves space for reports of the site after the bundle, and names the key for them', async () => {
    const { publicKey } = await openpgp.generateKey({ userIDs: [{ name: 'engineer' }] });
    const key = await workshop.write('engineer.asc', publicKey);
    const options = { 'report-space': '8Mi', 'report-to': key };
    const small = await drives.plug(await drives.makeImage(8));
    const failed = await create(small.device, options);
    expect(failed.code).to.equal(1);
    expect(failed.stderr).to.match(/has 8\.0 MiB, and the bundle needs \d+\.\d MiB/);
    const drive = await drives.plug(await drives.makeImage(16));
    expect((await create(drive.device, options)).code).to.equal(0);
    const inspect = (...args: string[]) => runProgram(workshop.folder, 'inspect', [drive.device, ...args]);
    expect((await inspect()).stdout).to.match(/Reports +8\.0 MiB after the bundle, encrypted to an OpenPGP key/);
    const { reports } = JSON.parse((await inspect('-o', 'json')).stdout) as { reports: { space: number; key: string } };
    expect(reports.space).to.equal(8 * 1024 ** 2);
    const { users } = await openpgp.readKey({ binaryKey: Buffer.from(reports.key, 'base64') });
    expect(users.map(({ userID }) => userID?.userID)).to.deep.equal(['engineer']);
    const tiny = await create(drive.device, { 'report-space': '100K' });
    expect(tiny.code).to.equal(2);
    expect(tiny.stderr).to.include('too small for two reports');
  });

  it('writes the head after everything else is on the drive, so that a power failure leaves no bundle', async () => {
    const drive = await drives.plug(await drives.makeImage(8));
    const heads: string[] = [];
    await using file = await open(drive.image);
    const prototype = Object.getPrototypeOf(file) as Pick<FileHandle, 'sync'>;
    const { sync } = prototype;
    prototype.sync = async function (this: FileHandle) {
      await sync.call(this);
      if ((await this.stat()).isBlockDevice()) heads.push(await headOf(drive));
    };
    try {
      expect((await create(drive.device)).code).to.equal(0);
    } finally {
      prototype.sync = sync;
    }
    expect(heads).to.deep.equal(['', 'metadata.json']);
  });

  it('refuses a drive that is not removable, mounted, not empty or too small, and leaves it as it is', async () => {
    const files = join(workshop.folder, 'files');
    await mkdir(files, { recursive: true });
    await writeFile(join(files, 'photo.jpg'), 'dear');
    const full = await drives.plug(await drives.makeExt4(files, 'PHOTOS'));
    const fixed = await drives.plug(await drives.makeImage(8), false);
    const data = await drives.plug(await drives.makeImage(8));
    await writeFile(data.device, 'data', { flag: 'r+' });
    const mounted = await drives.plug(await drives.makeExt4(files));
    const folder = join(workshop.folder, 'mounted');
    await mkdir(folder, { recursive: true });
    await runSuccessfully('mount', [mounted.device, folder]);
    await drives.list();
    const before = await readFile(full.image);
    for (const [device, message, options] of [
      [full.device, /is not empty: it has a file system of the type ext4 \(PHOTOS\)/, {}],
      [data.device, /is not empty: it has other data/, {}],
      [fixed.device, /is not removable: nothing is written to it/, { overwrite: true }],
      [mounted.device, /is in use: it or a partition of it is mounted/, { overwrite: true }],
      [workshop.folder, /is not a block device/, { overwrite: true }],
      ['/dev/sdzz', /\/dev\/sdzz: no such device/, {}],
    ] as const) {
      const { code, stderr } = await create(device, options);
      expect(code, `${device} ${stderr}`).not.to.equal(0);
      expect(stderr).to.match(message);
    }
    expect((await readFile(full.image)).equals(before)).to.equal(true);
    expect(await headOf(data)).to.equal('data');
    await runSuccessfully('umount', [folder]);
    const small = await drives.plug(await drives.makeImage(1 / 16));
    expect((await create(small.device)).stderr).to.match(/has 64\.0 KiB, and the bundle needs /);
    const replaced = await create(full.device, { overwrite: true });
    expect(replaced.code, replaced.stderr).to.equal(0);
    expect(await runSuccessfully('blkid', ['--probe', full.device]).catch(() => '')).not.to.contain('ext4');
  });

  it('writes nothing in a dry run, also of an existing bundle', async () => {
    const drive = await drives.plug(await drives.makeImage(8));
    expect((await runProgram(workshop.folder, 'create', workshop.options({}))).code).to.equal(0);
    const { code, stdout, stderr } = await create(drive.device, { 'dry-run': true });
    expect(code, stderr).to.equal(0);
    expect(stdout).not.to.contain('Remove the drive');
    expect(await headOf(drive)).to.equal('');
  });

  it('writes nothing onto another drive that has the path of the checked one', async () => {
    const drive = await drives.plug(await drives.makeImage(8));
    const other = await drives.makeImage(8);
    await writeFile(other, 'photos', { flag: 'r+' });
    const [script, mark] = [join(workshop.folder, 'bin', 'lsblk'), join(workshop.folder, 'bin', 'checked')];
    const swap = `losetup --detach '${drive.device}' && losetup '${drive.device}' '${other}'`;
    const lines = (await readFile(script, 'utf8')).replace(
      '\n',
      `\n[ ! -e '${mark}' ] || { ${swap}; }\ntouch '${mark}'\n`,
    );
    await writeFile(script, lines);
    const { code, stderr } = await create(drive.device, { overwrite: true });
    expect(code).to.equal(1);
    expect(stderr).to.contain('is another drive than at the start: nothing is written to it');
    expect((await readFile(other)).toString('latin1', 0, 6)).to.equal('photos');
    expect((await readFile(drive.image)).every((byte) => byte === 0)).to.equal(true);
  });

  it('fails if the drive is write-protected, or returns other bytes than were written', async () => {
    const locked = await drives.plug(await drives.makeImage(8));
    await runSuccessfully('blockdev', ['--setro', locked.device]);
    const refused = await create(locked.device);
    // The next device of this number would be read-only too.
    await runSuccessfully('blockdev', ['--setrw', locked.device]);
    expect(refused.code).to.equal(1);
    expect(refused.stderr)
      .to.match(/^error \([a-z-]+\): \S+ cannot be written: /m)
      .and.to.match(/^hint: Check its write protection/m);

    const worn = await drives.plug(await drives.makeImage(8));
    const script = join(workshop.folder, 'bin', 'blockdev');
    const spoil = 'printf corrupt | dd of="$2" bs=1 seek=50000 conv=notrunc,fsync status=none';
    await writeFile(script, `#!/bin/sh\n${spoil}\nPATH=/usr/sbin:/sbin exec blockdev "$@"\n`, { mode: 0o755 });
    const { code, stderr } = await create(worn.device);
    expect(code).to.equal(1);
    expect(stderr).to.match(/^error \([a-z-]+\): \S+ returned other bytes than were written: .*/m);
  });
});
