import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { expect } from 'chai';
import { Terminal } from '../../../../cmd/cli/terminal.ts';
import { showInBrowser } from '../../../../cmd/upgrade-bundle/status/web.ts';
import { checkInterrupted } from '../../../../lib/context.ts';
import { PluginError } from '../../../../lib/errors.ts';
import { upgradeBundleKind, type UpgradeBundle } from '../../../../lib/update/record/upgradeBundle.ts';
import { makeContext, type TestContext } from '../../../support/context.ts';
import { failureOf } from '../../../support/program/failure.ts';
import { until } from '../../../support/until.ts';

const node = { name: 'worker-0', phase: 'Loading', imagesLoaded: 95, imagesTotal: 190, bytes: 2 ** 33 } as const;

const bundleWith = (status: UpgradeBundle['status']): UpgradeBundle => ({
  ...upgradeBundleKind,
  metadata: { name: 'b' },
  spec: { bundle: { digest: `sha256:${'a'.repeat(64)}` }, hold: false },
  status,
});

describe('showInBrowser', () => {
  let context: TestContext;
  let stdout: PassThrough;
  let read: number;
  beforeEach(() => {
    [context, stdout, read] = [makeContext(), new PassThrough(), 0];
  });

  const show = async (bundles: AsyncIterable<UpgradeBundle | undefined>): Promise<void> => {
    const terminal = await Terminal.open({ stdout, stderr: new PassThrough(), environment: {} });
    const update = {
      bundles,
      read: (bundle: UpgradeBundle | undefined) => {
        read += 1;
        return Promise.resolve({ bundle, elapsed: undefined, mirrors: [] });
      },
    };
    await showInBrowser(update, { context, terminal });
  };
  const urlOf = async (): Promise<string> => String((await once(stdout, 'data'))[0]).trim();
  /** Yields updates as soon as they are there, and then waits for the interruption. */
  async function* follow(...bundles: readonly Promise<UpgradeBundle>[]): AsyncGenerator<UpgradeBundle> {
    for (const bundle of bundles) yield await bundle;
    if (!context.signal.aborted) await once(context.signal, 'abort');
    checkInterrupted(context.signal);
  }

  it('prints the URL of a page, whose data follow the update, and ends when it is interrupted', async () => {
    const second = Promise.withResolvers<UpgradeBundle>();
    const ended = show(follow(Promise.resolve(bundleWith({ phase: 'Loading', nodes: [node] })), second.promise));
    const url = await urlOf();
    const page = await fetch(url);
    expect(page.headers.get('content-security-policy')).to.contain("default-src 'none'");
    expect(await page.text())
      .to.contain('Update of the cluster')
      .and.to.contain('id="nodes"');
    const data = async (): Promise<Record<string, unknown>> =>
      (await (await fetch(`${url}data`)).json()) as Record<string, unknown>;
    await until(() => read === 1);
    expect(await data()).to.deep.include({
      title: 'b: Loading, 0 of 1 nodes ready, 50%',
      problem: [],
      nodes: [
        {
          ...{ name: 'worker-0', phase: 'Loading', accent: 'busy', images: '95 of 190 images', share: 0.5 },
          ...{ bytes: '8.0 GiB', message: '' },
        },
      ],
    });
    const waiting = { ...node, imagesLoaded: 0, imagesTotal: 0 };
    const failed = { ...node, name: 'worker-1', phase: 'Failed', message: 'full' } as const;
    second.resolve(bundleWith({ phase: 'Loading', nodes: [waiting, failed] }));
    await until(() => read === 2);
    const { problem, nodes } = await data();
    expect(problem).to.deep.include('Problem: worker-1: full');
    expect(nodes).to.deep.include({ ...(nodes as object[])[1], images: 'not counted yet', share: 0 });
    context.interrupt();
    await ended;
    await fetch(url).then(
      () => expect.fail('the server runs'),
      () => undefined,
    );
  });

  it('shows that no bundle is there before the cluster is read', async () => {
    const first = Promise.withResolvers<UpgradeBundle>();
    const ended = show(follow(first.promise));
    const { title } = (await (await fetch(`${await urlOf()}data`)).json()) as { title: string };
    expect(title).to.equal('Waiting for a bundle to be detected or applied');
    first.resolve(bundleWith({ phase: 'Loading' }));
    context.interrupt();
    await ended;
  });

  it('ends with the error of the cluster, and closes its server', async () => {
    const { promise, reject } = Promise.withResolvers<UpgradeBundle>();
    const ended = failureOf(show(follow(promise)), 'unreachable');
    const url = await urlOf();
    reject(new PluginError('unreachable', 'the cluster is gone'));
    expect((await ended).message).to.equal('the cluster is gone');
    await fetch(url).then(
      () => expect.fail('the server runs'),
      () => undefined,
    );
  });
});
