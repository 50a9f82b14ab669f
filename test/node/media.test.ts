import { copyFile, mkdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../lib/bundle/open/open.ts';
import { volumeName } from '../../lib/content/archive/volumes.ts';
import { type MediaEvent } from '../../lib/node/media.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { useMediaSite } from '../support/content/mediaSite.ts';
import { makeContext } from '../support/context.ts';
import { kernelHas, requireLoopDevices, skipLoudly, type Drives } from '../support/loopDevice.ts';
import { hasPeer, run, runSuccessfully } from '../support/peers.ts';
import { until } from '../support/until.ts';

describe('media', () => {
  let one: TestBundle;
  let other: TestBundle;
  let split: TestBundle;
  let folder: string;
  let drives: Drives;
  const made: TestBundle[] = [];

  before(async function () {
    await requireLoopDevices(this);
    for (const options of [{}, { version: '4.12.5' }, { volumeSize: 40_000 }]) made.push(await makeBundle(options));
    [one, other, split] = made as [TestBundle, TestBundle, TestBundle];
  });
  after(async () => {
    for (const bundle of made) await bundle.remove();
  });
  const { made: site, openMedia, gather, search, brief, expectGood } = useMediaSite();
  beforeEach(() => {
    ({ folder, drives } = site());
  });

  it('finds a bundle on a device itself, removable or not, and notices when it goes', async () => {
    for (const removable of [true, false]) {
      const image = await drives.makeImage(4);
      await runSuccessfully('dd', [`if=${one.path}`, `of=${image}`, 'conv=notrunc', 'status=none']);
      const drive = await drives.plug(image, removable);
      const media = await openMedia();
      const [found, ...rest] = await search(media);
      expect(found).to.include({ event: 'found', device: drive.device, path: drive.device, version: '4.12.4' });
      expect(rest).to.deep.equal([]);
      await expectGood(drive.device);
      expect(await search(media)).to.deep.equal([]);
      await drive.pull();
      expect(brief(await search(media))).to.deep.equal([`removed ${drive.device} 4.12.4`]);
      await site().opened.pop()?.close();
    }
  });

  it('finds a bundle on a device only when all of it is written', async () => {
    const image = await drives.makeImage(4);
    const drive = await drives.plug(image);
    const media = await openMedia();
    expect(await search(media)).to.deep.equal([]);
    await runSuccessfully('dd', [`if=${one.path}`, `of=${drive.device}`, 'bs=1k', 'count=20', 'status=none']);
    expect(brief(await search(media))).to.deep.equal([`rejected ${drive.device} ${basename(drive.device)}`]);
    await runSuccessfully('dd', [`if=${one.path}`, `of=${drive.device}`, 'bs=1k', 'conv=notrunc', 'status=none']);
    expect(brief(await search(media))).to.deep.equal([`found ${drive.device} 4.12.4`]);
  });

  it('does not read a device again that failed, until something is written to it', async () => {
    const large = await makeBundle({ layerSize: 100_000 });
    made.push(large);
    const image = await drives.makeImage(8);
    const write = (to: string, ...options: string[]): Promise<string> =>
      runSuccessfully('dd', [`if=${large.path}`, `of=${to}`, 'bs=1k', 'conv=notrunc', 'status=none', ...options]);
    await write(image, 'count=100');
    const drive = await drives.plug(image);
    const media = await openMedia();
    expect(brief(await search(media))).to.deep.equal([`rejected ${drive.device} ${basename(drive.device)}`]);
    // Written without the device, so that only reading it shows the change.
    await write(image);
    await runSuccessfully('blockdev', ['--flushbufs', drive.device]);
    expect(await search(media)).to.deep.equal([]);
    await write(drive.device, 'count=1');
    expect(brief(await search(media))).to.deep.equal([`found ${drive.device} 4.12.4`]);
  });

  const filesystems: readonly (readonly [name: string, mkfs: readonly string[], megabytes: number])[] = [
    ['ext4', ['mkfs.ext4', '-q'], 16],
    ['xfs', ['mkfs.xfs', '-q'], 320],
    ['vfat', ['mkfs.vfat', '-F', '32'], 40],
    ['exfat', ['mkfs.exfat', '-q'], 16],
  ];
  for (const [filesystem, mkfs, megabytes] of filesystems) {
    it(`finds a bundle in one file and one in volumes on ${filesystem}`, async function () {
      if ((await run(mkfs[0] ?? '', ['-V'])).code === -1) skipLoudly(this, `there is no ${String(mkfs[0])}`);
      if (!(await kernelHas(filesystem))) skipLoudly(this, `this kernel has no ${filesystem}`);
      for (const bundle of [one, split]) {
        const drive = await drives.plug(await drives.makeMounted(mkfs, megabytes, await gather(bundle)));
        const media = await openMedia();
        const [found] = await search(media);
        expect(found).to.include({ event: 'found', device: drive.device, filesystem, version: '4.12.4' });
        expect(found).to.include({
          digest: bundle.result.digest,
          volumes: bundle === one ? 1 : split.result.metadata.volumes?.length,
        });
        await expectGood((found as { path: string }).path);
        await site().opened.pop()?.close();
        await drive.pull();
      }
    });
  }

  it('finds a bundle on a disc', async function () {
    if ((await run('xorriso', ['-version'])).code !== 0) skipLoudly(this, 'there is no xorriso');
    if (!(await kernelHas('iso9660'))) skipLoudly(this, 'this kernel has no iso9660');
    const image = await drives.makeImage(0);
    await runSuccessfully('xorriso', [
      '-as',
      'mkisofs',
      '-quiet',
      '-R',
      '-V',
      'upgrade_4',
      '-o',
      image,
      await gather(one),
    ]);
    const drive = await drives.plug(image, false);
    expect(brief(await search(await openMedia()))).to.deep.equal([`found ${drive.device} 4.12.4`]);
  });

  it('releases a USB drive that is removed, and mounts the next one', async () => {
    const drive = await drives.plug(await drives.makeExt4(await gather(one)));
    const media = await openMedia();
    const [found] = (await search(media)) as { path: string }[];
    // A reader has it open.
    const bundle = await openBundle(found?.path ?? '', makeContext());
    await drive.pull();
    expect(brief(await search(media))).to.deep.equal([`removed ${drive.device} 4.12.4`]);
    expect(media.bundles).to.deep.equal([]);
    expect((await run('findmnt', ['--source', drive.device])).code).to.equal(1);
    await bundle[Symbol.asyncDispose]();
    const next = await drives.plug(await drives.makeExt4(await gather(other)));
    expect(brief(await search(media))).to.deep.equal([`found ${next.device} 4.12.5`]);
  });

  it('detects another USB drive in the same port', async () => {
    const media = await openMedia();
    const first = await drives.plug(await drives.makeExt4(await gather(one)));
    expect(brief(await search(media))).to.deep.equal([`found ${first.device} 4.12.4`]);
    const image = await drives.makeExt4(await gather(other));
    await run('umount', [first.device]);
    await runSuccessfully('losetup', ['--detach', first.device]);
    // The kernel detaches it when nothing has it open any more, such as a program that looks at all block devices.
    await until(async () => (await run('losetup', [first.device])).code !== 0);
    await runSuccessfully('losetup', [first.device, image]);
    expect(brief(await search(media))).to.deep.equal([
      `removed ${first.device} 4.12.4`,
      `found ${first.device} 4.12.5`,
    ]);
  });

  it('tells of two different bundles at once, and not of two copies of one', async () => {
    const image = await drives.makeImage(4);
    await runSuccessfully('dd', [`if=${one.path}`, `of=${image}`, 'conv=notrunc', 'status=none']);
    await drives.plug(image);
    await drives.plug(await drives.makeExt4(await gather(split)));
    const media = await openMedia();
    expect((await search(media)).map(({ event }) => event)).to.deep.equal(['found', 'found']);
    const third = await drives.plug(await drives.makeExt4(await gather(other)));
    expect((await search(media)).map(({ event }) => event)).to.deep.equal(['found', 'conflict']);
    expect(await search(media)).to.deep.equal([]);
    await third.pull();
    expect((await search(media)).map(({ event }) => event)).to.deep.equal(['removed']);
  });

  it('tells of no conflict between a delta and its base', async () => {
    const delta = await makeBundle({ version: '4.12.6', base: one.path });
    made.push(delta);
    await drives.plug(await drives.makeExt4(await gather(one, delta)));
    const media = await openMedia();
    expect((await search(media)).map(({ event }) => event)).to.deep.equal(['found', 'found']);
    await drives.plug(await drives.makeExt4(await gather(other)));
    expect((await search(media)).map(({ event }) => event)).to.deep.equal(['found', 'conflict']);
  });

  it('says why a file with the name of a bundle is not a bundle', async () => {
    const files = await gather(split);
    await rm(volumeName(join(files, basename(split.path)), 2));
    await writeFile(join(files, 'upgrade-notes.tar'), 'no tar');
    await runSuccessfully('tar', ['-cf', join(files, 'upgrade-theirs.tar'), '-C', folder, 'bin']);
    await copyFile(one.path, join(files, 'upgrade-cut.tar'));
    await truncate(join(files, 'upgrade-cut.tar'), 30_000);
    await writeFile(join(files, 'upgrade-begun.tar.partial'), '');
    const drive = await drives.plug(await drives.makeExt4(files));
    const media = await openMedia();
    const events = (await search(media)) as { event: string; path: string; reason: string }[];
    expect(brief(events as MediaEvent[])).to.have.members([
      `rejected ${drive.device} upgrade-4.12.4-x86_64.tar`,
      `rejected ${drive.device} upgrade-cut.tar`,
      `rejected ${drive.device} upgrade-notes.tar`,
      `rejected ${drive.device} upgrade-theirs.tar`,
    ]);
    const reasonOf = (name: string): string => events.find(({ path }) => path.endsWith(name))?.reason ?? '';
    expect(reasonOf('4.12.4-x86_64.tar')).to.match(/the volume .*\.002 is missing/);
    expect(reasonOf('theirs.tar')).to.match(/not an upgrade bundle/);
    // It has nothing useful, so it is unmounted.
    expect((await run('findmnt', ['--source', drive.device])).code).to.equal(1);
    expect(await search(media)).to.deep.equal([]);
  });

  it('recognizes another tar on a device', async () => {
    const image = await drives.makeImage(4);
    await runSuccessfully('sh', ['-c', `tar -c -C '${folder}' bin | dd of='${image}' conv=notrunc status=none`]);
    await drives.plug(image);
    const [event] = (await search(await openMedia())) as { event: string; reason: string }[];
    expect(event?.event).to.equal('rejected');
    expect(event?.reason).to.equal('it holds a tar, but no upgrade bundle: it does not begin with metadata.json');
  });

  it('follows no link, reads no pipe, and says which bundle is in a folder', async () => {
    const files = await gather();
    await mkdir(join(files, 'below'));
    await copyFile(one.path, join(files, 'below', basename(one.path)));
    await symlink(one.path, join(files, basename(one.path)));
    await symlink('/etc/hostname', join(files, 'upgrade-x.tar.000'));
    await mkdir(join(files, 'upgrade-folder.tar'));
    await runSuccessfully('mkfifo', [join(files, 'upgrade-pipe.tar')]);
    await drives.plug(await drives.makeExt4(files));
    const [event, ...others] = (await search(await openMedia())) as { event: string; path: string; reason: string }[];
    expect([event?.event, others]).to.deep.equal(['rejected', []]);
    expect(event?.path.endsWith(join('below', basename(one.path)))).to.equal(true);
    expect(event?.reason).to.contain('it is in a folder');
  });

  it('finds a bundle with capitals in its name, and a device that is named by a link', async () => {
    const files = await gather();
    await copyFile(one.path, join(files, 'Upgrade-4.12.4-X86_64.TAR'));
    const drive = await drives.plug(await drives.makeExt4(files), false);
    const link = join(folder, 'by-id');
    await symlink(drive.device, link);
    const media = await openMedia(makeContext(), [link]);
    expect(brief(await search(media))).to.deep.equal([`found ${drive.device} 4.12.4`]);
  });

  it('leaves disks alone that are neither removable nor labelled, unless they are named', async () => {
    const drive = await drives.plug(await drives.makeExt4(await gather(one)), false);
    expect(await search(await openMedia())).to.deep.equal([]);
    await site().opened.pop()?.close();
    const media = await openMedia(makeContext(), [drive.device]);
    expect(brief(await search(media))).to.deep.equal([`found ${drive.device} 4.12.4`]);
  });

  it('reads a USB drive at another program’s mount point, while it is being filled', async () => {
    const drive = await drives.plug(await drives.makeExt4(await gather()));
    const mine = join(folder, 'mine');
    await mkdir(mine);
    await runSuccessfully('mount', [drive.device, mine]);
    const media = await openMedia();
    expect(await search(media)).to.deep.equal([]);
    const bytes = await readFile(one.path);
    const path = join(mine, basename(one.path));
    await writeFile(path, bytes.subarray(0, 30_000));
    expect(brief(await search(media))).to.deep.equal([`rejected ${drive.device} ${basename(path)}`]);
    await writeFile(path, bytes);
    const events = await search(media);
    expect(brief(events)).to.deep.equal([`found ${drive.device} 4.12.4`]);
    expect(events[0]).to.include({ path });
    await media.close();
    await runSuccessfully('umount', [mine]);
  });

  it('does not wait for a device that hangs, and finds it when it answers', async () => {
    const answer = join(folder, 'answer');
    const [hung, good] = [
      await drives.plug(await drives.makeExt4(await gather(one))),
      await drives.plug(await drives.makeExt4(await gather(other))),
    ];
    const hang =
      `#!/bin/sh\ncase "$*" in *${hung.device}*) until [ -e '${answer}' ]; do sleep 0.02; done;; esac\nexec ` +
      `/usr/sbin/blkid "$@"\n`;
    await writeFile(join(folder, 'bin', 'blkid'), hang, { mode: 0o755 });
    const context = makeContext();
    const media = await openMedia(context, [], 2000);
    const events: string[] = [];
    const lookUntil = async (event: string): Promise<void> => {
      while (!events.includes(event)) events.push(...brief(await search(media)));
    };
    await lookUntil(`found ${good.device} 4.12.5`);
    expect(events).to.include(`rejected ${hung.device} ${basename(hung.device)}`);
    const reasons = media.rejected.map(({ reason }) => reason);
    expect(reasons).to.include(`${hung.device} does not answer: it is skipped until it does`);
    await writeFile(answer, '\n');
    await lookUntil(`found ${hung.device} 4.12.4`);
    expect(media.bundles).to.have.length(2);
    while (media.rejected.length > 0) await search(media);
  });

  it('hears of devices from the kernel, long before the next look is due', async function () {
    if (!hasPeer('udevadm')) skipLoudly(this, 'there is no udevadm');
    const context = makeContext();
    const media = await openMedia(context);
    const events: MediaEvent[] = [];
    const seen = new Promise<void>((resolve) => {
      void media
        .watch(3_600_000, (event) => {
          events.push(event);
          context.interrupt();
        })
        .then(resolve);
    });
    const drive = await drives.plug(await drives.makeExt4(await gather(one)));
    const tell = `echo change > /sys/block/${basename(drive.device)}/uevent`;
    // The kernel sends events only to listeners that already exist.
    while (events.length === 0) await runSuccessfully('sh', ['-c', `${tell}; sleep 0.1`]);
    await seen;
    expect(brief(events)).to.deep.equal([`found ${drive.device} 4.12.4`]);
  });

  it('checks at intervals if udevadm does not work', async () => {
    const context = makeContext();
    await writeFile(join(folder, 'bin', 'udevadm'), '#!/bin/sh\nexit 1\n', { mode: 0o755 });
    const media = await openMedia(context);
    const events: MediaEvent[] = [];
    const watching = media.watch(50, (event) => {
      events.push(event);
      context.interrupt();
    });
    const drive = await drives.plug(await drives.makeExt4(await gather(one)));
    await watching;
    expect(brief(events)).to.deep.equal([`found ${drive.device} 4.12.4`]);
  });
});
