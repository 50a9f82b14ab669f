import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { request as sendRequest, type IncomingHttpHeaders, get, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { mediaTypes } from '../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../lib/content/oci/reference.ts';
import { serveContent, type ContentServer, type ServeOptions } from '../../lib/content/server.ts';
import { Directory } from '../../lib/content/store/directory.ts';
import type { ContentSource, LocalContent } from '../../lib/content/store/store.ts';
import { PluginError } from '../../lib/errors.ts';
import { makeContext, type TestContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';
import { layOutAsOc, makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';
import { contentOf, makeSample, type Sample } from './store/contract.ts';

const run = promisify(execFile);
const repository = 'openshift/release';

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

describe('serveContent', () => {
  let root: string;
  let sample: Sample;
  let source: Directory;
  let server: ContentServer;
  let context: TestContext;

  beforeEach(async () => {
    root = await makeFolder();
    sample = makeSample(repository);
    await layOutAsOc(root, sample.content);
    context = makeContext();
    source = new Directory(root, repository, {}, context);
    server = await serveContent(
      (name) => (name === repository ? source : undefined),
      { repositories: () => [repository, 'another'] },
      context,
    );
  });
  afterEach(async () => {
    await server.close();
    await removeFolder(root);
  });

  const ask = (path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const request = sendRequest({ host: server.host, port: server.port, path, method, headers }, (response) => {
        const { statusCode: status = 0, headers } = response;
        buffer(response).then((body) => {
          resolve({ status, headers, body });
        }, reject);
      });
      request.on('error', reject).end();
    });
  const errorOf = ({ body }: Answer): string => {
    const { errors } = JSON.parse(body.toString()) as { errors: { code: string }[] };
    return errors.map(({ code }) => code).join();
  };

  it('gives a file with a limit of one client to one after the other', async () => {
    await server.close();
    const file = { size: 4, maxClients: 1, chunks: () => Readable.from([Buffer.from('file')]) };
    server = await serveContent(() => undefined, { files: new Map([['/file', file]]) }, context);
    for (const _ of [1, 2, 3]) expect((await ask('/file')).body.toString()).to.equal('file');
  });

  it('listens on the loopback address and a free port unless asked otherwise', () => {
    expect(server.url).to.equal(`http://127.0.0.1:${server.port}`);
    expect(server.port).to.be.above(0);
  });

  it('answers for addresses, localhost and its own names, and for no other host', async () => {
    const own = ['127.0.0.1', '10.1.2.3:5000', '[::1]:5000', 'localhost:80', 'LOCALHOST', 'node-1', 'Node-1.:5000'];
    const named = await serveContent(() => source, { names: ['node-1'] }, context);
    const at = (host: string) =>
      new Promise<number | undefined>((resolve, reject) => {
        const target = { host: '127.0.0.1', port: named.port, path: '/v2/', headers: { host } };
        sendRequest(target, (response) => {
          resolve(response.resume().statusCode);
        })
          .on('error', reject)
          .end();
      });
    try {
      for (const host of own) expect(await at(host), host).to.equal(200);
      const others = ['evil.example', 'node-1.evil.example', 'node-11', '127.0.0.1.evil.example', '[evil', 'a b', '@'];
      for (const host of others) expect(await at(host), host).to.equal(421);
    } finally {
      await named.close();
    }
    const { status, body } = await ask('/v2/', { host: 'evil.example' });
    expect(status).to.equal(421);
    expect(body.toString()).to.contain('does not answer for the host evil.example');
  });

  it('says which version of the protocol it speaks', async () => {
    for (const path of ['/v2/', '/v2']) {
      const { status, headers } = await ask(path);
      expect(status).to.equal(200);
      expect(headers['docker-distribution-api-version']).to.equal('registry/2.0');
    }
  });

  it('gives every manifest by tag and by digest, byte for byte', async () => {
    for (const { descriptor, bytes } of await contentOf(sample)) {
      if (!Object.values<string>(mediaTypes).includes(descriptor.mediaType)) continue;
      const { status, headers, body } = await ask(`/v2/${repository}/manifests/${descriptor.digest}`);
      expect(status).to.equal(200);
      expect(body.equals(bytes)).to.equal(true);
      expect(headers).to.include({ 'content-type': descriptor.mediaType, 'docker-content-digest': descriptor.digest });
    }
    const { headers } = await ask(`/v2/${repository}/manifests/1.0-x86_64`);
    expect(headers['docker-content-digest']).to.equal(sample.image.digest);
  });

  it('answers HEAD as GET, without a body', async () => {
    for (const path of ['manifests/1.0-multi', `blobs/${sample.layer.digest}`]) {
      const [head, get] = [await ask(`/v2/${repository}/${path}`, {}, 'HEAD'), await ask(`/v2/${repository}/${path}`)];
      expect(head.status).to.equal(200);
      expect(head.body).to.have.length(0);
      expect({ ...head.headers, date: '' }).to.deep.equal({ ...get.headers, date: '' });
      expect(Number(head.headers['content-length'])).to.equal(get.body.length);
    }
    expect((await ask(`/v2/${repository}/manifests/nope`, {}, 'HEAD')).status).to.equal(404);
  });

  it('gives blobs whole, the empty one too', async () => {
    for (const { descriptor, bytes } of await contentOf(sample)) {
      const answer = await ask(`/v2/${repository}/blobs/${descriptor.digest.replace(':', '%3A')}`);
      expect(answer.status).to.equal(200);
      expect(answer.body.equals(bytes), descriptor.digest).to.equal(true);
      expect(answer.headers).to.include({ 'accept-ranges': 'bytes', 'docker-content-digest': descriptor.digest });
    }
  });

  it('gives ranges of blobs', async () => {
    const path = `/v2/${repository}/blobs/${sample.layer.digest}`;
    const { size } = sample.layer;
    const { body: whole } = await ask(path);
    const ranges = {
      '0-0': [0, 1],
      '0-99': [0, 100],
      '70000-200000': [70_000, 200_001],
      '100-': [100, size],
      '-5': [size - 5, size],
      '5-999999999': [5, size],
      '0-': [0, size],
    };
    for (const [range, [start = 0, end = 0]] of Object.entries(ranges)) {
      const { status, headers, body } = await ask(path, { range: `bytes=${range}` });
      expect(status, range).to.equal(206);
      expect(body.equals(whole.subarray(start, end)), range).to.equal(true);
      expect(headers['content-range']).to.equal(`bytes ${start}-${end - 1}/${size}`);
    }
  });

  it('answers 416 for a range past the end, and ignores ranges that it need not honour', async () => {
    const path = `/v2/${repository}/blobs/${sample.layer.digest}`;
    const answer = await ask(path, { range: `bytes=${sample.layer.size}-` });
    expect(answer.status).to.equal(416);
    expect(answer.headers['content-range']).to.equal(`bytes */${sample.layer.size}`);
    for (const range of ['bytes=0-1,3-4', 'lines=1-2', 'bytes=5-1', 'bytes=-', 'nonsense']) {
      expect((await ask(path, { range })).status, range).to.equal(200);
    }
  });

  it('lists tags and repositories, in pages on request', async () => {
    expect(JSON.parse((await ask(`/v2/${repository}/tags/list`)).body.toString())).to.deep.equal({
      name: repository,
      tags: ['1.0-multi', '1.0-x86_64'],
    });
    const page = await ask(`/v2/${repository}/tags/list?n=1`);
    expect(JSON.parse(page.body.toString())).to.have.property('tags').that.deep.equals(['1.0-multi']);
    const next = /<([^>]+)>; rel="next"/.exec(String(page.headers['link']))?.[1] ?? '';
    const last = await ask(next);
    expect(JSON.parse(last.body.toString())).to.have.property('tags').that.deep.equals(['1.0-x86_64']);
    expect(last.headers['link']).to.equal(undefined);
    expect(JSON.parse((await ask('/v2/_catalog')).body.toString())).to.deep.equal({
      repositories: ['another', repository],
    });
  });

  it('answers 404 in the protocol’s words for missing content', async () => {
    const nobody = `sha256:${'0'.repeat(64)}`;
    const expected = {
      '/v2/other/manifests/1.0-x86_64': 'NAME_UNKNOWN',
      [`/v2/${repository}/manifests/nope`]: 'MANIFEST_UNKNOWN',
      [`/v2/${repository}/manifests/${nobody}`]: 'MANIFEST_UNKNOWN',
      [`/v2/${repository}/blobs/${nobody}`]: 'BLOB_UNKNOWN',
      [`/v2/${repository}/blobs/1.0-x86_64`]: 'BLOB_UNKNOWN',
      [`/v2/${repository}/referrers/${nobody}`]: 'UNSUPPORTED',
    };
    for (const [path, code] of Object.entries(expected)) {
      const answer = await ask(path);
      expect(answer.status, path).to.equal(404);
      expect(errorOf(answer), path).to.equal(code);
    }
  });

  it('never leaves the repositories, with any path', async () => {
    await writeFile(join(root, 'secret'), 'secret');
    const paths = [
      '/',
      '/v1/',
      '/secret',
      '/v2/../secret',
      '/v2/%2e%2e/%2e%2e/secret',
      `/v2/${repository}/blobs/..%2f..%2f..%2f..%2fsecret`,
      `/v2/${repository}/manifests/..%2f..%2fsecret`,
      `/v2/${repository}/../release/manifests/1.0-x86_64`,
      '/v2/%',
      '/v2/%00/manifests/x',
      '//v2/',
      '/v2/openshift/release/manifests/1.0-x86_64/',
    ];
    for (const path of paths) {
      const { status, body } = await ask(path);
      expect(status, path).to.equal(404);
      expect(body.toString()).to.not.include('secret"');
    }
  });

  it('refuses every way of writing with 405', async () => {
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
      const answer = await ask(`/v2/${repository}/blobs/uploads/`, {}, method);
      expect(answer.status).to.equal(405);
      expect(answer.headers.allow).to.equal('GET, HEAD');
      expect(errorOf(answer)).to.equal('UNSUPPORTED');
    }
  });

  it('breaks off instead of giving a damaged blob whole', async () => {
    for (const bytes of [Buffer.alloc(sample.layer.size, 1)]) {
      await writeFile(join(source.name, 'blobs', sample.layer.digest), bytes);
      const error = await ask(`/v2/${repository}/blobs/${sample.layer.digest}`).catch((error: unknown) => error);
      expect(error).to.be.an('error').with.property('code', 'ECONNRESET');
      expect(context.lines.join('\n')).to.match(/warn: serve: .*corrupt/);
    }
  });

  it('answers 500 for a damaged manifest', async () => {
    await writeFile(join(source.name, 'manifests', sample.image.digest), Buffer.alloc(sample.image.size, ' '));
    expect((await ask(`/v2/${repository}/manifests/1.0-x86_64`)).status).to.equal(500);
  });

  it('serves blobs of a source that knows no sizes, once their manifest was asked for', async () => {
    const plain: ContentSource = {
      name: 'plain',
      resolve: (tag) => source.resolve(tag),
      fetch: (descriptor, start) => source.fetch(descriptor, start),
      exists: (descriptor) => source.exists(descriptor),
      tags: () => source.tags(),
    };
    await server.close();
    server = await serveContent(() => plain, {}, context);
    const path = `/v2/${repository}/blobs/${sample.layer.digest}`;
    expect((await ask(path)).status).to.equal(404);
    await ask(`/v2/${repository}/manifests/1.0-x86_64`);
    expect((await ask(path)).body).to.have.length(sample.layer.size);
  });

  it('reports each request', async () => {
    await ask('/v2/');
    expect(context.lines).to.include('debug: serve: GET /v2/ → 200');
  });

  it('closes at once, in the middle of a request too', async () => {
    const socket = connect(server.port, server.host);
    socket.write(`GET /v2/${repository}/blobs/${sample.layer.digest} HTTP/1.1\r\n`);
    const closed = new Promise((resolve) => socket.on('error', () => undefined).on('close', resolve));
    await ask('/v2/');
    await server.close();
    await closed;
  });

  it('ends when its context is interrupted', async () => {
    context.interrupt();
    const error = await ask('/v2/').catch((error: unknown) => error);
    expect(error).to.be.an('error').with.property('code', 'ECONNREFUSED');
  });

  it('says busy when the port is taken', async () => {
    await failureOf(
      serveContent(() => undefined, { port: server.port }, makeContext()),
      'busy',
    );
  });

  describe('as other programs see it', () => {
    const has = (program: string): boolean => spawnSync(program, ['--version']).status === 0;
    const needs = (program: string): Mocha.Func =>
      function () {
        if (has(program)) return;
        console.warn(`      skipped: ${program} is not here`);
        this.skip();
      };
    let image: string;
    beforeEach(() => (image = `docker://127.0.0.1:${server.port}/${repository}`));

    describe('skopeo', () => {
      before(needs('skopeo'));

      it('inspects an image and lists the tags', async () => {
        const raw = await run('skopeo', ['inspect', '--raw', '--tls-verify=false', `${image}:1.0-multi`]);
        expect(raw.stdout).to.include('manifests');
        const tags = await run('skopeo', ['list-tags', '--tls-verify=false', image]);
        expect(tags.stdout).to.include('1.0-x86_64');
      });

      it('copies images and lists with their digests', async () => {
        for (const [tag, digest] of Object.entries({
          '1.0-x86_64': sample.image.digest,
          '1.0-multi': sample.list.digest,
        })) {
          const options = ['--insecure-policy', 'copy', '--all', '--preserve-digests', '--src-tls-verify=false'];
          await run('skopeo', [...options, `${image}:${tag}`, `dir:${join(root, tag)}`]);
          const { stdout } = await run('skopeo', ['manifest-digest', join(root, tag, 'manifest.json')]);
          expect(stdout.trim()).to.equal(digest);
        }
      });
    });

    describe('curl', () => {
      before(needs('curl'));

      it('resumes an interrupted download', async () => {
        const [file, url] = [join(root, 'part'), `${server.url}/v2/${repository}/blobs/${sample.layer.digest}`];
        const whole = await ask(`/v2/${repository}/blobs/${sample.layer.digest}`);
        await writeFile(file, whole.body.subarray(0, 100_000));
        const { stdout } = await run('curl', [
          '-sS',
          '-C',
          '-',
          '-o',
          file,
          '-w',
          '%{http_code} %{size_download}',
          url,
        ]);
        expect(stdout).to.equal(`206 ${sample.layer.size - 100_000}`);
        const { stdout: sum } = await run('sha256sum', [file]);
        expect(`sha256:${sum.slice(0, 64)}`).to.equal(sample.layer.digest);
      });
    });
  });
});

const bytes = Buffer.from('content of a blob');
const digest = digestOf(bytes);

describe('a server that sends few blobs at a time', () => {
  let server: ContentServer;
  /** Lets the blobs end that are being sent, in the order of their beginning. */
  let releases: (() => void)[];

  const start = async (limits: Partial<NonNullable<ServeOptions['streams']>>): Promise<void> => {
    releases = [];
    const lack = (): Promise<never> => Promise.reject(new PluginError('not-found', 'there is none'));
    const source: ContentSource & LocalContent & { sizeOf(): Promise<number> } = {
      name: 'a blob',
      resolve: lack,
      fetch: lack,
      tags: () => Promise.resolve([]),
      exists: () => Promise.resolve(true),
      sizeOf: () => Promise.resolve(bytes.length),
      async *chunks(_, from, to) {
        yield bytes.subarray(from, from + 1);
        await new Promise<void>((resolve) => releases.push(resolve));
        yield bytes.subarray(from + 1, to);
      },
    };
    const streams = { active: 8, activePerAddress: 8, waiting: 8, patience: 60_000, ...limits };
    server = await serveContent(() => source, { host: '127.0.0.1', streams }, makeContext());
  };
  afterEach(async () => {
    for (const release of releases) release();
    await server.close();
  });
  /** Requests the blob from an address of this machine, and returns the response when its headers have come. */
  const ask = async (localAddress = '127.0.0.1'): Promise<IncomingMessage> => {
    const asked = get(`${server.url}/v2/a/blobs/${digest}`, { localAddress, agent: false });
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    return response;
  };
  const release = (): void => releases.shift()?.();

  it('asks a client to try again if too many wait', async () => {
    await start({ active: 1, waiting: 0 });
    const first = await ask();
    const refused = await ask();
    expect([refused.statusCode, refused.headers['retry-after']]).to.deep.equal([429, '5']);
    expect((await buffer(refused)).toString()).to.include('TOOMANYREQUESTS');
    release();
    expect(await buffer(first)).to.deep.equal(bytes);
    expect((await ask()).statusCode).to.equal(200);
  });

  it('asks a client to try again after a long wait', async () => {
    await start({ active: 1, patience: 1 });
    await ask();
    expect((await ask()).statusCode).to.equal(429);
  });

  it('does not let one address take every turn', async () => {
    await start({ active: 3, activePerAddress: 2 });
    const own = [await ask(), await ask()];
    const third = ask();
    const other = await ask('127.0.0.2');
    expect(other.statusCode).to.equal(200);
    release();
    await Promise.all(own.slice(0, 1).map(buffer));
    expect((await third).statusCode).to.equal(200);
  });
});
