import { expect } from 'chai';
import { mediaTypes } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { listRepositoryNames, readTags, ReferrersApi } from '../../../lib/content/registry/tags.ts';
import { repositoryOf, type TestRegistry } from '../../fakes/registry/registry.ts';
import { TestContent } from '../../support/content/image.ts';
import { failureOf } from '../../support/program/failure.ts';
import { addSupplements } from '../../support/release/attachments.ts';
import { user, useTransport } from './transportSite.ts';

const repository = 'a/b';

/** Adds tags to a registry. */
function addTags({ content }: TestRegistry, tags: readonly string[]): void {
  for (const tag of tags) repositoryOf(content, repository).tags.set(tag, 'sha256:none');
}

describe('readTags', () => {
  const { start, open } = useTransport();
  let server: TestRegistry;
  beforeEach(async () => {
    server = await start();
  });
  const read = async (options: Parameters<typeof readTags>[2] = {}): Promise<string[]> =>
    readTags(await open(server, { attempts: 2 }), { registry: server.host, repository }, options);

  it('reads all pages of the tags', async () => {
    const tags = Array.from({ length: 2500 }, (_, index) => `t${index}`);
    addTags(server, tags);
    expect(await read()).to.have.members(tags);
    expect(server.requests).to.have.length(3);
  });

  it('does not take a part of the tags for all of them', async () => {
    addTags(
      server,
      Array.from({ length: 1500 }, (_, index) => `t${index}`),
    );
    server.fault(/last=/, { answer: { status: 404 } });
    const { message } = await failureOf(read(), 'conflict');
    expect(message).to.equal(`${server.host}/a/b changed while its list of tags was read`);
  });

  it('has no tags without a repository, and refuses an invalid list', async () => {
    expect(await read()).to.deep.equal([]);
    server.fault(/tags/, { answer: { status: 200, body: '{"tags":null}' } });
    expect(await read()).to.deep.equal([]);
    for (const body of ['<html>', '{"tags":"x"}', '{"tags":["x",1]}']) {
      server.fault(/tags/, { answer: { status: 200, body } });
      const { message } = await failureOf(read(), 'server-error');
      expect(message).to.equal(`${server.host}/a/b sent a malformed list of tags`);
    }
  });

  it('stops reading tags if a page names itself as the next, and has all of the last page', async () => {
    const headers = { link: '</v2/a/b/tags/list?n=1&last=x>; rel="next"' };
    server.fault(/tags/, { answer: { status: 200, headers, body: '{"tags":["x"]}' } });
    const { message } = await failureOf(read(), 'server-error');
    expect(message).to.contain('names a page of its list of tags again as the next');
    expect(server.requests.filter(({ path }) => path.includes('tags'))).to.have.length(2);
    server.clearFaults();
    server.fault(/n=1000/, { answer: { status: 200, headers, body: '{"tags":["x"]}' } });
    server.fault(/last=x/, { answer: { status: 200, headers, body: '{"tags":["y"]}' } });
    expect(await read()).to.deep.equal(['x', 'y']);
  });

  it('stops reading tags that never end', async () => {
    for (let page = 0; page <= 1000; page += 1) {
      const headers = { link: `</v2/a/b/tags/list?n=1&last=${page}>; rel="next"` };
      const matched = page === 0 ? /n=1000/ : new RegExp(`last=${page - 1}$`);
      server.fault(matched, { answer: { status: 200, headers, body: `{"tags":["${page}"]}` } });
    }
    await failureOf(read(), 'too-large');
    const { message } = await failureOf(read({ pages: 2 }), 'too-large');
    expect(message).to.equal(`${server.host}/a/b has more than 2 pages in its list of tags`);
  });

  it('asks for smaller pages if a registry refuses large ones', async () => {
    addTags(server, ['one', 'two']);
    for (const refused of [/n=1000/, /n=100/]) {
      server.fault(refused, { answer: { status: 400, body: '{"errors":[{"code":"PAGINATION_NUMBER_INVALID"}]}' } });
      expect(await read()).to.have.length(2);
    }
    server.fault(/tags/, { answer: { status: 400 } });
    await failureOf(read(), 'server-error');
  });

  it('asks once for tags that are optional, and again for others', async () => {
    server.fault(/tags/, { answer: { status: 500 } });
    await failureOf(read({ isOptional: true }), 'server-error');
    expect(server.requests).to.have.length(1);
    await failureOf(read(), 'server-error');
    expect(server.requests).to.have.length(3);
  });
});

describe('listRepositoryNames', () => {
  const { start, open } = useTransport();
  it('lists the repositories of a registry, also the private ones of a registry that requires no login', async () => {
    const server = await start({ bearer: user });
    for (const name of ['public/one', 'private/two']) repositoryOf(server.content, name);
    expect(await listRepositoryNames(await open(server), server.host)).to.have.members(['public/one', 'private/two']);
  });

  it('reports a registry that does not list them', async () => {
    const server = await start();
    for (const [status, code] of [
      [404, 'not-found'],
      [403, 'denied'],
    ] as const) {
      server.fault(/_catalog/, { answer: { status } });
      await failureOf(listRepositoryNames(await open(server), server.host), code);
    }
  });
});

describe('ReferrersApi', () => {
  const { start, open } = useTransport();
  const subject = digestOf('an image');
  const list = async (server: TestRegistry, api?: ReferrersApi): ReturnType<ReferrersApi['list']> =>
    (api ?? new ReferrersApi(await open(server, { attempts: 1 }))).list({ registry: server.host, repository }, subject);
  const asked = ({ requests }: TestRegistry): number =>
    requests.filter(({ path }) => path.includes('/referrers/')).length;

  it('lists the manifests that refer to an image', async () => {
    const server = await start({ referrers: true });
    expect(await list(server)).to.deep.equal([]);
    const contents = new TestContent();
    const { digest } = addSupplements(contents, { repository, digest: subject });
    contents.addTo(server.content);
    const [referrer, ...others] = (await list(server)) ?? [];
    expect(referrer).to.deep.include({ digest, mediaType: mediaTypes.ociManifest });
    expect(others).to.deep.equal([]);
  });

  it('is asked of Quay also after it had no image to tell about', async () => {
    const server = await start({ referrers: 'of known images' });
    const api = new ReferrersApi(await open(server));
    expect(await list(server, api)).to.deep.equal([]);
    const contents = new TestContent();
    const { digest } = contents.addImage(repository, { architecture: 'amd64', layers: [] });
    addSupplements(contents, { repository, digest });
    contents.addTo(server.content);
    expect(await api.list({ registry: server.host, repository }, digest)).not.to.be.empty;
  });

  it('asks a registry without the API only once', async () => {
    for (const status of [404, 405, 501, 401, 403]) {
      const server = await start();
      const api = new ReferrersApi(await open(server, { attempts: 1 }));
      server.fault(/referrers/, { answer: { status } });
      for (const _ of [1, 2]) expect(await list(server, api), String(status)).to.equal(undefined);
      expect(asked(server), String(status)).to.equal(1);
    }
  });

  it('reports a failure to the first question alone, and then treats the API as missing', async () => {
    const server = await start({ referrers: true });
    const api = new ReferrersApi(await open(server, { attempts: 1 }));
    server.fault(/referrers/, { answer: { status: 503 } });
    await failureOf(list(server, api), 'server-error');
    expect(await list(server, api)).to.equal(undefined);
    expect(asked(server)).to.equal(1);
  });

  it('reads all pages, ten at most', async () => {
    const server = await start();
    const entry = (page: number): object => ({
      mediaType: mediaTypes.ociManifest,
      digest: digestOf(`page ${page}`),
      size: page,
    });
    for (let page = 0; page < 12; page += 1) {
      const headers = { link: `</v2/a/b/referrers/${subject}?page=${page + 1}>; rel="next"` };
      const body = JSON.stringify({ schemaVersion: 2, mediaType: mediaTypes.ociIndex, manifests: [entry(page)] });
      server.fault(page === 0 ? /referrers/ : new RegExp(`page=${page}$`), { answer: { status: 200, headers, body } });
    }
    expect((await list(server))?.map(({ size }) => size)).to.deep.equal(Array.from({ length: 10 }, (_, page) => page));
  });

  it('refuses a list that is not a manifest list', async () => {
    const server = await start();
    server.fault(/referrers/, { answer: { status: 200, body: 'x' } });
    const { message } = await failureOf(list(server), 'invalid-manifest');
    expect(message).to.equal(`the referrers of ${subject} in ${server.host}/a/b is not JSON`);
  });
});
