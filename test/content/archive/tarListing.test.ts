import { open } from 'node:fs/promises';
import { expect } from 'chai';
import { encodeHeader } from '../../../lib/content/archive/tarLayout.ts';
import { listEntries, type TarListing } from '../../../lib/content/archive/tarListing.ts';
import { Volumes } from '../../../lib/content/archive/volumes.ts';
import { makeTarFile, writeTar } from '../../support/archive/archive.ts';
import { makeFile, makeHeader, makeLong, makePax, paxRecord } from '../../support/archive/tarBytes.ts';
import { makeContext } from '../../support/context.ts';
import { removeFolder } from '../../support/release/mirrorDirectory.ts';

const gnu = { magic: 'ustar  \0' };
const folder = { name: 'config/', type: '5', mode: '0000755\0' };

/** Lists a tar that repeats the same bytes. */
async function listRepeated(bytes: Buffer, times: number): Promise<TarListing> {
  const { folder: place, path } = await writeTar(bytes);
  const file = await Volumes.open(Array<{ path: string; size: number }>(times).fill({ path, size: bytes.length }), () =>
    open(path, 'r'),
  );
  try {
    return await listEntries(file, path, makeContext().signal);
  } finally {
    await file.close();
    await removeFolder(place);
  }
}

describe('listEntries', () => {
  it('ends at a bound of headers, of which folders, pax headers and long names count', async () => {
    const five = [
      makeHeader(folder),
      makePax(paxRecord('mtime', '1')),
      makeHeader(folder),
      makeLong('L', 'config/'),
      makeHeader({ ...folder, ...gnu }),
    ];
    const block = Buffer.concat(Array<Buffer[]>(4001).fill(five).flat());
    const { damage, entries } = await listRepeated(block, 10);
    expect(entries.size).to.equal(0);
    expect(damage?.message).to.include('more than 200000 headers');
  });

  it('tells a tar of this program from one that has another header anywhere', async () => {
    const own = makeTarFile([{ path: 'a', content: Buffer.from('x') }]);
    expect((await listRepeated(own, 1)).isRepacked).to.equal(false);
    for (const other of [makeFile('b', 'x', { uid: '0001750\0' }), makeHeader(folder), makeFile('./b', 'x')]) {
      const listing = await listRepeated(Buffer.concat([own.subarray(0, -1024), other, Buffer.alloc(1024)]), 1);
      expect(listing.damage).to.equal(undefined);
      expect(listing.isRepacked).to.equal(true);
    }
  });

  it('names a refused link without its target, which may be any text', async () => {
    const name = 'v2/openshift/release/manifests/4.12.4-x86_64-etcd';
    const { damage } = await listRepeated(makeHeader({ name, type: '2', target: '../../../../etc/passwd' }), 1);
    expect(damage?.message)
      .to.include(`"${name}" is a symbolic link; only tags are links, to manifests beside them`)
      .and.not.to.include('/etc/passwd');
  });

  const large = 9 * 2 ** 30;
  const inBase256 = Buffer.from([0x80, 0, 0, 0, 0, 0, 0, 2, 0x40, 0, 0, 0]);
  const octal = '110000000000';
  for (const [how, header] of Object.entries({
    'GNU tar': makeHeader({ name: 'a', ...gnu, size: inBase256 }),
    'GNU tar in the POSIX format': Buffer.concat([
      makePax(paxRecord('size', String(large))),
      makeHeader({ name: 'a' }),
    ]),
    'bsdtar in the POSIX format': Buffer.concat([
      makePax(paxRecord('size', String(large))),
      makeHeader({ name: 'a', size: octal }),
    ]),
    'this program': encodeHeader({ path: 'a', content: Buffer.alloc(0) }, large),
  })) {
    it(`reads a size of more than 8 GiB that ${how} wrote`, async () => {
      // Cut before its content.
      expect((await listRepeated(header, 1)).damage?.message).to.include(`would end at byte ${header.length + large}`);
    });
  }
});
