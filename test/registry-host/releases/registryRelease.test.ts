import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { mediaTypes } from '../../../lib/content/oci/descriptor.ts';
import { parseDigest } from '../../../lib/content/oci/reference.ts';
import type { RegistryRelease } from '../../../lib/registry-host/releases/images.ts';
import { openRegistryRelease, formatReleaseList } from '../../../lib/registry-host/releases/registryRelease.ts';
import { makeRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { openProvider } from '../../support/content/provider.ts';
import { makeContext } from '../../support/context.ts';
import { startDockerRegistry, type DockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer, runSuccessfully, type RunResult } from '../../support/peers.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';

const executable = fileURLToPath(new URL('../../../cmd/oc-adm_mirror_registry.ts', import.meta.url));

describe('openRegistryRelease', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  const context = makeContext();
  let folder: string;
  let bundle: { path: string; quay: string };
  let registry: DockerRegistry;
  let repository: string;
  let pushed: RunResult;
  let opened = 0;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'release-'));
    bundle = await makeRegistryBundle(folder);
    registry = await startDockerRegistry();
    repository = `${registry.host}/openshift/mirror-registry-bundle`;
    pushed = await call('push', bundle.path, `--to=${repository}`, '--insecure', '-o', 'json');
  });
  after(async () => {
    // There are none if the suite is skipped.
    await (registry as DockerRegistry | undefined)?.stop();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  const call = (...args: string[]): Promise<Execution> => executeProgram(executable, ['bundle', ...args]);

  const open = (text: string): Promise<RegistryRelease> =>
    openRegistryRelease(
      text,
      async (reference) => {
        const origin = openProvider(context);
        opened += 1;
        const close = async (): Promise<void> => {
          opened -= 1;
          await origin[Symbol.asyncDispose]();
        };
        return { content: origin.sourceOf(reference), close };
      },
      context,
    );

  it('takes a word without a host for a file', async () => {
    for (const text of ['mirror-registry', 'mirror-registry.tgz', 'files/bundle', 'a.b/release.tar.gz']) {
      const { message } = await failureOf(open(text));
      expect(message, text).to.match(/there is no /);
    }
    expect(opened).to.equal(0);
  });

  it('closes a registry that has no such release', async () => {
    await failureOf(open(`${repository}:9.9.9`), 'not-found');
    expect(opened).to.equal(0);
  });

  it('finds pushed images by tag, by digest, and the newest without either', async () => {
    expect(pushed.code, pushed.stderr).to.equal(0);
    const { image, digest } = JSON.parse(pushed.stdout) as { image: string; digest: string };
    expect(image).to.equal(`${repository}:2.0.11`);
    const older = await call('push', bundle.path, `--to=${repository}:2.0.9`, '--insecure');
    expect([older.code, older.stdout.includes('mirror-registry-bundle:2.0.9')], older.stderr).to.deep.equal([0, true]);
    for (const text of [image, repository, `docker://${repository}@${digest}`, bundle.path]) {
      await using release = await open(text);
      expect(release).to.include({ version: '2.0.11', arch: 'x86_64' });
      expect(release.images.quay.image).to.equal(bundle.quay);
      expect(release.images.quay.id).to.match(/^[0-9a-f]{64}$/);
    }
    await using release = await open(repository);
    await release.check(parseDigest(digest), context);
    await failureOf(release.check(parseDigest(`sha256:${'0'.repeat(64)}`), context), 'digest-mismatch');
  });

  it('finds it in another tool’s copy, and reports an archive without one', async () => {
    const layout = join(folder, 'layout');
    const copy = ['copy', '--all', '--insecure-policy', '--src-tls-verify=false', '--dest-tls-verify=false'];
    await runSuccessfully('skopeo', [...copy, `docker://${repository}:2.0.11`, `oci:${layout}`]);
    const mirror = `${registry.host}/mirror/bundle:2.0.11`;
    await runSuccessfully('skopeo', [...copy, `oci:${layout}`, `docker://${mirror}`]);
    for (const text of [layout, `oci:${layout}`, mirror]) {
      const { stdout, stderr } = await call('inspect', text, '--insecure');
      expect(stdout, stderr).to.include(bundle.quay).and.to.include('2.0.11 for x86_64');
    }
    for (const [text, field] of [
      [mirror, 'id'],
      [bundle.path, 'complete'],
    ] as const) {
      const { images } = JSON.parse((await call('inspect', text, '--insecure', '-o', 'json')).stdout) as {
        images: Record<string, unknown>[];
      };
      const quay = images.find(({ name }) => name === 'quay');
      expect(quay).to.include({ image: bundle.quay }).and.to.have.property(field);
    }

    const single = `${registry.host}/mirror/bundle:3.0.0`;
    await runSuccessfully('skopeo', [
      ...copy.filter((word) => word !== '--all'),
      `docker://${mirror}`,
      `docker://${single}`,
    ]);
    expect((await failureOf(open(single), 'invalid-bundle')).message).to.include('a single image');
    await failureOf(open(`${registry.host}/openshift/nothing`), 'not-found');
    const missing = await failureOf(open('./no-such.tar'), 'not-found');
    expect(missing.message).to.include('no-such.tar');
  });

  it('is written as a list of Docker’s where the images are, which registries of that time want', () => {
    const digest = parseDigest(`sha256:${'a'.repeat(64)}`);
    const image = { image: 'a/b:1', digest };
    const list = { version: '2.0.11', arch: 'x86_64', images: { quay: image, redis: image, pause: image } } as const;
    for (const [mediaType, expected] of [
      [mediaTypes.dockerManifest, mediaTypes.dockerList],
      [mediaTypes.ociManifest, mediaTypes.ociIndex],
    ] as const) {
      const manifests = new Map([[digest, { mediaType, digest, size: 5 }]]);
      expect(formatReleaseList(list, manifests).descriptor.mediaType).to.equal(expected);
    }
  });
});
