import { expect } from 'chai';
import { digestOf } from '../../../lib/oci/digest.ts';
import { CopyQueue } from '../../../lib/node/images/copyQueue.ts';
import type { PlannedImage } from '../../../lib/node/images/loadPlan.ts';

describe('CopyQueue', () => {
  const image = (label: string, ...layers: string[]): PlannedImage => {
    const digest = digestOf(label);
    const blobs = new Map(layers.map((layer) => [digestOf(layer), 1]));
    return { label, digest, name: `quay.io/a/b@${digest}`, blobs };
  };
  const etcd = image('etcd', 'base', 'etcd');
  const console = image('console', 'base', 'console');
  const alone = image('alone', 'other');
  const labelOf = async (taken: Promise<PlannedImage | undefined>): Promise<string | undefined> => (await taken)?.label;
  const isPending = async (taken: Promise<unknown>): Promise<boolean> =>
    (await Promise.race([taken, Promise.resolve('pending')])) === 'pending';

  it('lets images wait for a layer that another one brings, and not the others', async () => {
    const queue = new CopyQueue([etcd, console, alone], new Set());
    expect(await labelOf(queue.take())).to.equal('etcd');
    expect(await labelOf(queue.take())).to.equal('alone');
    const next = queue.take();
    expect(await isPending(next)).to.equal(true);
    queue.note(etcd);
    queue.end(etcd);
    expect(await labelOf(next)).to.equal('console');
    expect(await queue.take()).to.equal(undefined);
  });

  it('has the next one bring it where the first has failed', async () => {
    const queue = new CopyQueue([etcd, console, image('third', 'base')], new Set());
    await queue.take();
    const [second, third] = [queue.take(), queue.take()];
    queue.end(etcd);
    expect(await labelOf(second)).to.equal('console');
    expect(await isPending(third)).to.equal(true);
    queue.note(console);
    queue.end(console);
    expect(await labelOf(third)).to.equal('third');
  });

  it('begins all at once where the store has what they share', async () => {
    const queue = new CopyQueue([etcd, console], new Set([digestOf('base')]));
    expect([await labelOf(queue.take()), await labelOf(queue.take())]).to.deep.equal(['etcd', 'console']);
  });
});
