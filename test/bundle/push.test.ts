import { copyFile, mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { openBundle } from '../../lib/bundle/open/open.ts';
import { checkSigned } from '../../lib/bundle/open/signedBundle.ts';
import { pushBundle, type PushResult } from '../../lib/bundle/push.ts';
import { isDigest, type Digest } from '../../lib/content/oci/reference.ts';
import { Credentials } from '../../lib/content/registry/auth/credentials.ts';
import { MirrorSets } from '../../lib/content/registry/mirrors.ts';
import { Registries } from '../../lib/content/registry/registries.ts';
import { ImageGraphReader } from '../../lib/content/store/imageGraph.ts';
import type { Context } from '../../lib/context.ts';
import { startRegistry, type TestRegistry } from '../fakes/registry/registry.ts';
import { repack } from '../support/archive/repack.ts';
import { makeAuthority, type Authority } from '../support/certificates.ts';
import { flipByte, makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { manifestsOf, pullByPeer, sizesOf } from '../support/content/peerPull.ts';
import { openProvider } from '../support/content/provider.ts';
import { makeContext } from '../support/context.ts';
import { basicUser, startDockerRegistry, type DockerRegistry } from '../support/dockerRegistry.ts';
import { requirePeer, runSuccessfully, type RunResult } from '../support/peers.ts';
import { executeProgram, type Execution } from '../support/program/execution.ts';
import { failureOf } from '../support/program/failure.ts';
import { attachmentTag } from '../support/release/attachments.ts';
import { extraImage } from '../support/release/extraImage.ts';
import { acceptUnsigned } from '../support/release/trust.ts';

const program = fileURLToPath(new URL('../../cmd/oc-adm_upgrade_bundle.ts', import.meta.url));
/** One layer of each image, and one that all share. */
const small = { layers: 1, baseLayers: 1 };
const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };

/** Pushes a bundle, or a mirror directory, to a registry without a login. */
async function push(
  path: string,
  registry: string,
  repository: string,
  context: Context = makeContext(),
  mountFrom: readonly string[] = [],
): Promise<PushResult> {
  const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
  await using registries = new Registries({ settings, credentials, mirrors: new MirrorSets() }, context);
  await using bundle = await openBundle(path, context);
  const signed = await checkSigned(bundle, acceptUnsigned, context);
  return await pushBundle(
    bundle,
    signed,
    registries.repository({ registry, repository }),
    { concurrency: 6, mountFrom },
    context,
  );
}

function runPush(...args: string[]): Promise<Execution> {
  return executeProgram(program, ['push', ...args]);
}

function trustingOptions({ keyFile, key }: TestBundle): string[] {
  return [`--signature-keyring=${keyFile}`, `--trust-fingerprint=${key.fingerprint}`];
}

async function skopeo(...args: string[]): Promise<string> {
  return runSuccessfully('skopeo', args);
}

async function tagsOf(repository: string): Promise<string[]> {
  const { Tags } = JSON.parse(await skopeo('list-tags', '--tls-verify=false', `docker://${repository}`)) as {
    Tags: string[];
  };
  return Tags;
}

/** Returns a layer that only one component has. */
function ownLayerOf({ release }: TestBundle, component: string): Digest {
  const needs = new Map([...release.images].map(([name, { digest }]) => [name, layersOf(release, digest)]));
  const others = [...needs].filter(([name]) => name !== component).flatMap(([, digests]) => digests);
  const own = needs.get(component)?.find((digest) => !others.includes(digest));
  if (!own) throw new Error(`${component} shares all its layers`);
  return own;
}

function layersOf({ content, componentRepository }: TestBundle['release'], digest: Digest): Digest[] {
  const { bytes } = content.repositories.get(componentRepository)?.manifests.get(digest) ?? {};
  const { layers } = JSON.parse(bytes?.toString() ?? '{}') as { layers: { digest: string }[] };
  return layers.map((layer) => layer.digest).filter((each) => isDigest(each));
}

describe('pushBundle', () => {
  describe('to a docker-registry', function () {
    requirePeer(this, 'docker-registry', 'skopeo');
    const extra = extraImage();
    let bundle: TestBundle;
    let registry: DockerRegistry;
    let first: PushResult;
    before(async () => {
      [bundle, registry] = await Promise.all([
        makeBundle({ ...small, extraImages: [extra] }),
        startDockerRegistry({ inMemory: true }),
      ]);
      first = await push(bundle.path, registry.host, 'site/release');
    });
    after(async () => {
      await registry.stop();
      await bundle.remove();
    });

    it('puts every image with its tags into one repository', async () => {
      const { release } = bundle;
      const result = first;
      const place = `${registry.host}/site/release`;
      expect(result).to.deep.include({ release: `${place}@${release.digest}`, images: 6, attachments: 4, tags: 10 });
      expect(result.blobs).to.deep.equal({ uploaded: bundle.result.metadata.blobs.length, mounted: 0, skipped: 0 });
      expect(result.bytes).to.equal(bundle.result.metadata.blobs.reduce((sum, { size }) => sum + size, 0));

      const tags = await tagsOf(place);
      const components = [...release.images.keys()].map((name) => `${release.tag}-${name}`);
      expect(tags)
        .to.have.length(10)
        .and.include.members([release.tag, ...components, attachmentTag(release.digest)]);
      await mkdir(join(bundle.folder, 'copies'), { recursive: true });
      for (const tag of tags) {
        const target = join(bundle.folder, 'copies', tag);
        await skopeo(
          'copy',
          '--all',
          '--preserve-digests',
          '--src-tls-verify=false',
          `docker://${place}:${tag}`,
          `dir:${target}`,
        );
      }
      expect(await skopeo('inspect', '--tls-verify=false', `docker://${place}@${extra.digest}`)).to.include('amd64');
    });

    it('brings attestations, SBOMs and referrers, which verify and inspect list', async () => {
      await using rich = await makeBundle({
        version: '4.12.5',
        supplements: true,
        components: 1,
        attachments: () => true,
      });
      const result = await push(rich.path, registry.host, 'rich/release');
      expect(result).to.deep.include({ images: 2, attachments: 8, tags: 10 });
      const expected = [rich.release.digest, ...[...rich.release.images.values()].map(({ digest }) => digest)].flatMap(
        (digest) => ['.sig', '.att', '.sbom', ''].map((suffix) => digest.replace(':', '-') + suffix),
      );
      expect(await tagsOf(`${registry.host}/rich/release`)).to.include.members(expected);
      // This registry has no referrers API.
      const provider = openProvider(makeContext());
      const { digest } = rich.release;
      const source = provider.sourceOf({ registry: registry.host, repository: 'rich/release', digest });
      const { attachments } = await new ImageGraphReader().read(source, digest);
      await provider[Symbol.asyncDispose]();
      expect([...attachments.keys()]).to.deep.equal(expected.slice(0, 4));
      const verified = await executeProgram(program, ['verify', rich.path, ...trustingOptions(rich)]);
      expect(verified.stdout).to.include('2 sigstore signatures, 2 attestations, 2 SBOMs, 2 lists of referrers');
      const inspected = await executeProgram(program, ['inspect', await rich.unpack()]);
      expect(inspected.stdout).to.match(/Attached +2 sigstore signatures, 2 attestations, 2 SBOMs/);
    });

    it('pushes images and lists that oci-registry-client pulls unchanged', async () => {
      await using multi = await makeBundle({ ...small, arch: 'multi', components: 2, extraImages: [extra] });
      await push(multi.path, registry.host, 'multi/release');
      const pulled = await pullByPeer(`${registry.url}/multi/release`, [
        ...manifestsOf(multi.release),
        ...manifestsOf(extra),
      ]);
      expect(pulled).to.deep.equal({ ...sizesOf(multi.release), ...sizesOf(extra) });
    });

    it('uploads nothing when everything is there', async () => {
      const { blobs, bytes } = await push(bundle.path, registry.host, 'site/release');
      expect(blobs).to.deep.equal({ uploaded: 0, mounted: 0, skipped: bundle.result.metadata.blobs.length });
      expect(bytes).to.equal(0);
    });

    it('takes blobs over from another repository', async () => {
      const { blobs } = await push(bundle.path, registry.host, 'other/release', makeContext(), ['site/release']);
      expect(blobs).to.deep.equal({ uploaded: 0, mounted: bundle.result.metadata.blobs.length, skipped: 0 });
      await skopeo('inspect', '--tls-verify=false', `docker://${registry.host}/other/release:${bundle.release.tag}`);
    });

    it('pushes a mirror directory as it does a bundle, without metadata.json too', async () => {
      const folder = await bundle.unpack();
      const result = await push(folder, registry.host, 'unpacked/release');
      expect(result).to.deep.include({ images: 6, tags: 10 });
      await rm(join(folder, 'metadata.json'));
      const context = makeContext();
      expect(await push(folder, registry.host, 'foreign/release', context)).to.deep.include({
        images: 5,
        attachments: 4,
      });
      const warnings = context.lines.filter((line) => line.startsWith('warn') && line.includes('left out'));
      expect(warnings).to.have.length(1);
      expect(warnings[0]).to.match(/extra-site-tool.*left out/);
    });

    it('pushes a bundle that is behind a link, as devices are', async () => {
      const link = join(bundle.folder, 'by-label');
      await symlink(bundle.path, link);
      expect((await push(link, registry.host, 'site/release')).blobs).to.include({ uploaded: 0 });
    });

    it('pushes lists with all that is in them', async () => {
      await using multi = await makeBundle({ ...small, arch: 'multi', listOfOne: 'machine-os-content' });
      const { release } = multi;
      await push(multi.path, registry.host, 'multi/release');
      const place = `${registry.host}/multi/release`;
      const target = join(multi.folder, 'copy');
      await skopeo(
        'copy',
        '--all',
        '--preserve-digests',
        '--src-tls-verify=false',
        `docker://${place}:${release.tag}`,
        `dir:${target}`,
      );
      expect((await readdir(target)).filter((name) => name.endsWith('.manifest.json'))).to.have.length(2);
      const attached = release.children.map((child) => attachmentTag(child));
      expect(await tagsOf(place)).to.include.members([attachmentTag(release.digest), ...attached]);
    });
  });

  describe('to a registry in this process', () => {
    let bundle: TestBundle;
    let registry: TestRegistry;
    before(async () => {
      bundle = await makeBundle(small);
    });
    beforeEach(async () => {
      registry = await startRegistry();
    });
    afterEach(() => registry.stop());
    after(() => bundle.remove());
    const pushed = () => registry.content.repositories.get('a/b');

    it('reports its plan and its result', async () => {
      const context = makeContext();
      await push(bundle.path, registry.host, 'a/b', context);
      const total = bundle.result.metadata.blobs.reduce((sum, { size }) => sum + size, 0);
      expect(context.events.find(({ kind }) => kind === 'plan')).to.deep.equal({
        kind: 'plan',
        images: 5,
        blobs: bundle.result.metadata.blobs.length,
        bytes: total,
        present: 0,
      });
      const images = context.events.flatMap((event) => (event.kind === 'image' ? [event.name] : []));
      expect(images).to.have.members(['release', ...bundle.release.images.keys()]);
      const again = makeContext();
      await push(bundle.path, registry.host, 'a/b', again);
      const plans = again.events.filter((event) => event.kind === 'plan');
      expect(plans.at(-1)).to.include({ present: total, bytes: total });
    });

    it('tells of an image as soon as it is there', async () => {
      await using large = await makeBundle({ components: 40, attachments: () => false });
      const context = makeContext();
      await push(large.path, registry.host, 'a/b', context);
      const first = context.events.findIndex(({ kind }) => kind === 'image');
      const left = context.events.slice(first).filter(({ kind }) => kind === 'bytes');
      expect(left.length).to.be.greaterThan(20);
    });

    for (const [status, code, why] of [
      [405, 'UNSUPPORTED', 'The operation is unsupported.'],
      [403, 'DENIED', 'requested access to the resource is denied'],
      [404, 'NAME_UNKNOWN', 'the repository does not exist'],
      [400, 'NAME_INVALID', 'invalid repository name'],
    ] as const) {
      it(`says once that a registry takes no uploads (${status})`, async () => {
        const body = JSON.stringify({ errors: [{ code, message: why }] });
        const refused = registry.fault(/POST .*uploads/, { answer: { status, body } });
        const error = await failureOf(push(bundle.path, registry.host, 'a/b'), 'denied');
        expect(error.message.split('\n')).to.have.length(1);
        expect(error.message).to.contain(registry.host).and.contain(why);
        expect(error.hint).to.be.a('string');
        // One of them asks whether the registry takes a blob with the request that begins its upload.
        expect(refused.hits).to.be.at.most(7);
      });
    }

    it('counts each blob once at a registry without HEAD', async () => {
      registry.fault(/^HEAD/, { answer: { status: 405 } });
      const { blobs } = await push(bundle.path, registry.host, 'site/release');
      expect(blobs).to.deep.equal({ uploaded: bundle.result.metadata.blobs.length, mounted: 0, skipped: 0 });
    });

    it('reports a registry that accepted content and lacks it', async () => {
      const swallowed = [bundle.release.tag, `${bundle.release.tag}-rhel-coreos-8`];
      for (const tag of swallowed) registry.fault(new RegExp(`PUT .*/manifests/${tag}$`), { answer: { status: 201 } });
      const error = await failureOf(push(bundle.path, registry.host, 'a/b'), 'incomplete');
      for (const tag of swallowed) expect(error.message).to.contain(tag);
      expect(error.message).to.contain(registry.host).and.not.contain('machine-os-content');
      expect(error.hint).to.contain('proxy');
    });

    it('tags the release after everything else', async () => {
      await push(bundle.path, registry.host, 'a/b');
      const written = registry.requests.filter(({ method, path }) => method === 'PUT' && path.includes('/manifests/'));
      expect(written.at(-1)?.path).to.equal(`/v2/a/b/manifests/${bundle.release.tag}`);
    });

    it('names an corrupt blob with the image that needs it, and pushes the others', async () => {
      const layer = ownLayerOf(bundle, 'rhel-coreos-8');
      const path = join(bundle.folder, 'corrupt.tar');
      await copyFile(bundle.path, path);
      await flipByte(path, layer);
      const error = await failureOf(push(path, registry.host, 'a/b'), 'digest-mismatch');
      expect(error.message).to.contain(layer).and.contain('rhel-coreos-8').and.contain('source');
      expect(error.hint).to.contain('verify');
      expect(registry.content.blobs.has(layer)).to.equal(false);
      const tags = [...(pushed()?.tags.keys() ?? [])];
      // Clients expect all components of a release tag.
      expect(tags).to.not.include(bundle.release.tag).and.not.include(`${bundle.release.tag}-rhel-coreos-8`);
      expect(tags).to.have.length(7);
    });

    it('pushes each manifest with its first tag, in one request', async () => {
      const { tags } = await push(bundle.path, registry.host, 'a/b');
      const written = registry.requests.filter(({ method, path }) => method === 'PUT' && path.includes('/manifests/'));
      const byDigest = written.filter(({ path }) => path.includes('sha256:'));
      expect(written.length - byDigest.length).to.equal(tags);
      const tagged = new Set(pushed()?.tags.values());
      expect(byDigest.filter(({ path }) => tagged.has(path.split('/').at(-1) as Digest))).to.deep.equal([]);
    });

    it('asks a repository without tags for large layers only, which an earlier run may have left', async () => {
      await using large = await makeBundle({ ...small, layerSize: 70_000 });
      let isRefused = true;
      registry.fault(({ method, path }) => isRefused && method === 'PUT' && path.includes('/manifests/'), {
        answer: { status: 400 },
      });
      await failureOf(push(large.path, registry.host, 'a/b'), 'partial');
      isRefused = false;
      const before = registry.requests.length;
      const { blobs } = await push(large.path, registry.host, 'a/b');
      // All layers except that of the release, which was not reached.
      expect(blobs.skipped).to.equal(5);
      const asked = registry.requests.slice(before).filter(({ method }) => method === 'HEAD');
      const digests = asked.map(({ path }) => path.split('/').at(-1));
      const layers = [...large.release.images.values()].flatMap(({ digest }) => layersOf(large.release, digest));
      expect(digests).to.include.members(layers);
      // The first image is asked for twice, which shows whether the registry can be reached, and the release once.
      expect(asked.filter(({ path }) => path.includes('/manifests/'))).to.have.length(3);
    });

    it('does not blame the bundle if the registry refuses content', async () => {
      registry.fault(/PUT .*\/manifests\/.*machine-os-content/, { answer: { status: 400 } });
      const error = await failureOf(push(bundle.path, registry.host, 'a/b'));
      expect(error.message).to.contain('400');
      expect(error.hint ?? '').not.to.contain('Copy the bundle again');
    });

    it('names corrupt and missing manifests by their images before anything moves', async () => {
      const folder = await bundle.unpack();
      const [corrupt, missing] = ['machine-os-content', 'rhel-coreos-8'].map(
        (name) => bundle.release.images.get(name)?.digest ?? '',
      );
      const manifests = join(folder, 'v2/openshift/release/manifests');
      await rm(join(manifests, missing ?? ''));
      const text = await readFile(join(manifests, corrupt ?? ''), 'utf8');
      await writeFile(join(manifests, corrupt ?? ''), text.replace('"size"', '"Size"'));
      const error = await failureOf(push(folder, registry.host, 'a/b'), 'partial');
      expect(error.message)
        .to.match(/machine-os-content: .* corrupt/)
        .and.match(/rhel-coreos-8: .* has no/);
      expect(error.message).to.contain(corrupt).and.contain(missing);
      expect(registry.requests).to.have.length(0);
    });

    it('refuses a bundle whose tags contradict its metadata', async () => {
      const folder = await bundle.unpack();
      const tag = join(folder, 'v2/openshift/release/manifests', bundle.release.tag);
      await rm(tag);
      await symlink(bundle.release.images.get('machine-os-content')?.digest ?? '', tag);
      const error = await failureOf(push(folder, registry.host, 'a/b'), 'invalid-bundle');
      expect(error.message).to.contain(bundle.release.tag).and.contain(bundle.release.digest);
    });

    it('says once that a registry does not answer', async () => {
      const host = registry.host;
      await registry.stop();
      const error = await failureOf(push(bundle.path, host, 'a/b'), 'unreachable');
      expect(error.message.split('\n')).to.have.length(1);
    });
  });
});

describe('push', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  let bundle: TestBundle;
  let trusting: string[];
  let authority: Authority;
  let registry: DockerRegistry;
  let to: string;
  let first: Execution;
  before(async () => {
    [bundle, authority] = await Promise.all([makeBundle(small), makeAuthority()]);
    trusting = trustingOptions(bundle);
    registry = await startDockerRegistry({
      certificate: await authority.issue(),
      authentication: 'basic',
      inMemory: true,
    });
    for (const password of [basicUser.password, 'wrong-password']) {
      const auth = Buffer.from(`${basicUser.username}:${password}`).toString('base64');
      await writeFile(
        join(bundle.folder, `${password}.json`),
        JSON.stringify({ auths: { [registry.host]: { auth } } }),
      );
    }
    to = `${registry.host}/site/release`;
    first = await runPush(bundle.path, '--to', to, ...loginWith(basicUser.password));
  });
  after(async () => {
    await registry.stop();
    await authority.remove();
    await bundle.remove();
  });
  const loginWith = (password: string): string[] => [
    ...trusting,
    `--pull-secret=${join(bundle.folder, `${password}.json`)}`,
    `--certificate-authority=${authority.certificateFile}`,
  ];

  it('logs in over TLS, and says what to do next', async () => {
    const { code, stdout, stderr } = first;
    expect(stderr).to.equal('');
    expect(code).to.equal(0);
    expect(stdout).to.match(/^Pushed\n/);
    expect(stdout).to.match(new RegExp(`Signed by +Test release key .*${bundle.key.fingerprint}`));
    expect(stdout).to.contain(`oc adm upgrade --allow-explicit-upgrade --to-image=${to}@${bundle.release.digest}`);
    expect(stdout).to.match(new RegExp(`oc adm-upgrade-bundle push ${bundle.path} .* --apply-config\n`));
    expect(stdout).not.to.match(/tar -x|oc apply/);
    const image = JSON.parse(
      await skopeo(
        'inspect',
        '--tls-verify=false',
        `--creds=${basicUser.username}:${basicUser.password}`,
        `docker://${to}:${bundle.release.tag}`,
      ),
    ) as { Digest: string };
    expect(image.Digest).to.equal(bundle.release.digest);
  });

  it('prints JSON', async () => {
    const { stdout } = await runPush(
      bundle.path,
      `--to=${registry.host}/json/release`,
      '-o',
      'json',
      // As users copy it from --to.
      `--mount-from=${to}`,
      ...loginWith(basicUser.password),
    );
    const count = bundle.result.metadata.blobs.length;
    const { blobs, images, release, command, signatures } = JSON.parse(stdout) as PushResult & {
      command: string;
      signatures: { fingerprint: string }[];
    };
    expect(signatures.map(({ fingerprint }) => fingerprint)).to.deep.equal([bundle.key.fingerprint]);
    expect(images).to.equal(5);
    expect(blobs).to.deep.equal({ uploaded: 0, mounted: count, skipped: 0 });
    expect(command).to.contain(release);
  });

  it('says that there was nothing to do', async () => {
    const { code, stdout } = await runPush(bundle.path, `--to=${to}`, ...loginWith(basicUser.password));
    expect(code).to.equal(0);
    expect(stdout).to.match(/^Nothing to do/);
  });

  it('says which registry refuses a password, once and without it', async () => {
    const { code, stderr } = await runPush(bundle.path, '-v', `--to=${to}`, ...loginWith('wrong-password'));
    expect(code).to.equal(1);
    expect(stderr).to.contain(registry.host).and.not.contain('wrong-password:').and.not.contain('could not be copied');
    expect(stderr).to.match(/error \([a-z-]+\): .*(credentials|login|user)/);
  });

  for (const [wrong, why] of [
    ['registry.test/site/release:tag', 'has a tag or a digest'],
    [`registry.test/site/release@sha256:${'0'.repeat(64)}`, 'has a tag or a digest'],
    ['registry.test', 'lacks a repository'],
  ] as const) {
    it(`refuses --to ${wrong.slice(0, 40)}`, async () => {
      const { code, stderr } = await runPush(bundle.path, '--to', wrong);
      expect(code).to.equal(2);
      expect(stderr).to.contain(why);
    });
  }
});

describe('push of untrusted content', () => {
  let signed: TestBundle;
  let registry: TestRegistry;
  before(async () => {
    [signed, registry] = await Promise.all([makeBundle(small), startRegistry()]);
  });
  after(async () => {
    await registry.stop();
    await signed.remove();
  });
  beforeEach(() => {
    registry.requests.length = 0;
  });
  const push = (path: string, ...args: string[]): Promise<RunResult> =>
    runPush(path, `--to=${registry.host}/a/b`, '--insecure', ...args);

  it('refuses an unsigned bundle, unless that is allowed', async () => {
    await using unsigned = await makeBundle({ ...small, signed: false });
    const refused = await push(unsigned.path, ...trustingOptions(unsigned));
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.match(/error \([a-z-]+\): no signature of sha256:.* was found/);
    expect(registry.requests).to.have.length(0);
    const { code, stdout, stderr } = await push(unsigned.path, '--allow-unsigned');
    expect(code).to.equal(0);
    expect(stderr).to.match(/warning: no signature/);
    expect(stdout).to.match(/Signed by +no trusted key/);
  });

  it('refuses a bundle that an unknown key signed before it asks the registry anything', async () => {
    const { code, stderr } = await push(signed.path);
    expect(code).to.equal(1);
    expect(stderr).to.match(
      new RegExp(`^hint: .* Trust ${signed.key.fingerprint} only .*\ntry: --trust-fingerprint$`, 'm'),
    );
    expect(registry.requests).to.have.length(0);
  });

  it('refuses a bundle with wrong metadata of the release', async () => {
    const path = await repack(signed.path, join(signed.folder, 'lying.tar'), (unpacked) => {
      unpacked.metadata = { ...unpacked.metadata, version: '4.99.9' };
    });
    const { code, stderr } = await push(path, ...trustingOptions(signed));
    expect(code).to.equal(1);
    expect(stderr)
      .to.contain('says version 4.99.9, and the release is 4.12.4')
      .and.match(/hint: .*verify/);
    expect(registry.requests).to.have.length(0);
  });
});
