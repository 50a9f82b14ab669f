import { mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { verifyBundle } from '../../../lib/bundle/verify.ts';
import { isPluginError } from '../../../lib/errors.ts';
import { Media } from '../../../lib/node/media.ts';
import { readReports, type Region } from '../../../lib/node/media/reportRegion.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { Drives, requireLoopDevices, type Drive } from '../../support/loopDevice.ts';
import { run, runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { until } from '../../support/until.ts';

describe('a report on a drive', () => {
  const megabyte = 1024 ** 2;
  let bundle: TestBundle;
  let folder: string;
  let drives: Drives;
  let media: Media;

  before(async function () {
    await requireLoopDevices(this);
    bundle = await makeBundle();
  });
  after(async () => {
    await (bundle as TestBundle | undefined)?.remove();
  });
  beforeEach(async () => {
    folder = await makeFolder();
    drives = await Drives.open(folder);
    const host = { root: '/', environment: { ...process.env, PATH: drives.path } };
    media = await Media.open({ host, place: join(folder, 'media'), devices: [] }, makeContext());
  });
  afterEach(async () => {
    await media.close();
    await drives.close();
    await removeFolder(folder);
  });

  const report = (text: string, time = '1') => ({
    name: `update-report-a-${time}.json`,
    content: Buffer.from(text),
  });
  const find = async () => {
    await drives.list();
    await media.search();
    const [found] = media.bundles;
    return found ?? expect.fail('there is no bundle');
  };
  const write = async (written: ReturnType<typeof report>, region?: Region) =>
    (await media.writeReport(await find(), written, region))?.outcome;
  const reportsIn = async (bytes: Buffer): Promise<string[]> => {
    const read = (offset: number, size: number) => Promise.resolve(bytes.subarray(offset, offset + size));
    return (await readReports(bytes.length, read)).map(({ content }) => content.toString());
  };
  const expectGood = async (path: string): Promise<void> => {
    await using opened = await openBundle(path, makeContext());
    expect((await verifyBundle(opened, {}, makeContext())).problems).to.deep.equal([]);
  };
  /** Makes an image with an ext4 file system, and some files. */
  const makeExt4 = async (label: string, megabytes: number, files: Record<string, Buffer> = {}): Promise<string> => {
    const own = join(folder, `files-${label}`);
    await rm(own, { recursive: true, force: true });
    await mkdir(own);
    for (const [name, content] of Object.entries(files)) await writeFile(join(own, name), content);
    return drives.makeExt4(own, label, megabytes);
  };
  const plugStick = async (reportImage: string): Promise<readonly [Drive, Drive]> => {
    const files = { [basename(bundle.path)]: await readFile(bundle.path) };
    const first = await drives.plug(await makeExt4('bundle', 8, files));
    const second = await drives.plug(reportImage);
    await drives.divide('/dev/sdy', first, second);
    return [first, second];
  };
  const filesOf = async (image: string): Promise<string> =>
    (await runSuccessfully('debugfs', ['-R', 'ls -l', image])).trim();
  const readFileOf = async (image: string, name: string): Promise<Buffer> => {
    const to = join(folder, 'out');
    await runSuccessfully('debugfs', ['-R', `dump ${name} ${to}`, image]);
    return readFile(to);
  };

  describe('that has the bundle on the device itself', () => {
    const region = { offset: 2 * megabyte, size: 8 * megabyte };
    const plug = async (): Promise<Drive> => {
      const image = await drives.makeImage(12);
      await runSuccessfully('dd', [`if=${bundle.path}`, `of=${image}`, 'conv=notrunc', 'status=none']);
      return drives.plug(image);
    };

    it('is after the bundle, and no byte outside of its region changes', async () => {
      const drive = await plug();
      const before = await readFile(drive.image);
      expect(await write(report('first'), region)).to.equal('written');
      expect(await write(report('first'), region)).to.equal('same');
      expect(await write(report('second', '2'), region)).to.equal('written');
      const after = await readFile(drive.image);
      const end = region.offset + region.size;
      expect(after.subarray(0, region.offset).equals(before.subarray(0, region.offset))).to.equal(true);
      expect(after.subarray(end).equals(before.subarray(end))).to.equal(true);
      expect(await reportsIn(after.subarray(region.offset, end))).to.deep.equal(['second', 'first']);
      await expectGood(drive.device);
    });

    it('leaves the bundle as it was found, so that it is not verified again', async () => {
      await plug();
      const found = await find();
      expect((await media.writeReport(found, report('first'), region))?.outcome).to.equal('written');
      expect(await find()).to.equal(found);
    });

    it('does not hold up the agent if the drive takes no bytes', async () => {
      const drive = await plug();
      await media.close();
      const host = { root: '/', environment: { ...process.env, PATH: drives.path } };
      const options = { host, place: join(folder, 'media'), devices: [], deviceTimeout: 1000 };
      media = await Media.open(options, makeContext());
      const found = await find();
      const dd = join(folder, 'bin', 'dd');
      const script = '#!/bin/sh\ncase "$*" in *of=*) sleep 3;; esac\nexec /bin/dd "$@"\n';
      await writeFile(dd, script, { mode: 0o755 });
      expect(await media.writeReport(found, report('x'), region)).to.equal(undefined);
      expect(media.rejected.map(({ reason }) => reason).join()).to.include('does not answer');
      await rm(dd);
      await until(() => media.rejected.length === 0);
      await expectGood(drive.device);
    });

    it('leaves no loop device', async () => {
      const drive = await plug();
      await write(report('first'), region);
      // The kernel detaches it when nothing has it open any more, such as a program that looks at all block devices.
      await until(async () => (await runSuccessfully('losetup', ['--associated', drive.device])) === '');
    });

    it('is not written past the end of the drive, without a region, or to a disk that is built in', async () => {
      const drive = await plug();
      const found = await find();
      const past = { offset: 8 * megabyte, size: 8 * megabyte };
      const { message } = await failureOf(media.writeReport(found, report('x'), past), 'not-writable');
      expect(message).to.include('is smaller than the bundle and its space for reports');
      expect(await media.writeReport(found, report('x'), undefined)).to.equal(undefined);
      await drive.pull();
      const image = await drives.makeImage(12);
      await runSuccessfully('dd', [`if=${bundle.path}`, `of=${image}`, 'conv=notrunc', 'status=none']);
      await drives.plug(image, false);
      expect(await write(report('x'), region)).to.equal(undefined);
      expect((await readFile(image)).subarray(region.offset).every((byte) => byte === 0)).to.equal(true);
    });

    it('is not written to a drive with other content than before', async () => {
      const drive = await plug();
      const found = await find();
      // Another number of the drive counts in the same way. A test cannot keep a loop device for itself between two
      // drives.
      await writeFile(drive.image, Buffer.alloc(12 * megabyte), { flag: 'r+' });
      await runSuccessfully('blockdev', ['--flushbufs', drive.device]);
      expect(await media.writeReport(found, report('x'), region)).to.equal(undefined);
      expect((await readFile(drive.image)).every((byte) => byte === 0)).to.equal(true);
    });
  });

  describe('with a second partition', () => {
    it('is in one file there, and the partition with the bundle does not change', async () => {
      const [first, second] = await plugStick(await makeExt4('OCPRPT', 40));
      const before = await readFile(first.image);
      for (const time of ['1', '2', '3']) expect(await write(report(`text ${time}`, time))).to.equal('written');
      expect(await write(report('text 3', '3'))).to.equal('same');
      expect((await readFile(first.image)).equals(before)).to.equal(true);
      await second.pull();
      const region = await readFileOf(second.image, 'oc-reports.img');
      expect(region.length).to.equal(16 * megabyte);
      expect(await reportsIn(region)).to.deep.equal(['text 3', 'text 2', 'text 1']);
    });

    it('writes nothing into a partition of another disk, or with another label', async () => {
      const other = await drives.plug(await makeExt4('OCPRPT', 40));
      await drives.divide('/dev/sdz', other);
      const [, second] = await plugStick(await makeExt4('DATA', 40));
      expect(await write(report('x'))).to.equal(undefined);
      for (const { image } of [other, second]) expect(await filesOf(image)).not.to.include('oc-reports');
    });

    it('replaces a link, a hard link, a pipe and a file with holes, and writes through none of them', async () => {
      const secret = join(folder, 'secret');
      await writeFile(secret, 'secret');
      for (const make of [
        `ln -s '${secret}' oc-reports.img`,
        `ln -s '${secret}' oc-reports.img.new`,
        'head -c 16777216 /dev/zero > other && ln other oc-reports.img',
        'mkfifo oc-reports.img',
        'truncate -s 16M oc-reports.img',
        'mknod oc-reports.img b 7 0',
        'truncate -s 900G oc-reports.img',
      ]) {
        const image = await makeExt4('OCPRPT', 60);
        const place = join(folder, 'place');
        await mkdir(place, { recursive: true });
        await runSuccessfully('mount', ['-o', 'loop', image, place]);
        await runSuccessfully('sh', ['-c', `cd '${place}' && ${make}`]);
        const others = await run('sh', ['-c', `sha256sum '${place}/other'`]);
        await runSuccessfully('umount', [place]);
        const [first, second] = await plugStick(image);
        expect(await write(report('x')), make).to.equal('written');
        await second.pull();
        expect(await reportsIn(await readFileOf(image, 'oc-reports.img')), make).to.deep.equal(['x']);
        await runSuccessfully('mount', ['-o', 'loop', image, place]);
        expect((await run('sh', ['-c', `sha256sum '${place}/other'`])).stdout).to.equal(others.stdout);
        await runSuccessfully('umount', [place]);
        await first.pull();
        await media.search();
      }
      expect(await readFile(secret, 'utf8')).to.equal('secret');
    });

    it('says that there is no space, or that a folder is in its place', async () => {
      const image = await makeExt4('OCPRPT', 8);
      const [first, second] = await plugStick(image);
      const { message } = await failureOf(media.writeReport(await find(), report('x'), undefined), 'disk-full');
      expect(message).to.include('has no space for reports');
      for (const each of [first, second]) await each.pull();
      await media.search();
      const taken = await drives.makeImage(40);
      await runSuccessfully('mkfs.ext4', ['-q', '-L', 'OCPRPT', taken]);
      await runSuccessfully('debugfs', ['-w', '-R', 'mkdir oc-reports.img', taken]);
      await plugStick(taken);
      const { message: words } = await failureOf(
        media.writeReport(await find(), report('x'), undefined),
        'not-writable',
      );
      expect(words).to.include('oc-reports.img');
    });

    it('says that a corrupt file system cannot be written, and unmounts it', async () => {
      const image = await makeExt4('OCPRPT', 40);
      // The tables of blocks and inodes; the label stays.
      const noise = Buffer.alloc(2 * megabyte, 0x5a);
      await runSuccessfully('sh', [
        '-c',
        `head -c ${noise.length} /dev/urandom | dd of='${image}' bs=4096 seek=2 conv=notrunc status=none`,
      ]);
      await runSuccessfully('tune2fs', ['-e', 'panic', '-f', image]).catch(() => undefined);
      await plugStick(image);
      const failure = await media.writeReport(await find(), report('x'), undefined).catch((error: unknown) => error);
      expect(isPluginError(failure), String(failure)).to.equal(true);
      expect(await readFile('/proc/mounts', 'utf8')).not.to.include('.report ');
      expect((await stat(folder)).isDirectory()).to.equal(true);
    });
  });
});
