import { expect } from 'chai';
import { mediaTypes } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { putImage, type SmallImage } from '../../support/content/smallImage.ts';
import { generatedBody } from './content.ts';
import { emptyContent, repositoryOf, startRegistry, type RegistryOptions, type TestRegistry } from './registry.ts';

const login = { username: 'user', password: 'secret' };

async function errorCode(response: Response): Promise<string | undefined> {
  const { errors } = (await response.json()) as { errors: { code: string }[] };
  return errors[0]?.code;
}

describe('startRegistry', () => {
  let registry: TestRegistry;
  let image: SmallImage;

  async function start(options: RegistryOptions = {}): Promise<void> {
    registry = await startRegistry({ content: emptyContent(), ...options });
    image = putImage(registry.content, 'team/app', '1.0');
  }

  afterEach(async () => {
    await registry.stop();
  });

  describe('reading', () => {
    it('gives a manifest by tag and by digest, with its type, digest and length', async () => {
      await start();
      for (const reference of ['1.0', image.manifest]) {
        for (const method of ['GET', 'HEAD']) {
          const response = await fetch(`${registry.url}/v2/team/app/manifests/${reference}`, { method });
          expect(response.status).to.equal(200);
          expect(response.headers.get('content-type')).to.equal(mediaTypes.ociManifest);
          expect(response.headers.get('docker-content-digest')).to.equal(image.manifest);
          const body = Buffer.from(await response.arrayBuffer());
          if (method === 'GET') expect(digestOf(body)).to.equal(image.manifest);
          expect(Number(response.headers.get('content-length'))).to.be.greaterThan(100);
        }
      }
    });

    it('reports missing content as the protocol defines it', async () => {
      await start();
      const at = async (where: string, headers = {}): Promise<string | undefined> =>
        await errorCode(await fetch(`${registry.url}/v2/${where}`, { headers }));
      expect(await at('team/app/manifests/2.0')).to.equal('MANIFEST_UNKNOWN');
      expect(await at('team/app/manifests/1.0', { accept: mediaTypes.dockerList })).to.equal('MANIFEST_UNKNOWN');
      expect(await at('team/other/manifests/1.0')).to.equal('NAME_UNKNOWN');
      expect(await at(`team/app/blobs/${digestOf('none')}`)).to.equal('BLOB_UNKNOWN');
      expect(await at('team/other/tags/list')).to.equal('NAME_UNKNOWN');
    });

    it('has a blob only in the repositories that need it', async () => {
      await start();
      registry.content.blobs.set(digestOf('loose'), Buffer.from('loose'));
      const status = async (where: string): Promise<number> => (await fetch(`${registry.url}/v2/${where}`)).status;
      expect(await status(`team/app/blobs/${image.layer}`)).to.equal(200);
      expect(await status(`team/other/blobs/${image.layer}`)).to.equal(404);
      expect(await status(`team/other/blobs/${digestOf('loose')}`)).to.equal(200);
    });

    it('gives ranges of a blob, also of one that is made as it is read', async () => {
      await start();
      registry.content.blobs.set(digestOf('big'), generatedBody(10_000_000_000, Buffer.from('0123456789')));
      const get = async (range: string): Promise<Response> =>
        await fetch(`${registry.url}/v2/team/app/blobs/${digestOf('big')}`, { headers: { range } });
      const middle = await get('bytes=9000000003-9000000006');
      expect(middle.status).to.equal(206);
      expect(middle.headers.get('content-range')).to.equal('bytes 9000000003-9000000006/10000000000');
      expect(await middle.text()).to.equal('3456');
      expect(await (await get('bytes=9999999998-')).text()).to.equal('89');
      expect(await (await get('bytes=-3')).text()).to.equal('789');
      const beyond = await get('bytes=10000000000-');
      expect(beyond.status).to.equal(416);
      expect(beyond.headers.get('content-range')).to.equal('bytes */10000000000');
    });

    it('lists tags page by page', async () => {
      await start({ tagsPerPage: 2 });
      for (const tag of ['c', 'a', 'b', 'd']) repositoryOf(registry.content, 'team/app').tags.set(tag, image.manifest);
      const pages: string[][] = [];
      for (let next: string | undefined = '/v2/team/app/tags/list?n=10'; next !== undefined;) {
        const response: Response = await fetch(registry.url + next);
        pages.push(((await response.json()) as { tags: string[] }).tags);
        next = /^<(.*)>; rel="next"$/.exec(response.headers.get('link') ?? '')?.[1];
      }
      expect(pages).to.deep.equal([['1.0', 'a'], ['b', 'c'], ['d']]);
    });

    it('records each request and how much it was sent', async () => {
      await start();
      await (await fetch(`${registry.url}/v2/team/app/blobs/${image.config}?a=b`)).arrayBuffer();
      expect(registry.requests).to.have.length(1);
      const [request] = registry.requests;
      expect(request).to.include({ method: 'GET', path: `/v2/team/app/blobs/${image.config}`, status: 200 });
      expect(request?.query.get('a')).to.equal('b');
      expect(request?.bytesSent).to.equal((registry.content.blobs.get(image.config) as Buffer).length);
      expect(registry).to.include({ active: 0, peakActive: 1 });
    });
  });

  describe('writing', () => {
    const bytes = Buffer.from('some bytes to upload');
    const digest = digestOf(bytes);

    async function begin(query = ''): Promise<Response> {
      return await fetch(`${registry.url}/v2/team/new/blobs/uploads/${query}`, { method: 'POST' });
    }

    function locationOf(response: Response, query = ''): string {
      const location = new URL(response.headers.get('location') ?? '', registry.url);
      return location.href + query;
    }

    it('takes a blob in one PUT, in one POST, and in chunks', async () => {
      await start();
      const put = await fetch(locationOf(await begin(), `&digest=${digest}`), { method: 'PUT', body: bytes });
      expect(put.status).to.equal(201);
      expect(locationOf(put)).to.equal(`${registry.url}/v2/team/new/blobs/${digest}`);
      registry.content.blobs.clear();
      const post = await fetch(`${registry.url}/v2/team/new/blobs/uploads/?digest=${digest}`, {
        method: 'POST',
        body: bytes,
      });
      expect(post.status).to.equal(201);
      registry.content.blobs.clear();
      let answer = await begin();
      for (const start of [0, 10]) {
        const headers = { 'content-range': `${start}-${start + 9}` };
        answer = await fetch(locationOf(answer), { method: 'PATCH', headers, body: bytes.subarray(start, start + 10) });
        expect(answer.status).to.equal(202);
        expect(answer.headers.get('range')).to.equal(`0-${start + 9}`);
      }
      expect((await fetch(locationOf(answer, `&digest=${digest}`), { method: 'PUT' })).status).to.equal(201);
      expect(registry.content.blobs.get(digest)).to.deep.equal(bytes);
      expect(registry.uploads.count).to.equal(0);
    });

    it('refuses a blob with another digest', async () => {
      await start();
      const put = await fetch(locationOf(await begin(), `&digest=${digest}`), { method: 'PUT', body: 'others' });
      expect(put.status).to.equal(400);
      expect(await errorCode(put)).to.equal('DIGEST_INVALID');
      expect(registry.content.blobs.has(digest)).to.equal(false);
    });

    it('refuses a chunk out of order and a location that is not the last', async () => {
      await start({ relativeLocations: true });
      const first = await begin();
      expect(first.headers.get('location')).to.match(/^\/v2\//);
      const skipped = { method: 'PATCH', headers: { 'content-range': '5-9' }, body: 'bytes' };
      expect((await fetch(locationOf(first), skipped)).status).to.equal(416);
      expect((await fetch(locationOf(first), { method: 'PATCH', body: 'bytes' })).status).to.equal(202);
      const stale = await fetch(locationOf(first), { method: 'PATCH', body: 'bytes' });
      expect(await errorCode(stale)).to.equal('BLOB_UPLOAD_INVALID');
      const where = await fetch(locationOf(first));
      expect(where.status).to.equal(204);
      expect(where.headers.get('range')).to.equal('0-4');
      expect((await fetch(locationOf(where), { method: 'DELETE' })).status).to.equal(204);
      expect(await errorCode(await fetch(locationOf(where)))).to.equal('BLOB_UPLOAD_UNKNOWN');
    });

    it('mounts a blob of another repository, or begins an upload if it cannot', async () => {
      await start();
      expect((await begin(`?mount=${image.layer}&from=team/app`)).status).to.equal(201);
      expect(registry.hasBlob('team/new', image.layer)).to.equal(true);
      expect((await begin(`?mount=${image.config}&from=team/none`)).status).to.equal(202);
      registry.fault(/mount=/, { ignoreMount: true });
      expect((await begin(`?mount=${image.config}&from=team/app`)).status).to.equal(202);
      expect(registry.hasBlob('team/new', image.config)).to.equal(false);
    });

    it('refuses a manifest before its blobs, and one with another digest', async () => {
      await start();
      const manifest = repositoryOf(registry.content, 'team/app').manifests.get(image.manifest);
      const body = manifest?.bytes.toString() ?? '';
      const put = async (reference: string): Promise<Response> =>
        await fetch(`${registry.url}/v2/team/new/manifests/${reference}`, {
          method: 'PUT',
          headers: { 'content-type': mediaTypes.ociManifest },
          body,
        });
      expect(await errorCode(await put('1.0'))).to.equal('MANIFEST_BLOB_UNKNOWN');
      for (const blob of [image.layer, image.config]) await begin(`?mount=${blob}&from=team/app`);
      expect(await errorCode(await put(digestOf('other')))).to.equal('DIGEST_INVALID');
      expect((await put('1.0')).headers.get('docker-content-digest')).to.equal(image.manifest);
      expect(registry.content.repositories.get('team/new')?.tags.get('1.0')).to.equal(image.manifest);
      const list = JSON.stringify({ schemaVersion: 2, manifests: [{ digest: digestOf('absent') }] });
      const refused = await fetch(`${registry.url}/v2/team/new/manifests/list`, {
        method: 'PUT',
        headers: { 'content-type': mediaTypes.ociIndex },
        body: list,
      });
      expect(await errorCode(refused)).to.equal('MANIFEST_BLOB_UNKNOWN');
    });

    it('refuses a manifest of another media type, and one that is too large', async () => {
      await start();
      const mediaType = mediaTypes.ociIndex;
      for (const stated of [{ mediaType: mediaTypes.ociManifest }, { annotations: { a: 'x'.repeat(5_000_000) } }]) {
        const body = JSON.stringify({ schemaVersion: 2, mediaType, manifests: [], ...stated });
        const url = `${registry.url}/v2/team/new/manifests/1.0`;
        const refused = await fetch(url, { method: 'PUT', headers: { 'content-type': mediaType }, body });
        expect(await errorCode(refused)).to.equal('MANIFEST_INVALID');
      }
    });
  });

  describe('logins', () => {
    const get = async (authorization?: string, method = 'GET'): Promise<Response> =>
      await fetch(`${registry.url}/v2/team/app/manifests/1.0`, {
        method,
        headers: authorization === undefined ? {} : { authorization },
      });

    it('asks for a name and a password', async () => {
      await start({ basic: { ...login, anonymousPull: true } });
      expect((await get()).status).to.equal(200);
      expect((await get(undefined, 'PUT')).status).to.equal(401);
      const refused = await get(`Basic ${Buffer.from('user:wrong').toString('base64')}`);
      expect(refused.status).to.equal(401);
      expect(refused.headers.get('www-authenticate')).to.match(/^Basic realm=/);
      expect((await get(`Basic ${Buffer.from('user:secret').toString('base64')}`)).status).to.equal(200);
    });

    it('asks for a token, and takes it until it is revoked', async () => {
      await start({ bearer: login });
      const challenge = (await get()).headers.get('www-authenticate');
      expect(challenge).to.equal(
        `Bearer realm="${registry.tokens?.url ?? ''}/token",service="registry.test",scope="repository:team/app:pull"`,
      );
      const token = registry.tokens?.issue('user', ['repository:team/app:pull']) ?? '';
      expect((await get(`Bearer ${token}`)).status).to.equal(200);
      expect((await get(`Bearer ${token}`, 'PUT')).headers.get('www-authenticate')).to.include('"insufficient_scope"');
      registry.revokeTokens();
      expect((await get(`Bearer ${token}`)).headers.get('www-authenticate')).to.include('"invalid_token"');
    });
  });
});
