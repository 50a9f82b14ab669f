import { once } from 'node:events';
import { copyFile, mkdir, mkdtemp, readFile, rm, stat, truncate, unlink, writeFile } from 'node:fs/promises';
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import { expect } from 'chai';
import { openComplete } from '../../../lib/bundle/open/deltaBase.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { Archive } from '../../../lib/content/archive/archive.ts';
import type { Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { messageOf } from '../../../lib/errors.ts';
import { mirrorStateFile } from '../../../lib/node/machine/host.ts';
import { serveBaseBlobs } from '../../../lib/node/transfer/baseBlobs.ts';
import { baseBlobsPath, replicaPath } from '../../../lib/node/transfer/replica.ts';
import { runMirrorServer } from '../../../lib/update/mirror/mirrorServer.ts';
import { gatherFacts } from '../../../lib/update/record/bundleFacts.ts';
import { readMirrorState, type MirrorState } from '../../../lib/update/record/nodeReport.ts';
import { failReads } from '../../fakes/files/failingDisk.ts';
import { makeAuthority, type Authority, type Certificate } from '../../support/certificates.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { retainCopy } from '../../support/content/retainedFolder.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { extraImage } from '../../support/release/extraImage.ts';
import { streamRelease } from '../../support/release/streams.ts';
import { until } from '../../support/until.ts';

const name = 'v2/openshift-release-dev/ocp-release';

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly serial: string;
}

interface Manifest {
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
}

/** A running mirror server with the folder of its bundles. */
interface Mirror extends AsyncDisposable {
  readonly folder: string;
  readonly lines: readonly string[];
  readonly url: string;
  /** Sends a request. Nothing reads the answer. */
  ask(path: string, headers?: Record<string, string>): ClientRequest;
  get(path: string, headers?: Record<string, string>): Promise<Answer>;
  /** Waits until an answer fulfils a condition. */
  until(path: string, condition: (answer: Answer) => boolean): Promise<Answer>;
}

function serialOf(socket: Pick<TLSSocket, 'getPeerCertificate'> | Socket): string {
  return 'getPeerCertificate' in socket ? socket.getPeerCertificate().serialNumber : '';
}

describe('runMirrorServer', () => {
  let authority: Authority;
  let certificate: Certificate;
  let made: TestBundle;
  let whole: Digest;

  before(async () => {
    authority = await makeAuthority();
    certificate = await authority.issue();
    made = await makeBundle({ layerSize: 50_000 });
    whole = digestOf(await readFile(made.path));
  });
  after(async () => {
    await made.remove();
    await authority.remove();
  });

  async function write({ certificate: cert, key }: Certificate, folder: string): Promise<void> {
    await writeFile(join(folder, 'tls.crt'), cert);
    await writeFile(join(folder, 'tls.key'), key);
  }

  async function start(
    prepare: (folder: string) => Promise<unknown>,
    scrubInterval?: number,
    interval = 20,
  ): Promise<Mirror> {
    const folder = await mkdtemp(join(tmpdir(), 'mirror-'));
    await mkdir(dirname(join(folder, mirrorStateFile)), { recursive: true });
    await prepare(folder);
    await write(certificate, folder);
    const end = new AbortController();
    const context = { ...makeContext(), signal: end.signal };
    let done: Promise<void> | undefined;
    const url = await new Promise<string>((resolve, reject) => {
      const stateFile = join(folder, mirrorStateFile);
      const options = {
        host: '127.0.0.1',
        port: 0,
        folder,
        certificates: folder,
        interval,
        scrubInterval,
        stateFile,
      };
      done = runMirrorServer({ ...options, onListening: resolve }, context);
      done.catch(reject);
    });
    const agent = new Agent({ ca: authority.certificate });
    const ask: Mirror['ask'] = (path, headers = {}) => request(`${url}/${path}`, { agent, headers }).end();
    const get: Mirror['get'] = async (path, headers) => {
      const [response] = (await once(ask(path, headers), 'response')) as [IncomingMessage];
      const { statusCode: status = 0, headers: answered } = response;
      return { serial: serialOf(response.socket), status, headers: answered, body: await text(response) };
    };
    return {
      folder,
      lines: context.lines,
      url,
      ask,
      get,
      until: async (path, condition) => {
        for (;;) {
          const answer = await get(path);
          if (condition(answer)) return answer;
          await sleep(10);
        }
      },
      [Symbol.asyncDispose]: async () => {
        end.abort();
        agent.destroy();
        await done;
        await rm(folder, { recursive: true, force: true });
      },
    };
  }

  async function firstLayer(mirror: Mirror): Promise<Digest> {
    const { body } = await mirror.get(`${name}/manifests/${made.release.digest}`);
    const { layers } = JSON.parse(body) as { layers: { digest: Digest }[] };
    return layers[0]?.digest ?? expect.fail('the release has no layer');
  }

  const fail = (asked: Promise<Answer>): Promise<Answer | string> => asked.catch(messageOf);

  it('serves images by digest under any repository, and their signatures', async () => {
    await using mirror = await start((folder) => retainCopy(folder, made.path, whole));
    const { digest } = made.release;
    expect((await mirror.get('v2/')).status).to.equal(200);
    const manifest = await mirror.get(`${name}/manifests/${digest}`);
    expect(digestOf(Buffer.from(manifest.body))).to.equal(digest);
    expect((await mirror.get(`v2/another/name/manifests/${digest}`)).status).to.equal(200);
    expect((await mirror.get(`${name}/manifests/${attachmentTag(digest)}`)).status).to.equal(200);
    const { layers } = JSON.parse(manifest.body) as { layers: { digest: Digest; size: number }[] };
    const [layer] = layers;
    if (!layer) throw new Error('no layer');
    const full = await mirror.get(`${name}/blobs/${layer.digest}`);
    expect(full).to.deep.include({ status: 200 });
    expect(full.headers['content-length']).to.equal(String(layer.size));
    const part = await mirror.get(`${name}/blobs/${layer.digest}`, { range: 'bytes=10-' });
    expect(part).to.deep.include({ status: 206 });
  });

  describe('with metadata only', () => {
    const controller = { 'user-agent': 'containers/5.35.0 (github.com/containers/image)' };
    const systems = ['rhel-coreos', 'rhel-coreos-extensions', 'rhel-coreos-10'];
    let own: TestBundle;
    let mirror: Mirror;
    /** The answers to the machine config controller by path, and those to container runtimes by client and path. */
    const answers = new Map<string, Answer>();
    const refusals = new Map<string, Answer>();
    let state: MirrorState | undefined;
    let afterChange: Answer;

    before(async () => {
      own = await makeBundle({ ...streamRelease, layerSize: 50_000 });
      mirror = await start(retainMetadata);
      const { release } = own;
      for (const component of systems) {
        const { config, layers } = JSON.parse((await read(manifestOf(component))).body) as Manifest;
        await read(`blobs/${config.digest}`);
        await read(`blobs/${layers[0]?.digest}`);
      }
      const { layers } = JSON.parse((await read(`manifests/${release.digest}`)).body) as Manifest;
      await read(`blobs/${layers.at(-1)?.digest}`);
      await read(manifestOf('cluster-version-operator'));
      const host = { root: mirror.folder, environment: {} };
      await until(async () => (await readMirrorState(host))?.requests === 4);
      state = await readMirrorState(host);
      await writeFile(join(mirror.folder, 'content'), 'all');
      await until(async () => (await readMirrorState(host))?.versions.length === 0);
      afterChange = await mirror.get(`${name}/manifests/${release.digest}`, controller);
    });
    after(async () => {
      await mirror[Symbol.asyncDispose]();
      await own.remove();
    });

    /** Retains the facts of the bundle, without its copy. */
    async function retainMetadata(folder: string): Promise<void> {
      await using bundle = await openBundle(own.path, makeContext());
      const digest = digestOf(await readFile(own.path));
      const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
      const trust = { keyrings: [own.keyFile], fingerprints: [own.key.fingerprint], allowUnsigned: false, fetchFile };
      const file = replicaPath(folder, digest).replace(/tar$/, 'json');
      await gatherFacts(bundle, digest, file, trust, makeContext());
      await writeFile(join(folder, 'content'), 'metadata');
    }

    /** Reads a path as container runtimes, and then as the machine config controller. */
    async function read(path: string): Promise<Answer> {
      for (const client of ['cri-o/1.36.3', 'skopeo/1.18.0'])
        refusals.set(`${client} ${path}`, await mirror.get(`${name}/${path}`, { 'user-agent': client }));
      const answer = await mirror.get(`${name}/${path}`, controller);
      answers.set(path, answer);
      return answer;
    }

    const manifestOf = (component: string): string => `manifests/${own.release.images.get(component)?.digest}`;
    const parse = (path: string): Manifest => JSON.parse(answers.get(path)?.body ?? '') as Manifest;

    it('serves the configurations of operating system images to the machine config controller', () => {
      for (const component of systems) {
        expect(answers.get(manifestOf(component))?.status).to.equal(200);
        const { digest } = parse(manifestOf(component)).config;
        expect(digestOf(Buffer.from(answers.get(`blobs/${digest}`)?.body ?? ''))).to.equal(digest);
      }
    });

    it('serves no layers of operating system images', () => {
      const layers = systems.map((component) => parse(manifestOf(component)).layers[0]?.digest);
      expect(layers.map((digest) => answers.get(`blobs/${digest}`)?.status)).to.deep.equal([404, 404, 404]);
    });

    it('serves the manifests in the release image', () => {
      const layer = parse(`manifests/${own.release.digest}`).layers.at(-1);
      const { headers } = answers.get(`blobs/${layer?.digest}`) ?? expect.fail();
      expect(headers['content-length']).to.equal(String(layer?.size));
    });

    it('serves no other image', () => {
      expect(answers.get(manifestOf('cluster-version-operator'))?.status).to.equal(404);
    });

    it('tells container runtimes that it has no images', () => {
      const message = 'this mirror has no images: it keeps metadata for the machine config controller';
      const refusal = JSON.stringify({ errors: [{ code: 'NAME_UNKNOWN', message }] });
      expect(refusals.size).to.equal(answers.size * 2);
      for (const [what, { status, body }] of refusals) expect([status, body], what).to.deep.equal([404, refusal]);
    });

    it('logs once that container runtimes get no image', () => {
      expect(mirror.lines.filter((line) => line.includes('gets no image'))).to.have.length(1);
    });

    it('reports that it has the metadata of the release', () => {
      const { versions, content, lacking } = state ?? expect.fail();
      expect([versions, content, lacking]).to.deep.equal([['5.0.1'], 'metadata', []]);
    });

    it('serves nothing of it once it is to keep images', () => {
      expect(afterChange.status).to.equal(404);
    });
  });

  it('answers 404 for tags, missing signatures and unknown digests, and lists nothing', async () => {
    await using mirror = await start((folder) => retainCopy(folder, made.path, whole));
    const other = digestOf('another');
    for (const reference of ['4.12.4-x86_64', attachmentTag(other), other]) {
      const { status, body } = await mirror.get(`${name}/manifests/${reference}`);
      expect([reference, status]).to.deep.equal([reference, 404]);
      expect(body).to.include('MANIFEST_UNKNOWN');
    }
    expect((await mirror.get('v2/_catalog')).body).to.equal('{"repositories":[]}');
    expect((await mirror.get(`${name}/tags/list`)).body).to.include('"tags":[]');
    expect(mirror.lines.filter((line) => line.includes('not retained'))).to.have.length(2);
  });

  it('serves an image of a delta bundle only with its base', async () => {
    await using later = await makeBundle({ layerSize: 50_000, version: '4.12.5', common: ['cli'], base: made.path });
    const { digest } = later.release;
    const path = `${name}/manifests/${digest}`;
    const missing = [...later.release.images.values()].map((image) => image.digest);
    const delta = digestOf(await readFile(later.path));
    await using mirror = await start((folder) => retainCopy(folder, later.path, delta));
    const before = await Promise.all(missing.map((each) => mirror.get(`${name}/manifests/${each}`)));
    expect(before.map(({ status }) => status)).to.include(404);
    const file = baseBlobsPath(mirror.folder, delta);
    await using complete = await openComplete(later.path, { bases: [made.path] }, makeContext());
    const served = await serveBaseBlobs(complete);
    if (!served) throw new Error('no base');
    const parts: Buffer[] = [];
    for await (const chunk of served.chunks(0, served.size)) parts.push(Buffer.from(chunk));
    await writeFile(file, Buffer.concat(parts));
    await mirror.until(path, ({ status }) => status === 200);
    const after = await Promise.all(missing.map((each) => mirror.get(`${name}/manifests/${each}`)));
    expect(new Set(after.map(({ status }) => status))).to.deep.equal(new Set([200]));
  });

  it('serves the other bundles if one cannot be read, and logs that once', async () => {
    await using mirror = await start(() => Promise.resolve());
    const truncated = replicaPath(mirror.folder, digestOf('truncated'));
    await writeFile(truncated, (await readFile(made.path)).subarray(0, 2000));
    await writeFile(truncated.replace(/tar$/, 'json'), '{}');
    await retainCopy(mirror.folder, made.path, whole);
    const path = `${name}/manifests/${made.release.digest}`;
    const { serial } = await mirror.until(path, ({ status }) => status === 200);
    // The certificate is read after the folder.
    await write(await authority.issue(), mirror.folder);
    await mirror.until(path, (answer) => answer.serial !== serial);
    expect(mirror.lines.filter((line) => line.includes('is not served'))).to.have.length(1);
  });

  it('withdraws every image with a corrupt blob, and never sends all of the blob', async () => {
    const { digest } = made.release;
    await using mirror = await start((folder) => retainCopy(folder, made.path, whole));
    const { body } = await mirror.get(`${name}/manifests/${digest}`);
    const [layer] = (JSON.parse(body) as { layers: { digest: Digest }[] }).layers;
    if (!layer) throw new Error('no layer');
    await copyFile(made.path, `${made.path}.intact`);
    await made.damage(layer.digest);
    await using damaged = await start((folder) => retainCopy(folder, made.path, whole));
    await copyFile(`${made.path}.intact`, made.path);
    const blob = await damaged.get(`${name}/blobs/${layer.digest}`).catch((error: unknown) => messageOf(error));
    expect(blob).to.be.oneOf(['aborted', 'socket hang up']);
    expect((await damaged.get(`${name}/manifests/${digest}`)).status).to.equal(404);
    expect((await damaged.get(`${name}/blobs/${layer.digest}`)).status).to.equal(404);
    // Another bundle does not make it whole.
    await using other = await makeBundle({ layerSize: 40_000, version: '4.12.6' });
    await retainCopy(damaged.folder, other.path, digestOf(await readFile(other.path)));
    await damaged.until(`${name}/manifests/${other.release.digest}`, ({ status }) => status === 200);
    expect((await damaged.get(`${name}/manifests/${digest}`)).status).to.equal(404);
  });

  it('withdraws an image that cannot be read, reports it, and gives it again when it can be read', async function () {
    if (process.platform !== 'linux') this.skip();
    const { digest } = made.release;
    await using mirror = await start((folder) => retainCopy(folder, made.path, whole), 50);
    const layer = await firstLayer(mirror);
    const copy = replicaPath(mirror.folder, whole);
    const archive = await Archive.open(copy, makeContext());
    const entry = [...archive.entries].find(([path]) => path.endsWith(layer))?.[1] ?? expect.fail('no layer');
    await archive.close();
    {
      using _failing = await failReads(copy, entry);
      expect(await fail(mirror.get(`${name}/blobs/${layer}`))).to.be.oneOf(['aborted', 'socket hang up']);
      expect((await mirror.get(`${name}/manifests/${digest}`)).status).to.equal(404);
      const said = mirror.lines.find((line) => line.startsWith(`warn: ${layer} cannot be served: `));
      expect(said)
        .to.include('EIO')
        .and.to.match(/; withdrawn with it: sha256:/);
    }
    await mirror.until(`${name}/manifests/${digest}`, ({ status }) => status === 200);
  });

  it('withdraws an image whose copy became shorter, before it looks at the folder again', async () => {
    await using mirror = await start((folder) => retainCopy(folder, made.path, whole), undefined, 3_600_000);
    const layer = await firstLayer(mirror);
    const { digest } = made.release;
    await truncate(replicaPath(mirror.folder, whole), 1024);
    expect(await fail(mirror.get(`${name}/blobs/${layer}`))).to.be.oneOf(['aborted', 'socket hang up']);
    expect((await mirror.get(`${name}/manifests/${digest}`)).status).to.equal(404);
  });

  it('finds a corrupt blob by itself', async () => {
    const { digest } = made.release;
    await copyFile(made.path, `${made.path}.intact`);
    await using mirror = await start(async (folder) => {
      await retainCopy(folder, made.path, whole);
    }, 50);
    const { body } = await mirror.get(`${name}/manifests/${digest}`);
    const { config } = JSON.parse(body) as { config: { digest: Digest } };
    await made.damage(config.digest);
    await using damaged = await start((folder) => retainCopy(folder, made.path, whole), 50);
    await copyFile(`${made.path}.intact`, made.path);
    await damaged.until(`${name}/manifests/${digest}`, ({ status }) => status === 404);
  });

  it('follows added and removed bundles, and a renewed certificate', async () => {
    await using mirror = await start(() => Promise.resolve());
    const path = `${name}/manifests/${made.release.digest}`;
    expect((await mirror.get(path)).status).to.equal(404);
    const copy = await retainCopy(mirror.folder, made.path, whole);
    const { serial } = await mirror.until(path, ({ status }) => status === 200);
    await write(await authority.issue(), mirror.folder);
    await mirror.until(path, (answer) => answer.serial !== serial);
    await unlink(copy);
    await mirror.until(path, ({ status }) => status === 404);
    expect(mirror.lines.filter((line) => line.includes('was renewed'))).to.have.length(1);
  });

  it('writes which images it gave, and which it lacks until they are retained', async () => {
    await using mirror = await start(() => Promise.resolve());
    const { digest } = made.release;
    const untilState = async (wanted: MirrorState): Promise<void> => {
      const host = { root: mirror.folder, environment: {} };
      const port = Number(new URL(mirror.url).port);
      await until(async () => isDeepStrictEqual(await readMirrorState(host), { port, ...wanted }));
    };
    await mirror.get(`${name}/manifests/${digest}`, { 'user-agent': 'cri-o/1.33' });
    await mirror.get(`${name}/manifests/${digestOf('another')}`, { 'user-agent': 'oc-disconnected' });
    const image = `openshift-release-dev/ocp-release@${digest}`;
    await untilState({ versions: [], requests: 0, lacking: [image] });
    await retainCopy(mirror.folder, made.path, whole);
    const { version } = made.release;
    const retained = { versions: [version], sizes: { [version]: (await stat(made.path)).size } };
    await untilState({ ...retained, requests: 0, lacking: [] });
    await mirror.get(`${name}/manifests/${digest}`);
    await untilState({ ...retained, requests: 1, lacking: [] });
  });

  it('serves on if the state cannot be written, warns once, and writes it later', async () => {
    const obstruct = async (folder: string): Promise<void> => {
      // The folder alone would be created again.
      const place = dirname(join(folder, mirrorStateFile));
      await rm(place, { recursive: true });
      await writeFile(place, '');
    };
    await using mirror = await start(async (folder) => {
      await retainCopy(folder, made.path, whole);
      await obstruct(folder);
    });
    const path = `${name}/manifests/${made.release.digest}`;
    const count = (words: string): number => mirror.lines.filter((line) => line.includes(words)).length;
    const logged = async (words: string, times: number): Promise<void> => {
      await until(() => count(words) >= times);
    };
    await logged('state.json', 1);
    await rm(dirname(join(mirror.folder, mirrorStateFile)));
    await until(() => readMirrorState({ root: mirror.folder, environment: {} }));

    await obstruct(mirror.folder);
    expect((await mirror.get(path)).status).to.equal(200);
    // Between two of these changes, a write of another state fails.
    for (const times of [1, 2]) {
      await rm(replicaPath(mirror.folder, whole));
      await logged('is no longer served', times);
      await retainCopy(mirror.folder, made.path, whole);
      await logged('is served', times + 1);
    }
    await mirror.until(path, ({ status }) => status === 200);
    expect(count('state.json')).to.equal(2);
  });

  it('sends eight blobs at a time, and manifests meanwhile', async () => {
    const image = extraImage({ layers: 1, layerSize: 8_000_000 });
    await using large = await makeBundle({ components: ['cli'], extraImages: [image] });
    const digest = digestOf(await readFile(large.path));
    await using mirror = await start((folder) => retainCopy(folder, large.path, digest));
    const blob = large.result.metadata.blobs.find(({ size }) => size >= 8_000_000);
    const path = `${name}/blobs/${blob?.digest ?? ''}`;
    const begun = Array.from({ length: 8 }, () => mirror.ask(path));
    await Promise.all(begun.map((asked) => once(asked, 'response')));
    const ninth = mirror.ask(path);
    const answered = once(ninth, 'response');
    let isAnswered = false;
    void answered.then(() => (isAnswered = true));
    await once(ninth, 'finish');
    expect((await mirror.get(`${name}/manifests/${large.release.digest}`)).status).to.equal(200);
    expect(isAnswered).to.equal(false);
    begun.shift()?.destroy();
    await answered;
    for (const asked of [...begun, ninth]) asked.destroy();
  });

  it('accepts 64 connections from one address', async () => {
    await using mirror = await start(() => Promise.resolve());
    const { port, hostname } = new URL(mirror.url);
    const sockets = Array.from({ length: 64 }, () => connect(Number(port), hostname));
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    expect(await mirror.get('v2/').catch(() => undefined)).to.equal(undefined);
    expect(mirror.lines.join('\n')).to.include('was refused: 64 of that address are open');
    for (const socket of sockets) socket.destroy();
  });

  it('states that it keeps metadata, also without a bundle', async () => {
    await using mirror = await start((folder) => writeFile(join(folder, 'content'), 'metadata'));
    const host = { root: mirror.folder, environment: {} };
    await until(() => readMirrorState(host));
    expect((await readMirrorState(host))?.content).to.equal('metadata');
  });

  it('leaves no state of a former process if another program has its port', async () => {
    await using other = await start(() => Promise.resolve());
    const folder = await mkdtemp(join(tmpdir(), 'mirror-'));
    const stateFile = join(folder, 'state.json');
    await writeFile(stateFile, '{}');
    await write(certificate, folder);
    const options = { host: '127.0.0.1', port: Number(new URL(other.url).port), interval: 10, stateFile };
    const running = runMirrorServer({ ...options, folder, certificates: folder }, makeContext());
    expect((await failureOf(running, 'busy')).hint).to.include('install the mirrors with another port');
    expect(await stat(stateFile).catch(() => undefined)).to.equal(undefined);
    await rm(folder, { recursive: true });
  });

  it('ends without an error if it is stopped while it reads the bundles', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'mirror-'));
    try {
      await retainCopy(folder, made.path, whole);
      const context = makeContext();
      context.interrupt();
      const certificates = folder;
      await runMirrorServer({ host: '127.0.0.1', port: 0, folder, certificates, interval: 1 }, context);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('serves no bundle whose signature was not verified', async () => {
    await using mirror = await start((folder) => copyFile(made.path, replicaPath(folder, whole)));
    expect((await mirror.get(`${name}/manifests/${made.release.digest}`)).status).to.equal(404);
  });
});
