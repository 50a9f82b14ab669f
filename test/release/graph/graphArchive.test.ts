import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { gunzipSync, gzipSync } from 'node:zlib';
import { expect } from 'chai';
import type { FetchFile } from '../../../lib/content/http/fetchFile.ts';
import { parseManifest, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, hexOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { openSession, type RegistrySession } from '../../../lib/content/registry/session.ts';
import type { DerivedImage } from '../../../lib/content/store/derivedImage.ts';
import { readContent } from '../../../lib/content/store/store.ts';
import { PluginError } from '../../../lib/errors.ts';
import { buildGraphDataImage } from '../../../lib/release/graph/graphArchive.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { listTar } from '../../support/archive/listTar.ts';
import { makeHeader } from '../../support/archive/tarBytes.ts';
import { TestContent, type ImageFormat } from '../../support/content/image.ts';
import { makeFileLayer, makeNoiseLayer } from '../../support/content/layers.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeArchive, soundFiles, type ArchiveEntry } from '../../support/release/graphArchive.ts';

const digest = digestOf('a release');
const folder = 'var/lib/cincinnati-graph-data';
const layers = [makeNoiseLayer('base', 10_000), makeFileLayer(new Map([['usr/bin/bash', 'bash']]))];

describe('buildGraphDataImage', () => {
  const content = new TestContent();
  const addBase = (architecture: string, format: ImageFormat = 'docker'): Descriptor =>
    content.addImage('release', { architecture, layers, format, labels: { title: 'base' } });
  const base = addBase('arm64');
  let registry: TestRegistry;
  let session: RegistrySession;

  before(async () => {
    registry = await startRegistry({ content: content.content });
    const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
    session = openSession(settings, { authorize: () => Promise.resolve(undefined) }, makeContext());
  });
  after(async () => {
    session.close();
    await registry.stop();
  });

  interface Given {
    root?: Descriptor;
    signatures?: ReadonlyMap<Digest, Buffer[]>;
    fetchFile?: FetchFile;
    context?: ReturnType<typeof makeContext>;
  }

  const build = (archive: Buffer | string, given: Given = {}): Promise<DerivedImage> => {
    const { root = base, signatures = new Map(), fetchFile = () => Promise.resolve(undefined) } = given;
    const source = session.repository({ registry: registry.host, repository: 'release' });
    return buildGraphDataImage(
      { archive, signatures, base: { source, root }, fetchFile },
      given.context ?? makeContext(),
    );
  };
  const readJson = async ({ source }: DerivedImage, descriptor: Descriptor): Promise<Record<string, unknown>> =>
    JSON.parse((await readContent(source, descriptor)).toString()) as Record<string, unknown>;
  const readLayer = async ({ source, root }: DerivedImage): Promise<Buffer> => {
    const [, , own] = parseManifest(await readContent(source, root), 'the image').layers;
    return gunzipSync(await readContent(source, own!));
  };

  it('puts the data on top of the base, and a command that copies it', async () => {
    const image = await build(makeArchive(soundFiles));
    const manifest = parseManifest(await readContent(image.source, image.root), 'the image');
    expect(image.root.mediaType).to.equal(base.mediaType);
    expect(manifest.layers.slice(0, 2).map((layer) => layer.digest)).to.deep.equal(layers.map((layer) => layer.digest));
    expect(manifest.layers[2]?.mediaType).to.equal(manifest.layers[1]?.mediaType);
    const config = await readJson(image, manifest.config!);
    expect(config).to.deep.include({ architecture: 'arm64', os: 'linux' });
    expect(config['config']).to.deep.equal({
      Env: ['PATH=/usr/bin:/bin'],
      Cmd: ['/bin/bash', '-c', `exec cp -rp /${folder}/* /var/lib/cincinnati/graph-data`],
    });
    const diffIds = [...layers.map((layer) => layer.diffId), digestOf(await readLayer(image))];
    expect(config['rootfs']).to.deep.equal({ type: 'layers', diff_ids: diffIds });
    expect(config['history']).to.have.length(3);
  });

  it('has a layer with the files that the update service reads', async () => {
    const entries = await listTar(await readLayer(await build(makeArchive(soundFiles))));
    expect(entries.map(({ path }) => path)).to.deep.equal([
      'var/',
      'var/lib/',
      `${folder}/`,
      `${folder}/LICENSE`,
      `${folder}/blocked-edges/`,
      `${folder}/blocked-edges/4.12.4.yaml`,
      `${folder}/channels/`,
      `${folder}/channels/stable-4.12.yaml`,
      `${folder}/raw/`,
      `${folder}/raw/metadata.json`,
      `${folder}/version`,
    ]);
    expect(entries.at(-1)?.text).to.equal('1.1.0\n');
  });

  it('has the same bytes for any order, owners, times, compression and outer folder of the archive', async () => {
    const { root } = await build(makeArchive(soundFiles));
    const turned = makeArchive(soundFiles.toReversed(), new Date(0));
    const dotted = makeArchive([
      { path: './', type: 'Directory' },
      ...soundFiles.map((entry) => ({ ...entry, path: `./${entry.path}` })),
    ]);
    const inFolder = makeArchive([
      { path: 'cincinnati-graph-data-master/', type: 'Directory' },
      ...soundFiles.map((entry) => ({ ...entry, path: `cincinnati-graph-data-master/${entry.path}` })),
    ]);
    for (const archive of [turned, gzipSync(turned), dotted, inFolder]) {
      expect((await build(archive)).root.digest).to.equal(root.digest);
    }
  });

  it('has a layer of the same digest on every machine', async () => {
    const { root, source } = await build(makeArchive(soundFiles));
    const { layers: all } = parseManifest(await readContent(source, root), 'the image');
    expect(all[2]?.digest).to.equal('sha256:9ac298cfd7d6b8583a7da73bf9ac3fe0490a17eed81a6ae6bf1efaddea384e87');
  });

  it('has the signatures in the folder that the update service serves, and keeps existing ones', async () => {
    const own = `signatures/sha256/${hexOf(digest)}/signature-1`;
    const signatures = new Map([[digest, [Buffer.from('first'), Buffer.from('second')]]]);
    const entriesOf = async (archive: Buffer): Promise<Record<string, string>> =>
      Object.fromEntries(
        (await listTar(await readLayer(await build(archive, { signatures }))))
          .filter(({ path }) => path.includes('/signature-'))
          .map(({ path, text }) => [path.slice(-1), text]),
      );
    expect(await entriesOf(makeArchive(soundFiles))).to.deep.equal({ 1: 'first', 2: 'second' });
    const first = makeArchive([...soundFiles, { path: own, text: 'first' }]);
    expect(await entriesOf(first)).to.deep.equal({ 1: 'first', 2: 'second' });
    const other = makeArchive([...soundFiles, { path: own, text: 'other' }]);
    expect(await entriesOf(other)).to.deep.equal({ 1: 'other', 2: 'first', 3: 'second' });
  });

  it('names the image of a release to give instead of an unusable base', async () => {
    const root = content.addList('release', []);
    const { message, hint } = await failureOf(build(makeArchive(soundFiles), { root }), 'invalid-manifest');
    expect(message).to.match(/^the graph-data image cannot be built on /);
    expect(hint).to.contain('cli');
  });

  describe('the archive', () => {
    let place: string;

    before(async () => {
      place = await mkdtemp(join(tmpdir(), 'graph-data-'));
    });
    after(() => rm(place, { recursive: true }));

    it('comes from a path, a file URL or an http URL', async () => {
      const archive = gzipSync(makeArchive(soundFiles));
      const file = join(place, 'graph data.tar.gz');
      await writeFile(file, archive);
      const { root } = await build(archive);
      const asked: string[] = [];
      const fetchFile: FetchFile = async (url, limit) => {
        asked.push(`${url.href} ${limit}`);
        return archive;
      };
      for (const location of [file, pathToFileURL(file).href, 'http://mirror.example/graph-data?x=1']) {
        expect((await build(location, { fetchFile })).root.digest, location).to.equal(root.digest);
      }
      expect(asked).to.deep.equal([`http://mirror.example/graph-data?x=1 ${64 * 1024 * 1024}`]);
    });

    it('reports an invalid location without its secrets', async () => {
      await failureOf(build(join(place, 'absent.tar')), 'not-readable');
      await failureOf(build('ftp://mirror.example/x'), 'usage');
      await failureOf(build('file://relative/x'), 'usage');
      const secret = 'http://user:password@mirror.example/graph-data?signature=secret';
      for (const fetchFile of [async () => undefined, async () => Buffer.from('<html>')]) {
        const failed = build(secret, { fetchFile });
        const code = (await fetchFile()) ? 'invalid-file' : 'not-found';
        const { message } = await failureOf(failed, code);
        expect(message)
          .to.contain('http://mirror.example/graph-data')
          .and.not.match(/password|secret/);
      }
      const fetchFile = (): Promise<undefined> => Promise.reject(new PluginError('unreachable', 'no'));
      await failureOf(build(secret, { fetchFile }), 'unreachable');
    });

    it('must hold a version of schema 1 and channels', async () => {
      const without = (name: string): ArchiveEntry[] => soundFiles.filter(({ path }) => !path.startsWith(name));
      await failureOf(build(makeArchive(without('version'))), 'invalid-file');
      await failureOf(build(makeArchive(without('channels'))), 'invalid-file');
      for (const text of ['2.0.0', '1', '', 'one', '1.1.0\n1.2.0']) {
        await failureOf(build(makeArchive([...without('version'), { path: 'version', text }])), 'invalid-file');
      }
      const context = makeContext();
      await build(makeArchive(without('blocked-edges').filter(({ path }) => !path.startsWith('raw'))), { context });
      expect(context.lines.filter((line) => line.startsWith('warn')).join()).to.match(/blocked-edges.*raw\/metadata/);
    });

    it('of the repository has more, which is skipped: its root has a symbolic link', async () => {
      const { root } = await build(makeArchive(soundFiles));
      const others: ArchiveEntry[] = [
        { path: '.claude/settings.json', text: '{}' },
        { path: 'AGENTS.md', text: '# Agents\n' },
        { path: 'CLAUDE.md', type: 'SymbolicLink', linkpath: 'AGENTS.md' },
        { path: 'hack/version', text: '2.0.0\n' },
        { path: 'hack/channels', type: 'SymbolicLink', linkpath: '../channels' },
      ];
      const entries = [...others, ...soundFiles].toSorted((a, b) => (a.path < b.path ? -1 : 1));
      for (const top of ['', 'cincinnati-graph-data-731d0424/']) {
        const archive = makeArchive(entries.map((entry) => ({ ...entry, path: `${top}${entry.path}` })));
        expect((await build(gzipSync(archive))).root.digest, top).to.equal(root.digest);
      }
      const linked = [...entries, { path: 'channels/link', type: 'SymbolicLink', linkpath: '../AGENTS.md' } as const];
      const inFolder = linked.map((entry) => ({ ...entry, path: `top/${entry.path}` }));
      for (const archive of [makeArchive(linked), makeArchive(inFolder)])
        await failureOf(build(archive), 'invalid-file');
    });

    it('may hold nothing but files and folders below its root', async () => {
      const hostile: ArchiveEntry[] = [
        { path: '../escape', text: 'x' },
        { path: '/etc/passwd', text: 'x' },
        { path: 'channels/../../escape', text: 'x' },
        { path: 'channels//x', text: 'x' },
        { path: 'channels/..', type: 'Directory' },
        { path: 'a\\..\\b', text: 'x' },
        { path: 'a\nb', text: 'x' },
        { path: 'channels/link', type: 'SymbolicLink', linkpath: '/etc' },
        { path: 'blocked-edges/link', type: 'Link', linkpath: 'version' },
        { path: 'raw', type: 'SymbolicLink', linkpath: 'hack' },
        { path: 'raw/device', type: 'CharacterDevice' },
        { path: 'signatures/pipe', type: 'FIFO' },
        { path: 'version', type: 'SymbolicLink', linkpath: 'hack' },
        { path: 'version', text: '1.2.0' },
        { path: 'version/x', text: 'x' },
        { path: 'a/'.repeat(20) + 'b', text: 'x' },
      ];
      for (const entry of hostile) {
        for (const entries of [
          [...soundFiles, entry],
          [entry, ...soundFiles],
        ]) {
          const { message } = await failureOf(build(makeArchive(entries)), 'invalid-file');
          expect(message, entry.path).to.match(/^the given archive is not a graph-data archive: /);
          expect(message).not.to.match(/[\n\r]/);
        }
      }
    });

    it('must be a sound tar, packed once or not at all', async () => {
      const sound = makeArchive(soundFiles);
      const damaged = Buffer.from(sound);
      damaged.writeUInt8(7, 600);
      const packed = gzipSync(sound);
      const bad = [
        Buffer.alloc(0),
        Buffer.alloc(1),
        Buffer.alloc(2048),
        Buffer.from('no tar'.repeat(1000)),
        gzipSync(packed),
        packed.subarray(0, packed.length - 20),
        Buffer.concat([packed.subarray(0, 100), Buffer.alloc(50), packed.subarray(150)]),
        sound.subarray(0, sound.length - 1024 - 600),
        makeArchive([...soundFiles, { path: 'large', size: 10_000_000 }]),
      ];
      for (const [index, archive] of bad.entries()) {
        await failureOf(build(archive), 'invalid-file').catch((error: unknown) => {
          throw new Error(`archive ${index}`, { cause: error });
        });
      }
    });

    it('is not unpacked beyond any sound size', async () => {
      const zeros = gzipSync(Buffer.alloc(60 * 1024 * 1024), { level: 1 });
      const large = Buffer.concat([gzipSync(makeArchive(soundFiles)), ...Array<Buffer>(5).fill(zeros)]);
      await failureOf(build(large), 'too-large');
      const many = Buffer.alloc(512 * 50_001, makeHeader({ name: 'channels/', type: '5' }));
      await failureOf(build(Buffer.concat([many, makeArchive(soundFiles)])), 'too-large');
    });
  });
});
