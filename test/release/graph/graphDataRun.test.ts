import { chmod, mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { copyImages } from '../../../lib/content/copy/copy.ts';
import type { Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, hexOf } from '../../../lib/content/oci/reference.ts';
import { openSession, type RegistrySession } from '../../../lib/content/registry/session.ts';
import { ImageGraphReader } from '../../../lib/content/store/imageGraph.ts';
import { buildGraphDataImage } from '../../../lib/release/graph/graphArchive.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeBlob, type TestLayer } from '../../support/content/layers.ts';
import { makeContext } from '../../support/context.ts';
import { requireAccount, requirePeer, run, runSuccessfully, type RunResult } from '../../support/peers.ts';
import { makeArchive, soundFiles } from '../../support/release/graphArchive.ts';

const digest = digestOf('a release');
const architecture = process.arch === 'x64' ? 'amd64' : process.arch;
// As in OpenShift: a user that the image does not know.
const user = '1000650000:0';

/** A layer with this machine's bash and cp, and the libraries that they need. */
async function makeShellLayer(folder: string): Promise<TestLayer> {
  const programs = ['/bin/bash', '/bin/cp'];
  const libraries = await runSuccessfully('ldd', programs);
  const paths = [...programs, ...[...libraries.matchAll(/^\s*(?:\S+ => )?(\/\S+) \(/gm)].map(([, path = '']) => path)];
  const file = join(folder, 'shell.tar');
  await runSuccessfully('tar', ['-chf', file, '-C', '/', ...new Set(paths.map((path) => path.slice(1)))]);
  const tar = await readFile(file);
  return { ...makeBlob(gzipSync(tar, { level: 1 })), diffId: digestOf(tar) };
}

describe('a graph-data image', function () {
  requirePeer(this, 'skopeo', 'tar');
  let folder: string;
  let registry: TestRegistry;
  let session: RegistrySession;
  let root: Descriptor;
  let image: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'graph-data-run-'));
    const content = new TestContent();
    const base = content.addImage('release', { architecture, layers: [await makeShellLayer(folder)] });
    registry = await startRegistry({ content: content.content });
    const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
    const context = makeContext();
    session = openSession(settings, { authorize: () => Promise.resolve(undefined) }, context);
    const options = {
      archive: gzipSync(makeArchive(soundFiles)),
      signatures: new Map([[digest, [Buffer.from('signature')]]]),
      base: { source: session.repository({ registry: registry.host, repository: 'release' }), root: base },
      fetchFile: () => Promise.resolve(undefined),
    };
    const built = await buildGraphDataImage(options, context);
    root = built.root;
    const destination = session.repository({ registry: registry.host, repository: 'graph-data' });
    const graph = await new ImageGraphReader().read(built.source, root.digest);
    await copyImages([{ name: 'graph data', ...built, ...graph, tags: ['latest'] }], destination, {}, context);
    await destination.close();
    image = `${registry.host}/graph-data@${root.digest}`;
  });
  after(async () => {
    session.close();
    await registry.stop();
    await rm(folder, { recursive: true });
  });

  it('is copied by skopeo, to an image of the same digest and back', async () => {
    const copy = `dir:${join(folder, 'copy')}`;
    await runSuccessfully('skopeo', [
      'copy',
      '--src-tls-verify=false',
      '--preserve-digests',
      `docker://${image}`,
      copy,
    ]);
    const manifest = await readFile(join(folder, 'copy', 'manifest.json'));
    expect(digestOf(manifest)).to.equal(root.digest);
    const target = `docker://${registry.host}/again:latest`;
    await runSuccessfully('skopeo', ['copy', '--dest-tls-verify=false', '--preserve-digests', copy, target]);
    expect(registry.content.repositories.get('again')?.tags.get('latest')).to.equal(root.digest);
    for (const { digest: blob } of (JSON.parse(manifest.toString()) as { layers: Descriptor[] }).layers) {
      gunzipSync(await readFile(join(folder, 'copy', hexOf(blob))));
    }
  });

  it('copies its data to the folder that the update service reads, as any user', async function () {
    requirePeer(this, 'podman', 'buildah');
    requireAccount(this);
    const volume = join(folder, 'volume');
    await mkdir(volume);
    await chmod(volume, 0o777);
    const outcome = await runImage(image, volume, folder);
    if (outcome.code !== 0 && /crun|runc|cgroup|unshare|clone|user namespace/i.test(outcome.stderr)) {
      console.error(`SKIPPED “${this.test?.fullTitle() ?? ''}”: no container can run here: ${outcome.stderr.trim()}`);
      this.skip();
    }
    expect(outcome.code, outcome.stderr).to.equal(0);
    expect(await readdir(volume)).to.have.members([
      'LICENSE',
      'blocked-edges',
      'channels',
      'raw',
      'signatures',
      'version',
    ]);
    expect(await readFile(join(volume, 'version'), 'utf8')).to.equal('1.1.0\n');
    const file = join(volume, 'signatures', 'sha256', hexOf(digest), 'signature-1');
    expect(await readFile(file, 'utf8')).to.equal('signature');
  });
});

/** Runs an image's own command with podman or, if that cannot create containers, with buildah in a chroot. */
async function runImage(image: string, volume: string, folder: string): Promise<RunResult> {
  const store = ['--root', join(folder, 'store'), '--runroot', join(folder, 'run'), '--storage-driver', 'vfs'];
  const mount = ['--user', user, '--volume', `${volume}:/var/lib/cincinnati/graph-data`];
  const podman = ['run', '--rm', '--tls-verify=false', '--network=none', ...mount, image];
  const outcome = await run('podman', [...store, ...podman]);
  if (outcome.code === 0) return outcome;
  const buildah = (...args: string[]): Promise<string> => runSuccessfully('buildah', [...store, ...args]);
  const container = (await buildah('from', '--tls-verify=false', image)).trim();
  const { OCIv1 } = JSON.parse(await buildah('inspect', container)) as { OCIv1: { config: { Cmd: string[] } } };
  return run('buildah', [...store, 'run', '--isolation=chroot', ...mount, container, '--', ...OCIv1.config.Cmd]);
}
