import { expect } from 'chai';
import {
  planReport,
  readReports,
  scanReports,
  type ReadRegion,
  type RegionWrite,
} from '../../../lib/node/media/reportRegion.ts';

describe('a region for reports', () => {
  const size = 8 * 1024 * 1024;
  const readerOf =
    (region: Buffer): ReadRegion =>
    (offset, length) =>
      Promise.resolve(region.subarray(offset, Math.min(offset + length, region.length)));
  const nameOf = (cluster: string, time: string): string => `update-report-${cluster}-${time}.json`;
  const apply = (region: Buffer, writes: readonly RegionWrite[] = []): void => {
    for (const { offset, bytes } of writes) bytes.copy(region, offset);
  };
  const write = async (region: Buffer, name: string, text: string): Promise<void> => {
    apply(region, await planReport(region.length, { name, content: Buffer.from(text) }, readerOf(region)));
  };
  const namesIn = async (region: Buffer): Promise<string[]> =>
    (await readReports(region.length, readerOf(region))).map(({ name }) => name);

  it('returns the written reports, the newest first', async () => {
    const region = Buffer.alloc(size);
    await write(region, nameOf('a', '1'), 'first');
    await write(region, nameOf('a', '2'), 'second');
    const reports = await readReports(size, readerOf(region));
    expect(reports.map(({ sequence, content }) => [sequence, content.toString()])).to.deep.equal([
      [2, 'second'],
      [1, 'first'],
    ]);
  });

  it('gets no second copy of a report', async () => {
    const region = Buffer.alloc(size);
    await write(region, nameOf('a', '1'), 'first');
    const same = { name: nameOf('a', '1'), content: Buffer.from('first') };
    expect(await planReport(size, same, readerOf(region))).to.equal(undefined);
  });

  it('replaces old reports of a cluster before the only ones of others, and never the newest of its own', async () => {
    const region = Buffer.alloc(4 * 4 * 1024 * 1024);
    for (const [cluster, time] of ['a1', 'b1', 'a2', 'c1', 'c2', 'd1'].map((each) => each.split('')))
      await write(region, nameOf(cluster ?? '', time ?? ''), `${cluster}${time}`);
    expect(await namesIn(region)).to.deep.equal([
      nameOf('d', '1'),
      nameOf('c', '2'),
      nameOf('a', '2'),
      nameOf('b', '1'),
    ]);
    const full = Buffer.alloc(size);
    for (const time of ['1', '2', '3']) await write(full, nameOf('a', time), time);
    expect(await namesIn(full)).to.deep.equal([nameOf('a', '3'), nameOf('a', '2')]);
  });

  it('has the former or the new report whole when the power fails at any byte', async () => {
    const region = Buffer.alloc(size, 0xa5);
    await write(region, nameOf('a', '1'), 'x'.repeat(20_000));
    await write(region, nameOf('a', '2'), 'y'.repeat(20_000));
    const content = Buffer.from('z'.repeat(20_000));
    const writes = (await planReport(size, { name: nameOf('a', '3'), content }, readerOf(region))) ?? [];
    const total = writes.reduce((sum, { bytes }) => sum + bytes.length, 0);
    const seen = { former: 0, latest: 0 };
    // Each boundary of a sector, and bytes between them.
    const cuts = new Set(Array.from({ length: Math.ceil(total / 19) }, (_, index) => index * 19));
    for (let sector = 0; sector <= total; sector += 512) cuts.add(sector);
    cuts.add(total);
    expect(cuts.size).to.be.above(1000);
    for (const cut of cuts) {
      const image = Buffer.from(region);
      let left = cut;
      for (const { offset, bytes } of writes) {
        bytes.subarray(0, Math.max(0, left)).copy(image, offset);
        left -= bytes.length;
      }
      const [newest] = await readReports(size, readerOf(image));
      expect(newest?.name, `cut after ${cut} bytes`).to.be.oneOf([nameOf('a', '2'), nameOf('a', '3')]);
      expect(newest?.content.length).to.equal(20_000);
      seen[newest?.name === nameOf('a', '3') ? 'latest' : 'former'] += 1;
    }
    expect(seen.former).to.be.above(1000);
    expect(seen.latest).to.be.above(0);
  });

  it('leaves out slots that a hostile drive has made up', async () => {
    const region = Buffer.alloc(size);
    await write(region, nameOf('a', '1'), 'first');
    region.write('"size":999999999', region.indexOf('"size":5'));
    expect(await namesIn(region)).to.deep.equal([]);
    const noise = Buffer.alloc(size, 'oc-disconnected-report 1\n');
    expect(await namesIn(noise)).to.deep.equal([]);
  });

  it('is found on a partition whose file system is lost', async () => {
    const region = Buffer.alloc(size);
    await write(region, nameOf('a', '1'), 'first');
    await write(region, nameOf('a', '2'), 'second');
    const partition = Buffer.concat([Buffer.alloc(5 * 512 + 3 * 1024 * 1024, 0x5a), region, Buffer.alloc(1000)]);
    // In a text that only mentions it, nothing is found.
    partition.write('oc-disconnected-report 1\n', 77);
    const found: string[] = [];
    for await (const { name } of scanReports(readerOf(partition))) found.push(name);
    expect(found).to.deep.equal([nameOf('a', '1'), nameOf('a', '2')]);
  });

  it('refuses a report that is larger than a slot', async () => {
    const content = Buffer.alloc(4 * 1024 * 1024);
    const failed = await planReport(size, { name: 'x', content }, readerOf(Buffer.alloc(size))).catch(String);
    expect(failed).to.include('at most 4190208 bytes');
  });
});
