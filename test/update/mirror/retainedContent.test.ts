import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import type { ServedResponse } from '../../../lib/content/server.ts';
import { PluginError } from '../../../lib/errors.ts';
import { MirrorRequests } from '../../../lib/update/mirror/mirrorServer.ts';
import type { RetainedBundles } from '../../../lib/update/mirror/retainedBundles.ts';
import { RetainedContent } from '../../../lib/update/mirror/retainedContent.ts';
import { flipByte, makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { RetainedFolder } from '../../support/content/retainedFolder.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { attachmentTag } from '../../support/release/attachments.ts';

describe('the retained bundles of a node', () => {
  let made: TestBundle;
  let later: TestBundle;
  let retained: RetainedFolder;
  let context: TestContext;
  let bundles: RetainedBundles;

  before(async () => {
    made = await makeBundle({ layerSize: 50_000 });
    later = await makeBundle({ layerSize: 50_000, version: '4.12.5', common: ['cli'], base: made.path });
  });
  after(async () => {
    await made.remove();
    await later.remove();
  });
  beforeEach(async () => {
    retained = await RetainedFolder.open();
    ({ context, bundles } = retained);
  });
  afterEach(() => retained.close());

  const retain = (bundle: TestBundle): Promise<string> => retained.retain(bundle);
  /** Follows the folder, as the server does. */
  async function index(before?: RetainedContent): Promise<RetainedContent> {
    return RetainedContent.index(await retained.refresh(), before, context);
  }
  async function firstLayer(content: RetainedContent): Promise<{ digest: Digest; size: number; mediaType: string }> {
    const manifest = await buffer(await content.fetch(await content.resolve(made.release.digest)));
    const { layers } = JSON.parse(manifest.toString()) as {
      layers: { digest: Digest; size: number; mediaType: string }[];
    };
    return layers[0] ?? expect.fail('the release has no layer');
  }

  it('withhold corrupt content while its copy is the same, and give that of another copy', async () => {
    const copy = await retain(made);
    const content = await index();
    const { digest } = await firstLayer(content);
    content.withdraw(digest, new PluginError('digest-mismatch', 'found by a test'));
    expect(content.has(made.release.digest)).to.equal(false);
    await retain(later);
    const more = await index(content);
    expect(more.has(made.release.digest)).to.equal(false);
    await retain(made);
    expect((await index(more)).has(made.release.digest)).to.equal(true);
    expect(bundles.paths).to.include(copy);
  });

  it('lack withdrawn images until a check finds them intact', async () => {
    await retain(made);
    const content = await index();
    const { digest } = await firstLayer(content);
    content.withdraw(digest, new PluginError('not-readable', 'EIO: i/o error, read'));
    const lacking = (): readonly string[] => new MirrorRequests(context).describe(bundles, content, 9690).lacking;
    expect(lacking()).to.include(made.release.digest);
    await content.check(digest);
    expect([content.has(made.release.digest), lacking()]).to.deep.equal([true, []]);
  });

  it('are not refused because of an interruption', async () => {
    await retain(made);
    const files = await retained.refresh();
    context.interrupt();
    await failureOf(RetainedContent.index(files, undefined, context), 'interrupted');
    expect(context.lines.join()).not.to.include('warn');
  });

  it('withhold an image without all of its content, and give the others', async () => {
    await using list = await makeBundle({ arch: 'multi' });
    await retain(list);
    const files = await retained.refresh();
    const isGiven = async (changed: object): Promise<boolean> =>
      (await RetainedContent.index({ ...files, ...changed }, undefined, context)).has(list.release.digest);
    expect(await isGiven({})).to.equal(true);
    const { manifests, blobs } = files;
    const longer = [...blobs].map(([digest, blob]) => [digest, { ...blob, size: blob.size + 1 }] as const);
    expect(await isGiven({ blobs: new Map(longer) })).to.equal(false);
    const [child = digestOf('none')] = list.release.children;
    const others = [...manifests].filter(([digest]) => digest !== child);
    // A manifest among the blobs is not given as one.
    const blobsToo = [...blobs, ...manifests];
    expect(await isGiven({ manifests: new Map(others), blobs: new Map(blobsToo) })).to.equal(false);
    const unknown = [...manifests.values()].map((held) => [digestOf('unknown'), held] as const);
    expect(await isGiven({ manifests: new Map([...unknown, ...manifests]) })).to.equal(true);
    expect(context.lines.join()).to.include('left out');
  });

  it('withhold a manifest that is found corrupt when it is read', async () => {
    const copy = await retain(made);
    const content = await index();
    const descriptor = await content.resolve(made.release.digest);
    await flipByte(copy, made.release.digest);
    expect(String(await content.fetch(descriptor).catch((error: unknown) => error))).to.include('digest');
    expect(content.has(made.release.digest)).to.equal(false);
    await retain(made);
    expect((await index(content)).has(made.release.digest)).to.equal(true);
  });
});

describe('the requests to a mirror', () => {
  const nothing = { kept: 'all' as const, manifests: new Map(), blobs: new Map(), tags: new Map() };
  const get = { method: 'GET', status: 404, client: 'cri-o/1.33', address: '10.0.0.1' };
  const pathOf = (text: string): string => `/v2/a/b/manifests/${digestOf(text)}`;
  let context: TestContext;
  let requests: MirrorRequests;
  beforeEach(() => {
    context = makeContext();
    requests = new MirrorRequests(context);
  });
  const describeRequests = async () =>
    requests.describe(
      { versions: [], sizes: {} },
      await RetainedContent.index(nothing, undefined, makeContext()),
      9690,
    );
  const count = (response: Partial<ServedResponse>): void => requests.count({ ...get, path: pathOf('x'), ...response });

  it('count if a runtime got a manifest', async () => {
    count({ status: 200 });
    count({ status: 200, method: 'HEAD' });
    count({ status: 200, client: 'oc-disconnected' });
    count({ status: 200, path: `/v2/a/b/blobs/${digestOf('x')}` });
    count({ status: 503 });
    expect(await describeRequests()).to.deep.equal({ versions: [], port: 9690, requests: 1, lacking: [] });
  });

  it('name an image once that is missing, by tag or digest, and no signature', async () => {
    for (let time = 0; time < 2; time += 1) {
      count({});
      count({ path: '/v2/a/b/manifests/4.12.4' });
      count({ path: `/v2/a/b/manifests/${attachmentTag(digestOf('x'))}` });
    }
    const { lacking } = await describeRequests();
    expect(lacking).to.deep.equal([`a/b@${digestOf('x')}`, 'a/b:4.12.4']);
    expect(context.lines).to.have.length(2);
  });

  it('report and log the missing images of one client, although others ask for anything', async () => {
    count({ path: pathOf('missing') });
    for (let index = 0; index < 2000; index += 1) count({ path: pathOf(String(index)), address: '10.0.0.2' });
    count({ path: pathOf('also missing') });
    for (let index = 0; index < 2000; index += 1) count({ path: pathOf(String(-index)), address: '10.0.0.3' });
    const { lacking } = await describeRequests();
    const own = ['missing', 'also missing'].map((text) => `a/b@${digestOf(text)}`);
    expect(lacking).to.have.length(20).and.to.include.members(own);
    expect(context.lines.filter((line) => own.some((image) => line.includes(image)))).to.have.length(2);
    expect(context.lines).to.have.length(102);
    // Also from an address that has asked for anything before.
    count({ path: pathOf('last'), address: '10.0.0.3' });
    expect((await describeRequests()).lacking).to.include(`a/b@${digestOf('last')}`);
  });

  it('report the last images of a client that are missing', async () => {
    for (let index = 0; index < 1000; index += 1) count({ path: pathOf(String(index)) });
    const last = Array.from({ length: 20 }, (_, index) => digestOf(String(980 + index)));
    expect((await describeRequests()).lacking).to.deep.equal(last.map((digest) => `a/b@${digest}`));
  });
});
