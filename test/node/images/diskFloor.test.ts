import { rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import type { Context } from '../../../lib/context.ts';
import { measureDisk, stayAboveFloor } from '../../../lib/node/images/diskFloor.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('the disk floor', () => {
  let folder: string;
  before(async () => (folder = await makeFolder()));
  after(() => removeFolder(folder));

  it('is 16 GiB or 15 % by default', async () => {
    const usual = await measureDisk(join(folder, 'new'));
    expect(usual.floor).to.be.at.least(16 * 2 ** 30);
    expect(usual.free).to.be.greaterThan(0);
    expect((await measureDisk(folder, 5)).floor).to.equal(5);
  });

  it('keeps work from beginning, with advice', async () => {
    let began = false;
    const work = (): Promise<void> => {
      began = true;
      return Promise.resolve();
    };
    const error = await failureOf(stayAboveFloor(folder, 2 ** 60, makeContext(), work), 'disk-full');
    expect(error.message).to.match(/^only [\d.]+ [MGT]iB are free at .*, and 1024 PiB must stay free$/);
    expect(error.hint).to.contain('Free some space');
    expect(began).to.equal(false);
    const timers = (): number => process.getActiveResourcesInfo().filter((each) => each === 'Timeout').length;
    const before = timers();
    await stayAboveFloor(folder, 0, makeContext(), work);
    expect(began).to.equal(true);
    expect(timers()).to.be.at.most(before);
  });

  it('ends work when less is free', async () => {
    // The place of the work moves to a file system without free space, because other programs change a shared one.
    const place = join(folder, 'place');
    await symlink(folder, place);
    const work = async ({ signal }: Context): Promise<void> => {
      await rm(place);
      await symlink('/proc', place);
      await sleep(60_000, undefined, { signal });
    };
    await failureOf(stayAboveFloor(place, 1, makeContext(), work), 'disk-full');
  });

  it('passes an interruption on unchanged', async () => {
    const context = makeContext();
    const work = stayAboveFloor(folder, 0, context, ({ signal }) => sleep(60_000, undefined, { signal }));
    context.interrupt();
    const error: unknown = await work.catch((reason: unknown) => reason);
    expect(error).to.have.property('name', 'AbortError');
  });
});
