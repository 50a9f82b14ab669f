import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { digestOfFile } from '../../support/content/creation.ts';
import { useMediaSite } from '../../support/content/mediaSite.ts';
import { kernelHas, requireLoopDevices, skipLoudly, type Drives } from '../../support/loopDevice.ts';
import { run, runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('PrivateMounts', () => {
  let one: TestBundle;
  let folder: string;
  let drives: Drives;
  let place: string;

  before(async function () {
    await requireLoopDevices(this);
    one = await makeBundle();
  });
  after(() => one.remove());
  const { made: site, openMedia, gather, search, brief, expectGood } = useMediaSite();
  beforeEach(() => {
    ({ folder, drives, place } = site());
  });

  it('does not let a file system ask the kernel to stop the machine at a fault', async () => {
    const image = await drives.makeExt4(await gather(one), 'OCPUPG');
    await runSuccessfully('tune2fs', ['-e', 'panic', image]);
    const drive = await drives.plug(image);
    const media = await openMedia();
    expect(brief(await search(media))).to.deep.equal([`found ${drive.device} 4.12.4`]);
    const mounts = (await readFile('/proc/mounts', 'utf8')).split('\n');
    const mounted = mounts.find((line) => line.startsWith(`${drive.device} `));
    expect(mounted)
      .to.match(/\bro\b/)
      .and.match(/\berrors=continue\b/);
  });

  it('mounts read-only in a private folder, and writes nothing to the USB drive', async () => {
    const image = await drives.makeExt4(await gather(one), 'OCPUPG1');
    // As after it was removed from another machine without unmounting: the journal is not empty.
    await runSuccessfully('debugfs', ['-w', '-R', 'feature needs_recovery', image]);
    const before = await digestOfFile(image);
    const drive = await drives.plug(image, false);
    const media = await openMedia();
    const [found] = (await search(media)) as { path: string; label: string }[];
    expect(found?.label).to.equal('OCPUPG1');
    const mount = await runSuccessfully('findmnt', [
      '--noheadings',
      '--output',
      'OPTIONS,PROPAGATION',
      '--source',
      drive.device,
    ]);
    for (const option of ['ro', 'nosuid', 'nodev', 'noexec']) expect(mount).to.match(new RegExp(`\\b${option}\\b`));
    expect(mount).to.match(/\bprivate\b/);
    const probe = join(folder, 'probe');
    await mkdir(probe);
    const knowsLinks = (await run('mount', ['-t', 'tmpfs', '-o', 'nosymfollow', 'tmpfs', probe])).code === 0;
    if (knowsLinks) await runSuccessfully('umount', [probe]);
    expect(/\bnosymfollow\b/.test(mount)).to.equal(knowsLinks);
    expect((await run('stat', ['-c', '%a', place])).stdout.trim()).to.equal('700');
    await expectGood(found?.path ?? '');
    await media.close();
    expect((await run('findmnt', ['--source', drive.device])).code).to.equal(1);
    expect((await run('findmnt', [place])).code).to.equal(1);
    expect(await digestOfFile(image)).to.equal(before);
  });

  it('gives advice for a file system that the kernel lacks', async function () {
    const image = await drives.makeImage(40);
    await runSuccessfully('mkfs.vfat', ['-F', '32', image]).catch(() => skipLoudly(this, 'there is no mkfs.vfat'));
    if (await kernelHas('vfat')) skipLoudly(this, 'this kernel has vfat');
    await drives.plug(image);
    const [event] = await search(await openMedia());
    expect(event).to.include({ event: 'rejected' });
    expect((event as { reason: string }).reason).to.match(/cannot be mounted: .*unknown filesystem type 'vfat'/);
    expect((event as { hint: string }).hint).to.match(/no vfat: use ext4/);
  });

  it('finds a bundle if the mount program does not know nosymfollow', async () => {
    const drive = await drives.plug(await drives.makeExt4(await gather(one)));
    const old =
      `#!/bin/sh\ncase "$*" in *nosymfollow*) exit 32;; esac\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\nexec mount ` +
      `"$@"\n`;
    await writeFile(join(folder, 'bin', 'mount'), old, { mode: 0o755 });
    expect(brief(await search(await openMedia()))).to.deep.equal([`found ${drive.device} 4.12.4`]);
  });

  it('lets one run look at a time, and tidies up after one that was killed', async () => {
    const drive = await drives.plug(await drives.makeExt4(await gather(one)));
    const first = await openMedia();
    await search(first);
    await failureOf(openMedia(), 'busy');
    expect((await run('findmnt', ['--source', drive.device])).code).to.equal(0);
    await first.close();
    // The leftovers of a killed run.
    await mkdir(join(place, 'loop'), { recursive: true });
    await runSuccessfully('mount', ['--bind', place, place]);
    await runSuccessfully('mount', ['-o', 'ro', drive.device, join(place, 'loop')]).catch(() => undefined);
    const media = await openMedia();
    expect(brief(await search(media))).to.deep.equal([`found ${drive.device} 4.12.4`]);
    await media.close();
    expect((await run('findmnt', ['--source', drive.device])).code).to.equal(1);
  });
});
