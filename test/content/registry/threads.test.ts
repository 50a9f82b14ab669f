import { createHash } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { expect } from 'chai';
import type { Descriptor } from '../../../lib/content/oci/descriptor.ts';
import type { Reference } from '../../../lib/content/oci/reference.ts';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { Tokens, type Authorizer } from '../../../lib/content/registry/auth/tokens.ts';
import { openSession, type RegistrySession, type RegistrySettings } from '../../../lib/content/registry/session.ts';
import { DownloadThreads } from '../../../lib/content/registry/threads.ts';
import type { Download } from '../../../lib/content/registry/worker.ts';
import { PluginError } from '../../../lib/errors.ts';
import { generatedBody } from '../../fakes/registry/content.ts';
import { startRegistry, type RegistryOptions, type TestRegistry } from '../../fakes/registry/registry.ts';
import { addBlob, Places } from '../../support/content/places.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('DownloadThreads', () => {
  const user = { username: 'me', password: 'p-ssw-rd' };
  let cleanups: (() => unknown)[];
  let context: TestContext;
  let places: Places;
  beforeEach(async () => {
    context = makeContext();
    places = await Places.make();
    cleanups = [() => places.remove()];
  });
  afterEach(async () => {
    for (const clean of cleanups.reverse()) await clean();
  });

  const start = async (options?: RegistryOptions): Promise<TestRegistry> => {
    const registry = await startRegistry(options);
    cleanups.push(() => registry.stop());
    return registry;
  };
  const openThreads = async (maxPerRegistry = 6): Promise<DownloadThreads> => {
    const settings: RegistrySettings = { insecure: true, environment: {}, maxPerRegistry, userAgent: 'test' };
    const credentials = new Credentials({ environment: {}, home: '/nowhere' });
    const find = (): ReturnType<Credentials['find']> => Promise.resolve(user);
    const made = Promise.withResolvers<Authorizer>();
    const session: RegistrySession = openSession(
      settings,
      (connections) => {
        const tokens = new Tokens(Object.assign(credentials, { find }), connections, context, settings);
        made.resolve(tokens);
        return tokens;
      },
      context,
    );
    const threads = new DownloadThreads(settings, await made.promise, context, 4);
    cleanups.push(async () => {
      await threads.close();
      session.close();
    });
    return threads;
  };
  const at = (registry: TestRegistry): Reference => ({ registry: registry.host, repository: 'a/b' });
  const plan = async (descriptor: Descriptor, registries: TestRegistry[], present?: Buffer): Promise<Download> => {
    return { place: await places.next(descriptor.size, present), descriptor, repositories: registries.map(at) };
  };
  const expectBrought = async ({ place, descriptor }: Download, bytes: Buffer): Promise<void> => {
    expect((await places.read(place, descriptor.size)).equals(bytes), descriptor.digest).to.equal(true);
  };
  const none = (): void => undefined;

  it('writes many blobs into their places', async () => {
    const registry = await start();
    const blobs = Array.from({ length: 12 }, (_, index) => addBlob(registry.content, String(index), 200_000 * index));
    const threads = await openThreads();
    const reported = new Map<string, number>();
    const downloads = await Promise.all(blobs.map(({ descriptor }) => plan(descriptor, [registry])));
    await Promise.all(
      downloads.map((each) => threads.download(each, (present) => reported.set(each.descriptor.digest, present))),
    );
    for (const [index, { bytes }] of blobs.entries()) {
      const download = downloads[index];
      if (download) await expectBrought(download, bytes);
    }
    for (const { descriptor } of blobs) {
      expect(reported.get(descriptor.digest) ?? 0).to.be.at.most(descriptor.size);
    }
  });

  it('tells of each request', async () => {
    const registry = await start();
    const { descriptor } = addBlob(registry.content, 'blob', 1000);
    await (await openThreads()).download(await plan(descriptor, [registry]), none);
    const line = `GET ${registry.url}/v2/a/b/blobs/${descriptor.digest}: 200, ${descriptor.size} bytes`;
    expect(context.lines.filter((each) => each.startsWith(`debug: ${line}`))).to.have.length(1);
  });

  it('resumes after a dropped connection', async () => {
    const registry = await start();
    const { descriptor, bytes } = addBlob(registry.content, 'dropped', 900_000);
    // A reset may discard what the kernel has received, so the next offset would depend on the load.
    registry.fault(/blobs/, { cut: { after: 300_000, how: 'end' } }, { times: 2 });
    const download = await plan(descriptor, [registry]);
    await (await openThreads()).download(download, none);
    await expectBrought(download, bytes);
    expect(registry.requests.map(({ headers }) => headers.range)).to.deep.equal([
      undefined,
      'bytes=300000-',
      'bytes=600000-',
    ]);
  });

  it('continues with the next mirror if one has corrupt or no content', async () => {
    const [wrong, without, right] = [await start(), await start(), await start()];
    const { descriptor, bytes } = addBlob(right.content, 'mirrored', 900_000);
    wrong.content.blobs.set(descriptor.digest, bytes);
    wrong.fault(/blobs/, { flipByte: 500_000 });
    const download = await plan(descriptor, [wrong, without, right]);
    await (await openThreads()).download(download, none);
    await expectBrought(download, bytes);
    expect([wrong, without, right].map(({ requests }) => requests.length)).to.deep.equal([1, 1, 1]);
  });

  it('names every registry if all have corrupt content', async () => {
    const registries = [await start(), await start()];
    const { descriptor, bytes } = addBlob({ blobs: new Map(), repositories: new Map() }, 'wrong', 100_000);
    for (const registry of registries) registry.content.blobs.set(descriptor.digest, bytes);
    for (const registry of registries) registry.fault(/blobs/, { flipByte: 50_000 });
    const failing = (await openThreads()).download(await plan(descriptor, registries), none);
    const { message } = await failureOf(failing, 'digest-mismatch');
    for (const { host } of registries) expect(message).to.contain(host);
    expect(message).to.contain(descriptor.digest);
  });

  it('requests one token for all threads, and another one if it is refused', async () => {
    const registry = await start({ bearer: user });
    const blobs = Array.from({ length: 16 }, (_, index) => addBlob(registry.content, String(index), 100_000));
    const threads = await openThreads();
    const bringAll = async (): Promise<void> => {
      await Promise.all(
        blobs.map(async ({ descriptor }) => threads.download(await plan(descriptor, [registry]), none)),
      );
    };
    await bringAll();
    expect(registry.tokens?.requests).to.have.length(1);
    registry.revokeTokens();
    await bringAll();
    expect(registry.tokens?.requests).to.have.length(2);
  });

  it('resumes a download if its token expires in the middle', async () => {
    const registry = await start({ bearer: user });
    const { descriptor, bytes } = addBlob(registry.content, 'expires', 900_000);
    const revoke = (): boolean => {
      registry.revokeTokens();
      return true;
    };
    let seen = 0;
    registry.fault(
      ({ path, headers }) => path.includes('blobs') && headers.authorization !== undefined && (seen += 1) === 1,
      { cut: { after: 300_000, how: 'reset' } },
    );
    registry.fault(({ headers }) => headers.range !== undefined && seen === 2 && revoke(), {}, { times: 1 });
    const download = await plan(descriptor, [registry]);
    await (await openThreads()).download(download, none);
    await expectBrought(download, bytes);
    expect(registry.tokens?.requests).to.have.length(2);
  });

  it('tries again when the token server says that it is overloaded', async () => {
    const registry = await start({ bearer: user });
    registry.tokens?.fault(/./, { answer: { status: 503, body: 'overloaded' } }, { times: 1 });
    const { descriptor, bytes } = addBlob(registry.content, 'overloaded', 100_000);
    const download = await plan(descriptor, [registry]);
    await (await openThreads()).download(download, none);
    await expectBrought(download, bytes);
    expect(registry.tokens?.requests).to.have.length(2);
  });

  it('reports that the credentials are refused', async () => {
    const registry = await start({ bearer: { ...user, password: 'another' } });
    const { descriptor } = addBlob(registry.content, 'refused', 1000);
    const error = await failureOf(
      (await openThreads()).download(await plan(descriptor, [registry]), none),
      'unauthorized',
    );
    expect(`${error.message} ${String(error.hint)}`).not.to.contain('p-ssw-rd');
  });

  for (const most of [1, 3]) {
    it(`asks a registry for no more than ${most} at a time, over all threads`, async () => {
      const registry = await start();
      registry.fault(/blobs/, { delay: 20 });
      const blobs = Array.from({ length: 24 }, (_, index) => addBlob(registry.content, String(index), 20_000));
      const large = addBlob(registry.content, 'large', 17 * 2 ** 20);
      const threads = await openThreads(most);
      const bringAll = async (): Promise<void> => {
        await Promise.all(
          blobs.map(async ({ descriptor }) => threads.download(await plan(descriptor, [registry]), none)),
        );
      };
      await bringAll();
      // One thread is enough for little content.
      expect(registry.peakActive).to.equal(Math.ceil(most / 2));
      await threads.download(await plan(large.descriptor, [registry]), none);
      // Threads take time to start. Then all of them run.
      await bringAll();
      registry.peakActive = 0;
      await bringAll();
      expect(registry.peakActive).to.equal(most);
    });
  }

  it('counts existing content, unless it is corrupt', async () => {
    const registry = await start();
    const { descriptor, bytes } = addBlob(registry.content, 'resumed', 900_000);
    const threads = await openThreads();
    for (const present of [bytes.subarray(0, 500_000), bytes, Buffer.alloc(400_000)]) {
      const download = await plan(descriptor, [registry], present);
      await threads.download(download, none);
      await expectBrought(download, bytes);
    }
    expect(registry.requests.map(({ headers }) => headers.range)).to.deep.equal([
      'bytes=500000-',
      'bytes=400000-',
      undefined,
    ]);
  });

  it('reports a full disk, without a request to other registries', async function () {
    const registry = await start();
    const { descriptor } = addBlob(registry.content, 'full', 100_000);
    let fd: number;
    try {
      fd = openSync('/dev/full', 'w');
    } catch {
      process.emitWarning('SKIPPED, there is no /dev/full here');
      this.skip();
      return;
    }
    cleanups.push(() => {
      closeSync(fd);
    });
    const path = '/bundles/upgrade.tar';
    const place = { path, pieces: [{ path, fd, position: 0, size: descriptor.size }], present: 0 };
    const threads = await openThreads();
    const failing = threads.download({ place, descriptor, repositories: [at(registry), at(registry)] }, none);
    expect((await failureOf(failing, 'disk-full')).message).to.contain(place.path);
    expect(registry.requests).to.have.length(1);
  });

  it('throws the error of the caller, and continues with the others', async () => {
    const registry = await start();
    const { descriptor, bytes } = addBlob(registry.content, 'blob', 9_000_000);
    const threads = await openThreads();
    const failing = threads.download(await plan(descriptor, [registry]), () => {
      throw new PluginError('disk-full', 'the journal does not fit');
    });
    const other = await plan(descriptor, [registry]);
    await Promise.all([failureOf(failing, 'disk-full'), threads.download(other, none)]);
    await expectBrought(other, bytes);
  });

  it('interrupts running and waiting downloads', async () => {
    const registry = await start();
    registry.fault(/blobs/, { noAnswer: 'hold' });
    const { descriptor } = addBlob(registry.content, 'held', 1000);
    const threads = await openThreads(2);
    const waiting = await Promise.all([1, 2, 3, 4].map(() => plan(descriptor, [registry])));
    const asked = registry.nextRequest();
    const failures = waiting.map((each) => failureOf(threads.download(each, none), 'interrupted'));
    await asked;
    context.interrupt();
    await Promise.all(failures);
    await failureOf(threads.download(await plan(descriptor, [registry]), none), 'interrupted');
  });

  it('does not begin when the run has been interrupted before', async () => {
    const registry = await start();
    const { descriptor } = addBlob(registry.content, 'late', 1000);
    context.interrupt();
    const threads = await openThreads();
    await failureOf(threads.download(await plan(descriptor, [registry]), none), 'interrupted');
    expect(registry.requests).to.deep.equal([]);
  });

  it('rejects running and later requests when it is closed', async () => {
    const registry = await start();
    registry.fault(/blobs/, { noAnswer: 'hold' });
    const { descriptor } = addBlob(registry.content, 'closed', 1000);
    const threads = await openThreads();
    const failing = failureOf(threads.download(await plan(descriptor, [registry]), none), 'interrupted');
    await threads.close();
    await failing;
    await failureOf(threads.download(await plan(descriptor, [registry]), none), 'interrupted');
    await threads.close();
  });

  it('rejects the downloads of a thread that crashes, and all others if no thread is left', async () => {
    const registry = await start();
    const { descriptor } = addBlob(registry.content, 'crash', 1000);
    const threads = await openThreads(2);
    const good = await plan(descriptor, [registry]);
    // A thread cannot process this, and ends.
    const bad = { place: good.place, descriptor } as Download;
    const error = await failureOf(threads.download(bad, none), 'internal');
    expect(error.message).to.contain('a download thread failed');
    const rest = await Promise.allSettled([bad, bad, good, good].map((each) => threads.download(each, none)));
    expect(rest.map(({ status }) => status)).to.deep.equal(['rejected', 'rejected', 'rejected', 'rejected']);
    await failureOf(threads.download(good, none), 'internal');
  });

  it('needs no more memory for large content than for small', async function () {
    const registry = await start();
    const pattern = Buffer.alloc(64 * 1024, 'pattern');
    const size = 3000 * pattern.length;
    const hash = createHash('sha256');
    for (let at = 0; at < size; at += pattern.length) hash.update(pattern);
    const descriptor = { mediaType: 'x/y', digest: `sha256:${hash.digest('hex')}`, size } as const;
    registry.content.blobs.set(descriptor.digest, generatedBody(size, pattern));
    const small = addBlob(registry.content, 'small', 1000);
    const threads = await openThreads();
    await threads.download(await plan(small.descriptor, [registry]), none);
    const before = process.memoryUsage.rss();
    let most = before;
    const timer = setInterval(() => (most = Math.max(most, process.memoryUsage.rss())), 10);
    await threads.download(await plan(descriptor, [registry]), none);
    clearInterval(timer);
    expect(most - before).to.be.below(120 * 2 ** 20);
  });
});
