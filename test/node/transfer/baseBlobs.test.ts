import { appendFile, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import type { BlobRecord } from '../../../lib/bundle/metadata/metadata.ts';
import type { Bundle } from '../../../lib/bundle/open/bundle.ts';
import { openComplete } from '../../../lib/bundle/open/deltaBase.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { checkBaseBlobs, openBaseBlobs, serveBaseBlobs, type BaseBlobs } from '../../../lib/node/transfer/baseBlobs.ts';
import { flipByte, makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('the base blobs of a delta bundle', () => {
  let base: TestBundle;
  let delta: TestBundle;
  let complete: Bundle;
  let blobs: readonly BlobRecord[];
  let folder: string;
  let path: string;

  before(async () => {
    const releases = { components: ['cli', 'etcd'], common: ['cli', 'etcd'], layerSize: 20_000 };
    base = await makeBundle({ ...releases, version: '4.12.3' });
    delta = await makeBundle({ ...releases, version: '4.12.4', base: base.path });
    blobs = delta.result.metadata.base?.blobs ?? [];
    complete = await openComplete(delta.path, { bases: [base.path] }, makeContext());
  });
  after(async () => {
    await complete[Symbol.asyncDispose]();
    await delta.remove();
    await base.remove();
  });
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'base-'));
    path = join(folder, 'base');
  });
  afterEach(() => rm(folder, { recursive: true }));

  const readServed = async (start: number, size: number): Promise<Buffer> => {
    const served = await serveBaseBlobs(complete);
    return served ? buffer(served.chunks(start, size)) : expect.fail('nothing is served');
  };
  const sizeOfAll = (): number => blobs.reduce((sum, { size }) => sum + size, 0);
  const openServed = async (): Promise<BaseBlobs> => {
    await writeFile(path, await readServed(0, sizeOfAll()));
    return (await openBaseBlobs(path, blobs, makeContext())) ?? expect.fail('there is no file');
  };

  it('are served one after another, in the order of its metadata', async () => {
    expect(blobs.length).to.be.greaterThan(2);
    expect((await serveBaseBlobs(complete))?.size).to.equal(sizeOfAll());
    const all = await readServed(0, sizeOfAll());
    let position = 0;
    for (const { digest, size } of blobs) {
      expect(digestOf(all.subarray(position, position + size))).to.equal(digest);
      position += size;
    }
    expect(position).to.equal(all.length);
    // Parts begin and end within blobs.
    const first = blobs[0]?.size ?? 0;
    for (const [start, size] of [
      [1, first],
      [first - 1, 2],
      [first, all.length - first - 1],
    ] as const) {
      expect((await readServed(start, size)).equals(all.subarray(start, start + size)), `${start}`).to.equal(true);
    }
  });

  it('are not served of a bundle that is no delta, or is open without its base', async () => {
    await using whole = await openBundle(base.path, makeContext());
    expect(await serveBaseBlobs(whole)).to.equal(undefined);
    await using alone = await openBundle(delta.path, makeContext());
    expect(await serveBaseBlobs(alone)).to.equal(undefined);
  });

  it('can be read from a file of them, each by its digest', async () => {
    const file = await openServed();
    try {
      for (const { digest, size } of blobs) {
        const blob = { digest, size, mediaType: '' };
        expect(await file.exists(blob)).to.equal(true);
        const content = await buffer(await file.fetch(blob));
        expect(digestOf(content)).to.equal(digest);
        for (const part of [file.chunks(blob, 1, size), await file.fetch(blob, 1)])
          expect((await buffer(part)).equals(content.subarray(1))).to.equal(true);
      }
      const other = { digest: digestOf('other'), size: 1, mediaType: '' };
      expect(await file.exists(other)).to.equal(false);
      await failureOf(file.fetch(other), 'not-found');
      await failureOf(buffer(file.chunks(other, 0, 1)), 'not-found');
      await failureOf(file.resolve(digestOf('other')), 'not-found');
      expect(await file.tags()).to.deep.equal([]);
    } finally {
      await file.close();
    }
  });

  it('are refused if their file changed', async () => {
    const file = await openServed();
    await writeFile(path, Buffer.alloc(sizeOfAll(), 1));
    const [blob] = blobs;
    const content = await file.fetch({ digest: blob?.digest ?? digestOf(''), size: blob?.size ?? 0, mediaType: '' });
    await failureOf(buffer(content), 'digest-mismatch');
    await file.close();
  });

  it('are not in a file of another size, in no file, and behind no link', async () => {
    expect(await openBaseBlobs(path, blobs, makeContext())).to.equal(undefined);
    await (await openServed()).close();
    await symlink('base', join(folder, 'link'));
    await failureOf(openBaseBlobs(join(folder, 'link'), blobs, makeContext()), 'not-writable');
    await appendFile(path, 'x');
    expect(await openBaseBlobs(path, blobs, makeContext())).to.equal(undefined);
  });

  it('are read completely by a check, with the bundles that have them', async () => {
    await checkBaseBlobs(complete, makeContext());
    const context = makeContext();
    context.interrupt();
    await failureOf(checkBaseBlobs(complete, context), 'interrupted');
    // Those of other machines come later.
    await using alone = await openBundle(delta.path, makeContext());
    await checkBaseBlobs(alone, makeContext());
    const corrupt = blobs.at(-1)?.digest ?? digestOf('');
    await flipByte(base.path, corrupt);
    try {
      expect((await failureOf(checkBaseBlobs(complete, makeContext()), 'digest-mismatch')).message).to.contain(corrupt);
    } finally {
      await flipByte(base.path, corrupt);
    }
  });
});
