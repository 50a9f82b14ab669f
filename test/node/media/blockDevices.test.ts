import { expect } from 'chai';
import { layOutTar } from '../../../lib/content/archive/tarLayout.ts';
import {
  classifyDevice,
  firstEntryOf,
  isOpen,
  parseBlockDevices,
  parseProbe,
  type BlockDevice,
} from '../../../lib/node/media/blockDevices.ts';

const laptop = JSON.stringify({
  blockdevices: [
    {
      name: '/dev/nvme0n1',
      kname: '/dev/nvme0n1',
      type: 'disk',
      rm: false,
      hotplug: false,
      size: 512110190592,
      tran: 'nvme',
      mountpoint: null,
      children: [
        { name: '/dev/nvme0n1p1', kname: '/dev/nvme0n1p1', type: 'part', rm: false, size: 1e9, mountpoint: '/boot' },
        {
          name: '/dev/nvme0n1p2',
          kname: '/dev/nvme0n1p2',
          type: 'part',
          rm: false,
          size: 4e11,
          mountpoint: null,
          children: [
            { name: '/dev/mapper/vg-root', kname: '/dev/dm-0', type: 'lvm', rm: false, size: 3e11, mountpoint: '/' },
          ],
        },
        { name: '/dev/nvme0n1p3', kname: '/dev/nvme0n1p3', type: 'part', rm: false, size: 8e9, mountpoint: '[SWAP]' },
      ],
    },
    {
      name: '/dev/sdb',
      kname: '/dev/sdb',
      type: 'disk',
      rm: true,
      hotplug: true,
      size: 62008590336,
      tran: 'usb',
      mountpoint: null,
      children: [{ name: '/dev/sdb1', kname: '/dev/sdb1', type: 'part', rm: false, size: 6e10, mountpoint: null }],
    },
    { name: '/dev/sdc', kname: '/dev/sdc', type: 'disk', rm: false, hotplug: false, size: 1e12, tran: 'usb' },
    { name: '/dev/sr0', kname: '/dev/sr0', type: 'rom', rm: true, hotplug: true, size: 1e9, tran: 'sata' },
    { name: '/dev/zram0', kname: '/dev/zram0', type: 'disk', rm: false, hotplug: false, size: 0, mountpoint: null },
  ],
});

describe('parseBlockDevices', () => {
  for (const text of ['null', '7', '{}', '{"blockdevices":null}', '{"blockdevices":[null,7]}']) {
    it(`finds no devices in ${text}`, () => {
      expect(parseBlockDevices(text)).to.deep.equal([]);
    });
  }

  it('lists disks, partitions and USB drives, and finds removable ones', () => {
    const devices = parseBlockDevices(laptop);
    expect(devices.filter(({ removable }) => removable).map(({ path }) => path)).to.deep.equal([
      '/dev/sdb',
      '/dev/sdb1',
      '/dev/sdc',
      '/dev/sr0',
    ]);
    const open = devices.filter((device) => isOpen(device, false));
    expect(open.map(({ kernelName }) => kernelName)).to.deep.equal(['sdb1', 'sdc', 'sr0']);
  });

  it('leaves disks alone that are in use or read over a network, unless they are named', () => {
    const disk = { type: 'disk', size: 5 };
    const child = { name: '/dev/x1', kname: '/dev/x1', type: 'part', size: 5 };
    const cases: readonly (readonly [name: string, listed: object, unnamed: boolean, named: boolean])[] = [
      ['sda', { tran: 'sata' }, true, true],
      ['sda', { tran: 'sata', mountpoint: '/var' }, false, true],
      ['sda', { tran: 'usb', mountpoint: '/run/media/usb' }, true, true],
      ['sda', { mountpoint: '[SWAP]' }, false, false],
      ['sda', { children: [{ ...child, type: 'raid1' }] }, false, false],
      ['sda', { children: [{ ...child, type: 'lvm' }] }, false, false],
      ['sda', { tran: 'iscsi' }, false, true],
      ['sda', { tran: 'fc' }, false, true],
      ['nvme1n1', { tran: 'tcp' }, false, true],
      ['rbd0', {}, false, true],
      ['nbd3', {}, false, true],
    ];
    for (const [name, listed, ...expected] of cases) {
      const json = { blockdevices: [{ ...disk, name: `/dev/${name}`, kname: `/dev/${name}`, ...listed }] };
      const [device] = parseBlockDevices(JSON.stringify(json));
      const found = [false, true].map((named) => device && isOpen(device, named));
      expect(found, JSON.stringify([name, listed])).to.deep.equal(expected);
    }
    const network = { ...disk, name: '/dev/sda', kname: '/dev/sda', tran: 'iscsi', children: [child] };
    const [, part] = parseBlockDevices(JSON.stringify({ blockdevices: [network] }));
    expect(part && isOpen(part, false)).to.equal(false);
  });

  it('reads opened devices of USB drives: LUKS, LVM, multipath, and types that lsblk does not know', () => {
    const openBelow = (disk: object, type: string): boolean[] => {
      const child = { name: '/dev/mapper/x', kname: '/dev/dm-0', type, size: 5, rm: false };
      const listed = { name: '/dev/sdb', kname: '/dev/sdb', type: 'disk', size: 5, ...disk, children: [child] };
      const [, device] = parseBlockDevices(JSON.stringify({ blockdevices: [listed] }));
      expect(device?.above).to.deep.equal(['sdb']);
      return [false, true].map((named) => device !== undefined && isOpen(device, named));
    };
    for (const type of ['crypt', 'lvm', 'mpath', 'dm', '']) {
      expect(openBelow({ tran: 'usb' }, type), type).to.deep.equal([true, true]);
      expect(openBelow({ tran: 'sata' }, type), type).to.deep.equal([false, true]);
    }
  });

  it('reads the output of older versions: strings for numbers and booleans', () => {
    const json =
      '{"blockdevices": [{"name":"/dev/sdb", "kname":"/dev/sdb", "type":"disk", "rm":"1", "hotplug":"0", ' +
      '"size":"1000", "tran":null, "mountpoint":""}]}';
    expect(parseBlockDevices(json)).to.deep.equal([
      {
        path: '/dev/sdb',
        kernelName: 'sdb',
        type: 'disk',
        above: [],
        removable: true,
        size: 1000,
        mountpoint: undefined,
        inUse: false,
        divided: false,
        remote: false,
      },
    ]);
    expect(parseBlockDevices('{"blockdevices": []}')).to.deep.equal([]);
    expect(parseBlockDevices('{}')).to.deep.equal([]);
  });

  it('lists a device on several disks once', () => {
    const child = { name: '/dev/md0', kname: '/dev/md0', type: 'raid1', size: 5 };
    const disks = ['/dev/sda', '/dev/sdb'].map((name) => ({ name, kname: name, type: 'disk', children: [child] }));
    const devices = parseBlockDevices(JSON.stringify({ blockdevices: disks }));
    expect(devices).to.have.length(3);
    expect(devices.find(({ type }) => type === 'raid1')?.above).to.deep.equal(['sda', 'sdb']);
  });
});

describe('parseProbe', () => {
  it('finds the file system and its label, with escaped characters', () => {
    expect(parseProbe('DEVNAME=/dev/sdb1\nLABEL=MY\\ DRIVE\nUUID=12\nTYPE=vfat\nUSAGE=filesystem\n')).to.deep.equal({
      filesystem: 'vfat',
      label: 'MY DRIVE',
    });
    expect(parseProbe('DEVNAME=/dev/sdb\nPTTYPE=gpt\n')).to.deep.equal({});
    expect(parseProbe('')).to.deep.equal({});
  });
});

describe('classifyDevice', () => {
  const drive: BlockDevice = {
    above: [],
    path: '/dev/sdb1',
    kernelName: 'sdb1',
    type: 'part',
    removable: true,
    size: 1e9,
    mountpoint: undefined,
    inUse: false,
    divided: false,
    remote: false,
  };
  const disk = { ...drive, removable: false };
  const empty = Buffer.alloc(512);
  const tar = (path: string): Buffer => layOutTar([{ path, content: empty }]).entries[0]?.header ?? empty;

  it('recognizes a tar by its first block, on every disk and before the remains of a file system', () => {
    for (const device of [drive, disk]) {
      expect(classifyDevice(device, tar('metadata.json'), { filesystem: 'btrfs' }, false)).to.deep.equal({
        kind: 'tar',
        firstEntry: 'metadata.json',
      });
    }
    expect(firstEntryOf(tar('../../\u001b[2Jetc'))).to.equal('../../\u{fffd}[2Jetc');
    expect(firstEntryOf(Buffer.alloc(0))).to.equal(undefined);
  });

  it('looks into file systems that are removable, named, or have a label of ours', () => {
    const looks = (device: BlockDevice, label: string, named = false): boolean =>
      classifyDevice(device, empty, { filesystem: 'ext4', label }, named).kind === 'filesystem';
    expect(looks(drive, 'ANY')).to.equal(true);
    expect(looks(disk, 'root')).to.equal(false);
    expect(looks(disk, 'root', true)).to.equal(true);
    for (const label of ['OCPUPG', 'OCPUPG-1', 'upgrade_4.12.4']) expect(looks(disk, label), label).to.equal(true);
    for (const label of ['ocpupg', 'my_upgrade_1', 'upgrade-4']) expect(looks(disk, label), label).to.equal(false);
  });

  it('leaves it to the kernel which of several file systems a device has', () => {
    const found = classifyDevice(drive, Buffer.alloc(512), { isAmbivalent: true }, false);
    expect(found).to.deep.include({ kind: 'filesystem', filesystem: 'any' });
  });

  it('says which file systems it does not look into', () => {
    for (const filesystem of ['crypto_LUKS', 'LVM2_member', 'ntfs', 'toString']) {
      const { kind, reason } = classifyDevice(drive, empty, { filesystem }, false) as { kind: string; reason?: string };
      expect(kind).to.equal('nothing');
      expect(reason).to.include(filesystem);
    }
    expect(classifyDevice(disk, empty, { filesystem: 'swap' }, false)).to.deep.equal({ kind: 'nothing' });
    expect(classifyDevice(drive, empty, {}, false)).to.deep.equal({ kind: 'nothing' });
  });
});
