import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { PluginError } from '../../../lib/errors.ts';
import { copyAll, CopyQueue, type CopySteps } from '../../../lib/node/images/copyQueue.ts';
import type { PlannedImage } from '../../../lib/node/images/loadPlan.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

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
    (await Promise.race([taken, setImmediate('pending')])) === 'pending';

  it('lets images wait for a layer that another one brings, and not the others', async () => {
    const queue = new CopyQueue([etcd, console, alone], new Set());
    expect(await labelOf(queue.take())).to.equal('etcd');
    expect(await labelOf(queue.take())).to.equal('alone');
    const next = queue.take();
    expect(await isPending(next)).to.equal(true);
    queue.markStored(etcd);
    queue.release(etcd);
    expect(await labelOf(next)).to.equal('console');
    expect(await queue.take()).to.equal(undefined);
  });

  it('has the next image copy a blob if the first one failed', async () => {
    const queue = new CopyQueue([etcd, console, image('third', 'base')], new Set());
    await queue.take();
    const [second, third] = [queue.take(), queue.take()];
    queue.release(etcd);
    expect(await labelOf(second)).to.equal('console');
    expect(await isPending(third)).to.equal(true);
    queue.markStored(console);
    queue.release(console);
    expect(await labelOf(third)).to.equal('third');
  });

  it('begins all immediately if the store has their shared content', async () => {
    const queue = new CopyQueue([etcd, console], new Set([digestOf('base')]));
    expect([await labelOf(queue.take()), await labelOf(queue.take())]).to.deep.equal(['etcd', 'console']);
  });

  it('removes the images that wait once it is closed', async () => {
    const queue = new CopyQueue([etcd, console], new Set());
    await queue.take();
    const next = queue.take();
    queue.close();
    expect(await next).to.equal(undefined);
  });

  describe('copyAll', () => {
    const third = image('third', 'base', 'third');
    /** Copies images, and finds each of them right at once. */
    const stepsOf = (copy: CopySteps['copy'], more: Partial<CopySteps> = {}): CopySteps => ({
      copy,
      isCheckDue: () => true,
      check: () => Promise.resolve(new Map()),
      ...more,
    });

    it('stops with an error that would fail all images, although other images wait for the failed one', async () => {
      const copied: string[] = [];
      const copy = ({ label }: PlannedImage): Promise<void> => {
        copied.push(label);
        return Promise.reject(new PluginError('disk-full', 'the disk is full'));
      };
      const images = [etcd, console, third, image('fourth', 'base')];
      const error = await failureOf(
        copyAll(images, new Set(), { concurrency: 2 }, makeContext(), stepsOf(copy)),
        'disk-full',
      );
      expect([error.message, copied]).to.deep.equal(['the disk is full', ['etcd']]);
    });

    it('copies the other images, and names the failed ones', async () => {
      const copied: string[] = [];
      const copy = ({ label }: PlannedImage): Promise<void> => {
        copied.push(label);
        const fails = label !== 'third';
        return fails ? Promise.reject(new PluginError('incomplete', 'it is corrupt')) : Promise.resolve();
      };
      const error = await failureOf(
        copyAll([etcd, console, third], new Set(), { concurrency: 2 }, makeContext(), stepsOf(copy)),
        'partial',
      );
      expect(copied).to.deep.equal(['etcd', 'console', 'third']);
      expect(error.message).to.match(/^2 of 3 images .*\n {2}etcd \(quay.*corrupt\n {2}console/);
    });

    it('checks several images at a time, the rest after the last copy, and names the failed ones', async () => {
      const checks: string[][] = [];
      const check: CopySteps['check'] = (images) => {
        checks.push(images.map(({ label }) => label));
        const failed = images.filter(({ label }) => label === 'console');
        return Promise.resolve(new Map(failed.map((each) => [each, new PluginError('incomplete', 'it is broken')])));
      };
      const steps = stepsOf(() => Promise.resolve(), { isCheckDue: (copied) => copied >= 2, check });
      const error = await failureOf(
        copyAll([etcd, console, alone], new Set(), { concurrency: 1 }, makeContext(), steps),
        'incomplete',
      );
      expect(checks).to.deep.equal([['etcd', 'console'], ['alone']]);
      expect(error.message).to.match(/^console \(quay.*: it is broken$/);
    });

    it('fails all images of a check that fails', async () => {
      const check = (): Promise<never> => Promise.reject(new PluginError('incomplete', 'the index is corrupt'));
      const steps = stepsOf(() => Promise.resolve(), { isCheckDue: () => false, check });
      const copying = copyAll([etcd, alone], new Set(), { concurrency: 2 }, makeContext(), steps);
      expect((await failureOf(copying, 'partial')).message).to.match(
        /^2 of 2 images .*\n {2}etcd .*corrupt\n {2}alone/,
      );
    });

    it('lets images wait for a shared layer until the image that brought it is checked', async () => {
      const order: string[] = [];
      const steps = stepsOf(({ label }) => Promise.resolve(void order.push(`copy ${label}`)), {
        check: async (images) => {
          await setImmediate();
          order.push(`check ${images.map(({ label }) => label).join(' ')}`);
          return new Map();
        },
      });
      await copyAll([etcd, console], new Set(), { concurrency: 2 }, makeContext(), steps);
      expect(order).to.deep.equal(['copy etcd', 'check etcd', 'copy console', 'check console']);
    });

    it('copies images together once their shared layer is stored', async () => {
      let [running, most] = [0, 0];
      const copy = async (): Promise<void> => {
        most = Math.max(most, (running += 1));
        await setImmediate();
        running -= 1;
      };
      await copyAll([etcd, console, third], new Set(), { concurrency: 3 }, makeContext(), stepsOf(copy));
      expect(most).to.equal(2);
    });

    it('copies nothing after an interruption', async () => {
      const context = makeContext();
      context.interrupt();
      const copy = (): Promise<void> => Promise.reject(new Error('it copies'));
      await failureOf(copyAll([etcd], new Set(), { concurrency: 1 }, context, stepsOf(copy)), 'interrupted');
    });

    it('pauses between two images, and not after the last one', async () => {
      const copied: string[] = [];
      const copy = ({ label }: PlannedImage): Promise<void> => {
        copied.push(label);
        // The pause begins before the next turn of the event loop.
        void setImmediate().then(() => copied.length > 1 && context.interrupt());
        return Promise.resolve();
      };
      const limits = { concurrency: 1, pause: 3_600_000 };
      await copyAll([alone], new Set(), limits, makeContext(), stepsOf(copy));
      const context = makeContext();
      await failureOf(copyAll([etcd, console], new Set(), limits, context, stepsOf(copy)), 'interrupted');
      expect(copied).to.deep.equal(['alone', 'etcd']);
    });
  });
});
