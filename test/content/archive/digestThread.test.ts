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
