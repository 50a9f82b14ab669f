import { getEventListeners } from 'node:events';
import { expect } from 'chai';
import { RequestLimiter, type RequestKind } from '../../../lib/content/http/requestLimiter.ts';

const { signal } = new AbortController();

/** Takes as many slots of the kinds as are free, in order. */
async function takeAll(
  slots: RequestLimiter,
  kinds: RequestKind[],
): Promise<{ kind: RequestKind; release: () => void }[]> {
  const taken: { kind: RequestKind; release: () => void }[] = [];
  for (const kind of kinds) void slots.take(kind, signal).then((release) => taken.push({ kind, release }));
  await new Promise(setImmediate);
  return taken;
}

describe('RequestLimiter', () => {
  it('gives as many as there are, and the next when one comes back', async () => {
    const slots = new RequestLimiter(2);
    const taken = await takeAll(slots, ['plain', 'plain', 'plain', 'plain']);
    expect(taken).to.have.length(2);
    taken[0]?.release();
    taken[0]?.release();
    await new Promise(setImmediate);
    expect(taken).to.have.length(3);
  });

  it('keeps one slot for reads of uploads', async () => {
    const taken = await takeAll(new RequestLimiter(3), ['upload', 'upload', 'upload', 'plain', 'plain']);
    expect(taken.map(({ kind }) => kind)).to.deep.equal(['upload', 'upload', 'plain']);
  });

  it('lets an upload read from its own server even with a bound of one', async () => {
    const taken = await takeAll(new RequestLimiter(1), ['upload', 'plain', 'upload', 'plain']);
    expect(taken.map(({ kind }) => kind)).to.deep.equal(['upload', 'plain']);
  });

  it('ends a wait with the signal, and forgets it', async () => {
    const slots = new RequestLimiter(1);
    const release = await slots.take('plain', signal);
    const controller = new AbortController();
    const waiting = slots.take('plain', controller.signal).catch((error: unknown) => error);
    controller.abort(new Error('enough'));
    expect(await waiting).to.have.property('message', 'enough');
    release();
    (await slots.take('plain', signal))();
  });

  it('keeps one listener for all that wait with a signal, and none afterwards', async () => {
    const slots = new RequestLimiter(1);
    const controller = new AbortController();
    const count = (): number => getEventListeners(controller.signal, 'abort').length;
    const first = await slots.take('plain', controller.signal);
    const others = Array.from({ length: 50 }, () => slots.take('plain', controller.signal));
    expect(count()).to.equal(1);
    first();
    for (const other of others) (await other)();
    expect(count()).to.equal(0);
    const held = await slots.take('plain', signal);
    const refused = Array.from({ length: 50 }, () => slots.take('upload', controller.signal).catch(String));
    controller.abort(new Error('enough'));
    expect(new Set(await Promise.all(refused.slice(1)))).to.deep.equal(new Set(['Error: enough']));
    held();
  });
});
