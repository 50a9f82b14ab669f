import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import { DigestThread } from '../../../lib/content/archive/digestThread.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

const open = (): DigestThread => new DigestThread([{ size: 6 }], makeContext());

describe('DigestThread', () => {
  it('returns the digest of all bytes', async () => {
    const thread = open();
    await thread.update(Buffer.from('abc'));
    await thread.update(Buffer.from('def'));
    expect((await thread.finish()).digest).to.equal(digestOf('abcdef'));
    await thread.close();
  });

  it('returns the digest of each volume too', async () => {
    const thread = new DigestThread([{ size: 4 }, { size: 2 }], makeContext());
    await thread.update(Buffer.from('abcdef'));
    const volumes = [digestOf('abcd'), digestOf('ef')];
    expect(await thread.finish()).to.deep.equal({ digest: digestOf('abcdef'), volumes });
    await thread.close();
    const { message } = await failureOf(thread.update(Buffer.from('x')), 'internal');
    expect(message).to.equal('the digest thread has ended');
  });

  it('may be closed before its replies are awaited', async () => {
    const rejected: unknown[] = [];
    const note = (reason: unknown): void => void rejected.push(reason);
    process.on('unhandledRejection', note);
    const thread = open();
    const pending = thread.update(Buffer.from('abc'));
    await thread.close();
    const later = thread.update(Buffer.from('def'));
    await setImmediate();
    process.off('unhandledRejection', note);
    expect(rejected).to.deep.equal([]);
    for (const reply of [pending, later]) await failureOf(reply, 'internal');
  });
});
