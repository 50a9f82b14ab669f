import { cp, mkdir, readdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { signatureConfigMap } from '../../../lib/config/signatures.ts';
import { hexOf, isDigest, type Digest } from '../../../lib/content/oci/reference.ts';
import { shellWord } from '../../../lib/text.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { blobBytes, openWorkshop, type Workshop } from '../../support/content/creation.ts';
import { manifestsOf, pullByPeer, sizesOf } from '../../support/content/peerPull.ts';
import { useDockerRegistry } from '../../support/dockerRegistry.ts';
import { findFreePort } from '../../support/freePort.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';
import type { Execution } from '../../support/program/execution.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { imagePolicyFiles } from '../../support/release/imagePolicy.ts';
import { layOutAsOc } from '../../support/release/mirrorDirectory.ts';
import { listTags, Mirroring, pullWhole, readTagLinks } from '../../support/release/mirroring.ts';
import { buildRelease, type TestRelease } from '../../support/release/release.ts';
import { signDigest } from '../../support/release/signing.ts';
import { until } from '../../support/until.ts';

/**
 * Returns the tags of a mirrored release in one repository: of the release, its components and its sigstore signatures.
 */
function tagsOf(release: TestRelease): string[] {
  const attached = [...release.content.repositories.values()].flatMap(({ tags }) => [...tags.keys()]);
  return [
    release.tag,
    ...[...release.images.keys()].map((name) => `${release.tag}-${name}`),
    ...attached.filter((tag) => tag.endsWith('.sig')),
  ];
}

/** Returns a layer of one component that no other image has. */
function ownLayerOf({ content, images, componentRepository }: TestRelease, name: string): Digest {
  const layers = (digest: string): string[] => {
    const { bytes } = content.repositories.get(componentRepository)?.manifests.get(digest) ?? {};
    return (JSON.parse(String(bytes)) as { layers: { digest: string }[] }).layers.map((layer) => layer.digest);
  };
  const others = [...images.values()].filter((image) => image.name !== name).flatMap(({ digest }) => layers(digest));
  const own = layers(images.get(name)?.digest ?? '').find((layer) => !others.includes(layer));
  if (own === undefined || !isDigest(own)) throw new Error(`${name} shares all its layers`);
  return own;
}

describe('oc adm-release-mirror-config', () => {
  let workshop: Workshop;
  let mirroring: Mirroring;

  const open = async (options: Parameters<typeof openWorkshop>[0] = {}): Promise<void> => {
    workshop = await openWorkshop({ ...options, release: { layers: 1, baseLayers: 1, ...options.release } });
    mirroring = new Mirroring(workshop);
  };
  afterEach(() => workshop.close());

  it('finds a version by its tag if no update graph answers, and names alternatives if that fails', async () => {
    await open();
    const { registry, release, folder } = workshop;
    const source = 'quay.io/openshift-release-dev/ocp-release';
    const sets = ['Tag', 'Digest'].map((kind) => ({
      apiVersion: 'config.openshift.io/v1',
      kind: `Image${kind}MirrorSet`,
      spec: { [`image${kind}Mirrors`]: [{ source, mirrors: [`${registry.host}/${release.releaseRepository}`] }] },
    }));
    await writeFile(join(folder, 'mirrors.yaml'), sets.map((set) => JSON.stringify(set)).join('\n---\n'));
    const proxy = `http://127.0.0.1:${await findFreePort()}`;
    const offline = { HTTPS_PROXY: proxy, HTTP_PROXY: proxy, NO_PROXY: '127.0.0.1' };
    const run = (version: string, ...args: string[]): ReturnType<Mirroring['run']> =>
      mirroring.run(['--to-dir=mirror', '--idms-file=mirrors.yaml', ...args], version, offline);
    const found = await run(release.version);
    expect(found.code, found.stderr).to.equal(0);
    expect(found.stderr).to.contain(`${release.version} is found by its tag in ${source}, without an update graph`);
    const hint = /^hint: Without a graph, name the repository .*\ntry: --release-repository, --graph-url$/m;
    expect((await run('4.99.1')).stderr)
      .to.match(hint)
      .and.contain('error (unreachable): 4.99.1 cannot be looked up: ');
    expect((await run(release.version, `--graph-url=https://graph.test/`)).stderr).to.match(hint);
  });

  it('mirrors images that clusters refuse by an image policy only if unsigned images are allowed', async () => {
    // The host of the registry, with any port.
    await open({ release: { files: imagePolicyFiles({ scopes: ['*.0.0.1'] }) } });
    const last = [...workshop.release.images.keys()].at(-1) ?? '';
    const message = new RegExp(`1 image has no valid sigstore signature: ${last}`);
    const refused = await mirroring.run(['--to-dir=mirror']);
    expect(refused.code, refused.stderr).to.equal(1);
    expect(refused.stderr).to.match(message).and.contain('Clusters refuse');
    expect(await readdir(workshop.folder)).not.to.include('mirror');

    const { code, stdout, stderr } = await mirroring.run(['--to-dir=mirror', '--allow-unsigned']);
    expect(code, stderr).to.equal(0);
    expect(stderr).to.match(message).and.contain('continuing because unsigned releases are allowed');
    const count = workshop.release.images.size + 1;
    expect(stdout).to.match(
      new RegExp(
        `\nUpdate image: .*\nSigstore: ${count - 1} of ${count} images verified, policy openshift, unknown key`,
      ),
    );

    const args = ['--to-dir=mirror', '--allow-unsigned', '--dry-run', '-o=json'];
    const { sigstore } = JSON.parse(await mirroring.succeed(args)) as { sigstore: Record<string, unknown>[] };
    expect(sigstore).to.have.length(count);
    for (const { name, policy, outcome } of sigstore) {
      expect({ policy, outcome }).to.deep.equal({
        policy: 'openshift',
        outcome: name === last ? 'missing' : 'verified',
      });
    }
  });

  describe('to a directory', () => {
    const blobPath = (digest: string): string => mirroring.path('mirror/v2/openshift/release/blobs', digest);

    it('writes the tree that oc image mirror reads, and the signature', async () => {
      await open();
      const { release } = workshop;
      const stdout = await mirroring.succeed(['--to-dir=mirror']);
      const links = await readTagLinks(mirroring.path('mirror'));
      expect([...links.keys()]).to.have.members(tagsOf(release));
      expect(links.get(release.tag)).to.equal(release.digest);
      const names = await readdir(mirroring.path('mirror/v2/openshift/release/blobs'));
      expect(names).to.include.members([...release.blobs.keys(), release.digest]);

      const hex = hexOf(release.digest);
      const file = `config/signature/sha256/${hex.slice(0, 16)}.yaml`;
      expect(stdout).to.contain(`\nConfigmap mirror/${file} created\n`);
      expect(stdout).to.match(/^sha256:\S+ file:\/\/openshift\/release:4\.12\.4-x86_64\n/);
      expect(stdout).to.contain(`\n\nSuccess\nUpdate image:  ${release.pullspec}\n`);
      expect(stdout).to.contain(`oc adm upgrade --allow-explicit-upgrade --to-image=${release.pullspec}`);
      expect(stdout).to.contain(`oc image mirror --from-dir=mirror 'file://openshift/release:${release.tag}*' REG`);
      expect(stdout).to.contain(`--from-dir=mirror file://openshift/release:${release.tag} --to=REGISTRY/REPOSITORY`);
      expect(await readdir(mirroring.path('mirror/config'), { recursive: true })).to.have.length(3);
      const configMap = parse(await readFile(mirroring.path('mirror', file), 'utf8')) as Record<string, object>;
      expect(configMap['metadata']).to.deep.include({ name: `sha256-${hex}`, namespace: 'openshift-config-managed' });
      expect(Object.keys(configMap['binaryData'] ?? {})).to.deep.equal([`sha256-${hex}-1`]);
    });

    it('fetches nothing again, and leaves the same files', async () => {
      await open();
      await mirroring.succeed(['--to-dir=mirror']);
      const from = workshop.registry.requests.length;
      const before = await readFile(mirroring.path('mirror/config/signature/sha256', (await signatures())[0] ?? ''));
      const stdout = await mirroring.succeed(['--to-dir=mirror']);
      expect(stdout).to.match(/\nConfigmap mirror\/\S+ unchanged\n/);
      const layers = blobBytes(workshop.registry, from);
      const payload = workshop.registry.requests.slice(from).filter(({ path }) => path.includes('/blobs/'));
      // Reading the list of images takes two blobs of the payload: its configuration and one layer.
      expect(payload, String(layers)).to.have.length(2);
      expect(
        await readFile(mirroring.path('mirror/config/signature/sha256', (await signatures())[0] ?? '')),
      ).to.deep.equal(before);
    });
    const signatures = (): Promise<string[]> => readdir(mirroring.path('mirror/config/signature/sha256'));

    it('resumes after a kill', async () => {
      await open({ release: { components: 8, layerSize: 200_000 } });
      workshop.registry.fault(/\/blobs\//, { bytesPerSecond: 1_000_000 });
      const { child, outcome } = mirroring.start(['--to-dir=mirror', '--max-per-registry=2']);
      const blobs = mirroring.path('mirror/v2/openshift/release/blobs');
      const whole = async (): Promise<string[]> =>
        (await readdir(blobs).catch(() => [])).filter((name) => name.startsWith('sha256:'));
      await until(async () => (await whole()).length > 4);
      child.kill('SIGKILL');
      expect((await outcome).code).to.equal(null);
      expect([...(await readTagLinks(mirroring.path('mirror'))).keys()]).not.to.include(workshop.release.tag);
      workshop.registry.clearFaults();
      const kept = await whole();
      const from = workshop.registry.requests.length;
      await mirroring.succeed(['--to-dir=mirror']);
      const again = workshop.registry.requests
        .slice(from)
        .filter(({ path }) => kept.some((digest) => path.endsWith(`/blobs/${digest}`)));
      expect(again.length).to.be.at.most(2);
      const names = await readdir(blobs);
      expect(names).to.include.members([...workshop.release.blobs.keys()]);
      expect(names.filter((name) => name.startsWith('.'))).to.deep.equal([]);
      expect([...(await readTagLinks(mirroring.path('mirror'))).keys()]).to.have.members(tagsOf(workshop.release));
    });

    it('finds a blob that is cut short, and with --verify-existing one that is corrupt, and replaces them', async () => {
      await open();
      const { release } = workshop;
      await mirroring.succeed(['--to-dir=mirror']);
      const [cut, corrupt] = ['rhel-coreos-8', 'machine-config-operator'].map((name) => ownLayerOf(release, name));
      const contentOf = (digest: string): Buffer | undefined => release.blobs.get(digest as Digest)?.read();
      await truncate(blobPath(cut ?? ''), 10);
      const bytes = await readFile(blobPath(corrupt ?? ''));
      await writeFile(blobPath(corrupt ?? ''), bytes.fill(0, 5, 10));

      await mirroring.succeed(['--to-dir=mirror']);
      expect(await readFile(blobPath(cut ?? ''))).to.deep.equal(contentOf(cut ?? ''));
      expect(await readFile(blobPath(corrupt ?? ''))).not.to.deep.equal(contentOf(corrupt ?? ''));
      await mirroring.succeed(['--to-dir=mirror', '--verify-existing']);
      expect(await readFile(blobPath(corrupt ?? ''))).to.deep.equal(contentOf(corrupt ?? ''));
    });

    it('keeps lists complete, and has the signatures of a list and of its images', async () => {
      await open({ release: { arch: 'multi', listOfOne: 'machine-os-content' } });
      const { release } = workshop;
      const stdout = await mirroring.succeed(['--to-dir=mirror']);
      const links = await readTagLinks(mirroring.path('mirror'));
      expect(links.get('4.12.4-multi')).to.equal(release.digest);
      expect(links.get('4.12.4-multi-machine-os-content')).to.equal(release.images.get('machine-os-content')?.digest);
      expect([...links.keys()]).to.include.members([release.digest, ...release.children].map(attachmentTag));
      const files = [release.digest, ...release.children].map((digest) => `${hexOf(digest).slice(0, 16)}.yaml`);
      expect(await signatures()).to.have.members(files);
      expect(stdout).to.contain(`oc image mirror --from-dir=mirror --keep-manifest-list 'file://`);
    });

    it('tells how images get from there into a registry, whichever repositories they are in', async () => {
      await open();
      const { digest, registry, tag } = workshop.release;
      const trust = `--trust-fingerprint=${workshop.key.fingerprint}`;
      const advice = (stdout: string): string[] => stdout.match(/(?<=^ {4})oc .*--from-dir.*/gm) ?? [];
      const own = (release: string) =>
        `oc adm-release-mirror-config --from-dir=mirror file://${release} --to=REGISTRY/REPOSITORY ${trust}`;
      const oc = (source: string, to: string) =>
        `oc image mirror --from-dir=mirror ${shellWord(`file://${source}`)} REGISTRY/${to}`;

      // Without its image, the images of a release are unknown.
      expect(advice(await mirroring.succeed(['--to-dir=mirror', '--skip-release-image']))).to.deep.equal([
        oc(`openshift/release:${tag}*`, 'REPOSITORY'),
        oc('openshift/release:sha256-*', 'REPOSITORY'),
      ]);
      const elsewhere = await mirroring.succeed(['--to-dir=mirror', `--to-release-image=${registry}/a/b:c`]);
      expect(advice(elsewhere)).to.have.length(2);
      const apart = ['--to-dir=mirror', '--to-release-image=file://openshift/own:latest'];
      expect(advice(await mirroring.succeed(apart))).to.deep.equal([
        own('openshift/own:latest'),
        oc('openshift/own:latest*', 'openshift/own'),
        oc('openshift/own:sha256-*', 'openshift/own'),
        oc(`openshift/release:${tag}*`, 'openshift/release'),
        oc('openshift/release:sha256-*', 'openshift/release'),
      ]);
      const untagged = advice(await mirroring.succeed(['--to-dir=mirror', '--to-release-image=file://openshift/own']));
      expect(untagged.slice(0, 2)).to.deep.equal([
        own(`openshift/own@${digest}`),
        oc(`openshift/own@${digest}`, 'openshift/own'),
      ]);
      const tags = ['--to-dir=mirror', '--to=file://own:${component}-${version}'];
      expect(advice(await mirroring.succeed(tags))).to.deep.equal([
        own(`own:release-${tag}`),
        oc('own:*', 'REPOSITORY'),
      ]);
    });

    it('writes oc’s signature files if they are requested', async () => {
      await open();
      const stdout = await mirroring.succeed(['--to-dir=mirror', '--release-image-signature-to-dir=signatures']);
      const name = `signature-sha256-${hexOf(workshop.release.digest).slice(0, 16)}.json`;
      expect(stdout).to.contain(`Configmap signatures/${name} created`);
      const text = await readFile(mirroring.path('signatures', name), 'utf8');
      expect(text.trimEnd()).not.to.contain('\n');
      expect(JSON.parse(text)).to.include({ kind: 'ConfigMap' });
    });
  });

  describe('from a directory or a bundle', () => {
    let site: TestRegistry;
    beforeEach(async () => {
      site = await startRegistry();
    });
    afterEach(() => site.stop());
    const disconnect = (): Promise<unknown> => Promise.all([workshop.registry.stop(), workshop.signatures.stop()]);
    const pushed = (repository: string) => site.content.repositories.get(repository);

    it('takes everything, the signature too, with no network', async () => {
      await open({ release: { arch: 'multi' } });
      const { release } = workshop;
      await mirroring.succeed(['--to-dir=mirror']);
      await disconnect();
      const source = `file://openshift/release:${release.tag}`;
      const args = ['--from-dir=mirror', `--to=${site.host}/site/release`, '--config-to-dir=config'];
      const stdout = await mirroring.succeed(args, source);
      expect([...(pushed('site/release')?.tags.keys() ?? [])]).to.have.members(tagsOf(release));
      expect(pushed('site/release')?.tags.get(release.tag)).to.equal(release.digest);
      expect(stdout).to.contain(`Update image:  ${site.host}/site/release@${release.digest}`);
      const file = `signature/sha256/${hexOf(release.digest).slice(0, 16)}.yaml`;
      expect(await readFile(mirroring.path('config', file), 'utf8')).to.equal(
        await readFile(mirroring.path('mirror/config', file), 'utf8'),
      );
    });

    it('reads a directory that oc wrote', async () => {
      await open();
      const { release } = workshop;
      // As in oc: everything in one repository, with its tags.
      const all = [...release.content.repositories.values()];
      const manifests = new Map(all.flatMap((repository) => [...repository.manifests]));
      const tags = new Map(
        [...release.images].map(([name, { digest }]) => [`${release.tag}-${name}`, digest] as const),
      );
      const repository = { manifests, tags: new Map([[release.tag, release.digest], ...tags]) };
      const content = { blobs: release.content.blobs, repositories: new Map([['openshift/release', repository]]) };
      await layOutAsOc(mirroring.path('oc'), content);
      await workshop.registry.stop();
      await mirroring.succeed(
        ['--from-dir=oc', `--to=${site.host}/site/release`, `--signature-store=${workshop.signatures.url}`],
        `file://openshift/release:${release.tag}`,
      );
      expect([...(pushed('site/release')?.tags.keys() ?? [])]).to.have.members([release.tag, ...tags.keys()]);
    });

    it('takes a bundle by its file', async () => {
      await open();
      const bundle = await workshop.make();
      await disconnect();
      const { release } = workshop;
      const stdout = await mirroring.succeed([`--to=${site.host}/site/release`, '--config-to-dir=config'], bundle);
      expect([...(pushed('site/release')?.tags.keys() ?? [])]).to.have.members(tagsOf(release));
      expect(stdout).to.contain(`source: ${release.registry}/${release.releaseRepository}\n`);
      expect(stdout).to.contain('Configmap config/signature/');
    });

    it('names missing or corrupt content with its file, and asks no other registry', async () => {
      await open();
      const { release, registry, signatures } = workshop;
      await mirroring.succeed(['--to-dir=mirror']);
      const source = `file://openshift/release:${release.tag}`;
      const args = ['--from-dir=mirror', `--to=${site.host}/site/release`];
      const asked = (): number => registry.requests.length + signatures.requests.length;
      const before = asked();
      const blob = ownLayerOf(release, 'rhel-coreos-8');
      const path = mirroring.path('mirror/v2/openshift/release/blobs', blob);
      const bytes = await readFile(path);
      await writeFile(path, Buffer.alloc(bytes.length));
      const corrupt = await mirroring.fail(args, 1, source);
      expect(corrupt).to.contain(`rhel-coreos-8: source`).and.contain(path);
      expect(corrupt).to.contain('reading the release sha256:').and.not.contain(release.registry);
      await rm(path);
      const missing = await mirroring.fail(args, 1, source);
      expect(missing).to.contain(
        `error (incomplete): rhel-coreos-8: ${blob} is missing or truncated in ${mirroring.path('mirror')}`,
      );
      await rm(mirroring.path('mirror/config'), { recursive: true });
      await writeFile(path, bytes);
      expect(asked()).to.equal(before);
      const images = registry.requests.length;
      (signatures.files as Map<string, Buffer>).clear();
      expect(await mirroring.fail(args, 1, source)).to.match(/no signature/);
      expect(registry.requests).to.have.length(images);
      expect([...(pushed('site/release')?.tags.keys() ?? [])]).not.to.include(release.tag);
    });

    it('takes the extra images of a bundle along', async () => {
      await open();
      const { release } = workshop;
      const extra = [...release.images.values()].at(-1)?.pullspec ?? '';
      const repository = `${release.registry}/tools/extra`;
      const content = release.content.repositories.get(release.componentRepository);
      workshop.registry.content.repositories.set('tools/extra', content ?? { manifests: new Map(), tags: new Map() });
      const digest = extra.slice(extra.indexOf('@') + 1);
      const bundle = await workshop.make({ 'extra-image': `${repository}@${digest}` });
      await disconnect();
      const { code, stdout, stderr } = await mirroring.run([`--to=${site.host}/site/release`], bundle);
      expect(code, stderr).to.equal(0);
      expect(stderr).to.contain('warning: 1 image not covered by the release signature');
      const tag = `digest-${digest.slice(7, 19)}`;
      expect(pushed('site/tools/extra')?.tags.get(tag)).to.equal(digest);
      expect(stdout).to.contain(`source: ${repository}\n`);
      await mirroring.succeed(['--to-dir=mirror'], bundle);
      await mirroring.succeed(['--from-dir=mirror', `--to=${site.host}/again/release`], release.version);
      expect(pushed('again/tools/extra')?.tags.get(tag)).to.equal(digest);
    });
  });

  describe('to a registry', function () {
    requirePeer(this, 'docker-registry', 'skopeo');
    const site = useDockerRegistry();

    it('puts every image into one repository, and says how clusters find them there', async () => {
      await open();
      const { release } = workshop;
      const to = `${site.host}/site/release`;
      const stdout = await mirroring.succeed([`--to=${to}`, '--config-to-dir=config']);
      const tags = await listTags(to);
      expect(tags).to.have.members(tagsOf(release));
      await mkdir(mirroring.path('copies'));
      for (const tag of tags) await pullWhole(`${to}:${tag}`, mirroring.path('copies', tag));
      expect(stdout).to.contain(`\nUpdate image:  ${to}@${release.digest}\nMirror prefix: ${to}\n`);
      expect(stdout).to.contain('\nimageDigestSources:\n').and.contain('\nkind: ImageDigestMirrorSet\n');
      const [file = ''] = /config\/mirrors\/imagedigestmirrorset-\w{8}\.yaml(?= created)/.exec(stdout) ?? [];
      const text = await readFile(mirroring.path(file), 'utf8');
      const { spec } = parse(text) as { spec: object };
      const source = (repository: string) => ({ source: `${release.registry}/${repository}`, mirrors: [to] });
      expect(spec).to.deep.equal({
        imageDigestMirrors: [source(release.releaseRepository), source(release.componentRepository)],
      });
    });

    it('puts lists there whole', async () => {
      await open({ release: { arch: 'multi', listOfOne: 'machine-os-content' } });
      const to = `${site.host}/multi/release`;
      await mirroring.succeed([`--to=${to}`, '--print-mirror-instructions=none']);
      await pullWhole(`${to}@${workshop.release.digest}`, mirroring.path('release'));
      await pullWhole(`${to}:4.12.4-multi-machine-os-content`, mirroring.path('single'));
      const single = workshop.release.images.get('machine-os-content')?.digest ?? '';
      await pullWhole(`${to}@${single}`, mirroring.path('again'));
    });

    it('pushes images that oci-registry-client pulls unchanged', async () => {
      await open({ release: { arch: 'multi', components: 2 } });
      const { release } = workshop;
      await mirroring.succeed([`--to=${site.host}/peer/release`, '--print-mirror-instructions=none']);
      const pulled = await pullByPeer(`${site.url}/peer/release`, manifestsOf(release));
      expect(pulled).to.deep.equal(sizesOf(release));
    });

    it('puts the release image elsewhere, and each component into a repository of its own', async () => {
      await open();
      const { release } = workshop;
      const { stdout, stderr } = await mirroring.run([
        `--to=${site.host}/own/\${component}`,
        `--to-release-image=${site.host}/own/releases:latest`,
        '--print-mirror-instructions=icsp',
      ]);
      expect(await listTags(`${site.host}/own/releases`)).to.have.members(['latest', attachmentTag(release.digest)]);
      for (const name of release.images.keys()) {
        expect(await listTags(`${site.host}/own/${name}`)).to.include(release.tag);
      }
      expect(stdout).to.contain(`Mirrored to: ${site.host}/own/\${component}\n`);
      expect(stderr).to.match(/warning: each component has a repository of its own, so that \S+ gets \d+ mirrors/);
      expect(stdout).to.contain('kind: ImageContentSourcePolicy').and.contain(`- ${site.host}/own/releases\n`);
    });

    it('leaves out the release image, and fills in templates of tags', async () => {
      await open();
      const { release } = workshop;
      await mirroring.succeed([`--to=${site.host}/tags:v\${version}-\${component}`, '--skip-release-image']);
      const tags = await listTags(`${site.host}/tags`);
      expect(tags.filter((tag) => !tag.endsWith('.sig'))).to.have.members(
        [...release.images.keys()].map((name) => `v4.12.4-${name}-x86_64`),
      );
    });
  });

  it('mounts blobs from another repository, and uploads each once', async () => {
    await open();
    const { registry, release } = workshop;
    await mirroring.succeed([`--to=${registry.host}/site/release`]);
    const sent = registry.requests.filter(({ method, path }) => method === 'PUT' && path.includes('/blobs/'));
    expect(sent).to.have.length(0);
    expect(registry.content.repositories.get('site/release')?.tags.get(release.tag)).to.equal(release.digest);
  });

  it('puts nothing into a registry again, tags neither', async () => {
    await open();
    const { registry } = workshop;
    const args = [`--to=${registry.host}/site/release`];
    await mirroring.succeed(args);
    const from = registry.requests.length;
    const { stderr } = await mirroring.run(args);
    expect(stderr).to.match(/^0 blobs copied \(0 B\), \d+ present$/m);
    const writes = registry.requests.slice(from).filter(({ method }) => method !== 'GET' && method !== 'HEAD');
    expect(writes).to.deep.equal([]);
  });

  describe('in a dry run', () => {
    it('lists each image and file that it would write, and writes nothing', async () => {
      await open();
      const { registry, release } = workshop;
      const args = [`--to=${registry.host}/site/release`, '--to-dir=mirror', '--dry-run'];
      const stdout = await mirroring.succeed(args);
      expect(stdout).to.contain(`${release.digest} ${registry.host}/site/release:${release.tag} created (dry run)\n`);
      expect(stdout).to.match(/\nConfigmap mirror\/config\/signature\S+ created \(dry run\)\n/);
      expect(stdout)
        .to.match(/\nTo copy: (\d+) of \1 blobs, (\S+ \w+) of \2 \(dry run\)\n/)
        .and.not.contain('Success');
      expect(registry.content.repositories.has('site/release')).to.equal(false);
      expect(await readdir(workshop.folder)).not.to.include('mirror');
      await mirroring.succeed([`--to=${registry.host}/site/release`]);
      const again = await mirroring.succeed(args);
      expect(again)
        .to.contain(`:${release.tag} unchanged (dry run)\n`)
        .and.match(/\nTo copy: 0 of \d+ blobs, 0 B of /);
      const plain = JSON.parse(await mirroring.succeed([...args, '-o', 'json'])) as Record<string, object>;
      expect(plain['missing']).to.deep.equal({ blobs: 0, bytes: 0 });
      expect(plain['mirrorSet']).to.include({ kind: 'ImageDigestMirrorSet' });
    });

    it('prints the mirror sets and the part of install-config.yaml, as oc does', async () => {
      await open();
      const args = [`--to=${workshop.registry.host}/site/release`, '--print-mirror-instructions', 'Icsp', '--dry-run'];
      const stdout = await mirroring.succeed(args);
      expect(stdout)
        .to.contain('\nimageContentSources:\n')
        .and.contain('\nkind: ImageContentSourcePolicy\n')
        .and.match(/\nUpdate image: {2}\S+@sha256:\w+\nMirror prefix: /);
    });

    it('prints the mapping', async () => {
      await open();
      const { release } = workshop;
      const stdout = await mirroring.succeed(['--to=registry.test/site/release', '--to-mirror']);
      const lines = stdout.trimEnd().split('\n');
      expect(lines).to.have.length(release.images.size + 1);
      expect(lines[0]).to.equal(`${release.pullspec} registry.test/site/release:${release.tag}`);
      const etcd = release.images.get('rhel-coreos-8')?.pullspec ?? '';
      expect(lines).to.include(`${etcd} registry.test/site/release:${release.tag}-rhel-coreos-8`);
      await mirroring.succeed(['--to-dir=mirror']);
      const args = ['--from-dir=mirror', '--to=registry.test/site/release', '--to-mirror'];
      expect(await mirroring.succeed(args, release.version)).to.contain(
        `file://openshift/release@${release.digest} registry.test/site/release:${release.tag}\n`,
      );
    });
  });

  it('mirrors several releases and those on a path of updates, and shared content once', async () => {
    await open();
    const { registry, release, signatures } = workshop;
    const next = buildRelease({ version: '4.12.5', registry: registry.host, components: 3 });
    next.addTo(registry.content);
    const nodes = [release, next].map(({ version, pullspec }) => ({ version, payload: pullspec }));
    const conditionalEdges = [{ edges: [{ from: '4.12.4', to: '4.12.5' }], risks: [{ name: 'SlowDisks' }] }];
    (signatures.files as Map<string, string>).set('/graph', JSON.stringify({ nodes, edges: [], conditionalEdges }));
    const path = ['--path-from=4.12.4', '--to-version=4.12.5', `--graph-url=${signatures.url}/graph`];
    const { code, stderr } = await mirroring.run(['--to-dir=mirror', '--allow-unsigned', ...path], '');
    expect(code, stderr).to.equal(0);
    expect(stderr).to.contain('4.12.4 → 4.12.5').and.contain('known risks for some clusters: SlowDisks');
    const tags = [...(await readTagLinks(mirroring.path('mirror'))).keys()];
    expect(tags).to.include.members([release.tag, next.tag]);

    const from = registry.requests.length;
    const both = `${release.pullspec},${next.pullspec}`;
    await mirroring.succeed([`--to=${registry.host}/site/release`, '--allow-unsigned'], both);
    const target = registry.content.repositories.get('site/release')?.tags;
    expect([...(target?.keys() ?? [])]).to.include.members([release.tag, next.tag]);
    const sent = registry.requests
      .slice(from)
      .filter(({ method, path: sentTo }) => method === 'PUT' && sentTo.includes('/blobs/'));
    expect(sent).to.have.length(0);
  });

  it('prints JSON', async () => {
    await open();
    const { release } = workshop;
    const outcome = JSON.parse(await mirroring.succeed(['--to-dir=mirror', '-o', 'json'])) as Record<string, unknown>;
    expect(outcome).to.deep.include({ version: '4.12.4', arch: 'x86_64', digest: release.digest, dryRun: 'none' });
    expect(outcome['updateImage']).to.equal(release.pullspec);
    expect(outcome['images']).to.have.length(release.images.size + 1);
    expect(outcome['files']).to.have.length(1);
    expect(outcome['blobs']).to.deep.include({ mounted: 0, skipped: 0 });
  });

  describe('stops before anything is copied', () => {
    it('if the release is not signed, unless that is allowed', async () => {
      await open({ signed: false });
      expect(await mirroring.fail(['--to-dir=mirror'])).to.match(/no signature of sha256:/);
      expect(await readdir(workshop.folder)).not.to.include('mirror');
      const { code, stdout, stderr } = await mirroring.run(['--to-dir=mirror', '--skip-verification']);
      expect(code).to.equal(0);
      expect(stderr)
        .to.match(/warning: no signature of sha256:/)
        .and.match(/digests are checked/);
      expect(stdout).to.contain('Success').and.not.contain('Configmap');
      await mirroring.succeed(['--to-dir=mirror', '--allow-unsigned']);
    });

    it('when manifests are missing, naming their images', async () => {
      await open();
      const { registry, release } = workshop;
      for (const name of ['rhel-coreos-8', 'machine-os-content']) {
        const { manifests } = registry.content.repositories.get(release.componentRepository) ?? {};
        manifests?.delete(release.images.get(name)?.digest ?? '');
      }
      const stderr = await mirroring.fail(['--to-dir=mirror']);
      expect(stderr)
        .to.match(/2 of 5 images/)
        .and.contain('rhel-coreos-8')
        .and.contain('machine-os-content');
      expect(await readdir(workshop.folder)).not.to.include('mirror');
    });

    it('when the registry that it goes to does not answer, once', async () => {
      await open();
      const other = await startRegistry();
      const { host } = other;
      await other.stop();
      const stderr = await mirroring.fail([`--to=${host}/a/b`]);
      expect(stderr.match(/^error \([a-z-]+\): .*/gm)).to.have.length(1);
    });
  });
});

describe('oc adm-release-mirror-config from a directory, with no network', () => {
  let workshop: Workshop;
  let mirroring: Mirroring;
  let site: TestRegistry;
  before(async () => {
    site = await startRegistry();
    workshop = await openWorkshop({ release: { layers: 1, baseLayers: 1 } });
    mirroring = new Mirroring(workshop);
    await mirroring.succeed(['--to-dir=mirror']);
    await Promise.all([workshop.registry.stop(), workshop.signatures.stop()]);
  });
  after(async () => {
    await site.stop();
    await workshop.close();
  });

  it('knows which repository the release came from', async () => {
    const { release } = workshop;
    const to = [`--to=${site.host}/site/release`, '--dry-run'];
    for (const [named, options] of [
      [`file://openshift/release:${release.tag}`, ['--from-dir=mirror']],
      [mirroring.path('mirror'), []],
    ] as const) {
      const stdout = await mirroring.succeed([...options, ...to], named);
      expect(stdout).to.contain(`source: ${release.registry}/${release.releaseRepository}\n`);
      expect(stdout).not.to.contain('quay.io');
    }
    await mirroring.succeed(['--from-dir=mirror', '--to-dir=copy'], release.version);
    const stdout = await mirroring.succeed(['--from-dir=copy', ...to], release.version);
    expect(stdout).to.contain(`source: ${release.registry}/${release.releaseRepository}\n`);
  });

  it('refuses a tag that leads to another release than it says', async () => {
    await cp(mirroring.path('mirror'), mirroring.path('tagged'), { recursive: true, verbatimSymlinks: true });
    const tags = mirroring.path('tagged/v2/openshift/release/manifests');
    await symlink(workshop.release.digest, join(tags, '4.12.9-x86_64'));
    const stderr = await mirroring.fail(
      ['--from-dir=tagged', '--to-dir=copy'],
      1,
      'file://openshift/release:4.12.9-x86_64',
    );
    expect(stderr).to.contain('is of version 4.12.4, not 4.12.9');
  });

  it('makes only the configuration when only that is asked for', async () => {
    const stdout = await mirroring.succeed(['--from-dir=mirror', '--config-to-dir=config'], workshop.release.version);
    expect(stdout).to.match(/^Configmap config\/signature\/sha256\/\w{16}\.yaml created\n/);
    expect(stdout).not.to.contain('Success');
  });

  it('names existing versions if the requested one is missing', async () => {
    const stderr = await mirroring.fail(['--from-dir=mirror', '--config-to-dir=config'], 1, '4.12.5');
    expect(stderr).to.match(/has no release 4\.12\.5 for x86_64\nhint: .*4\.12\.4/);
  });
});

describe('oc adm-release-mirror-config from a directory in which oc kept the signature of one architecture', () => {
  let workshop: Workshop;
  let mirroring: Mirroring;
  let site: TestRegistry;
  let child: Digest;
  let store: string;
  /** The standard error and the copy without the signature of the list in the signature store. */
  let refused: { readonly stderr: string; readonly copy: unknown };
  /** The requests to the signature store while a folder has the signature. */
  let requests: number;
  let mirrored: string;
  let again: Execution;

  before(async () => {
    site = await startRegistry();
    workshop = await openWorkshop({ release: { arch: 'multi', layers: 1, baseLayers: 1 } });
    mirroring = new Mirroring(workshop);
    await mirroring.succeed(['--to-dir=oc']);
    const { release, signatures, registry } = workshop;
    [child = release.digest] = release.children;
    store = signatures.url;
    await keepOnly(child);
    await registry.stop();
    const source = `file://openshift/release:${release.tag}`;
    const args = ['--from-dir=oc', `--to=${site.host}/site/release`, '--config-to-dir=config'];

    const stored = signatures.files as Map<string, Buffer>;
    const [path = '', bytes = Buffer.alloc(0)] =
      [...stored].find(([each]) => each.includes(hexOf(release.digest))) ?? [];
    stored.delete(path);
    const stderr = await mirroring.fail(args, 1, source);
    refused = { stderr, copy: site.content.repositories.get('site/release') };
    stored.set(path, bytes);

    const [, command = ''] = /: (mkdir .* && curl .*)$/m.exec(stderr) ?? [];
    await runSuccessfully('bash', ['-c', `cd '${workshop.folder}' && ${command}`]);
    const asked = signatures.requests.length;
    await mirroring.succeed([...args, '--signature-store=signatures', '--dry-run'], source);
    requests = signatures.requests.length - asked;

    mirrored = await mirroring.succeed(args, source);
    await signatures.stop();
    again = await mirroring.run(args, source);
  });
  after(async () => {
    await site.stop();
    await workshop.close();
  });

  /** Leaves only the signature of an image of the list in the directory, as oc does. */
  async function keepOnly(image: Digest): Promise<void> {
    const name = `sha256-${hexOf(image)}`;
    const signature = (await signDigest(workshop.key, image)).toString('base64');
    const kept = signatureConfigMap(image, [], { signer: '' }).object;
    await rm(mirroring.path('oc/config'), { recursive: true });
    await mkdir(mirroring.path('oc/config'));
    const file = mirroring.path(`oc/config/signature-${name.slice(0, 23)}.json`);
    await writeFile(file, JSON.stringify({ ...kept, binaryData: { [`${name}-1`]: signature } }));
  }

  it('says that the signature does not cover the list', () => {
    expect(refused.stderr)
      .to.contain(`error (unsigned): no signature of ${workshop.release.digest} was found: ${store}`)
      .and.contain(`the signature of ${child} does not cover the list`);
  });

  it('copies nothing without the signature of the list', () => {
    expect(refused.copy).to.equal(undefined);
  });

  it('prints a command that puts the signature into a folder', () => {
    expect(requests).to.equal(0);
  });

  it('copies the release with the signature from the store', () => {
    const { digest, tag } = workshop.release;
    expect(site.content.repositories.get('site/release')?.tags.get(tag)).to.equal(digest);
  });

  it('writes the signatures of the list and of the image', () => {
    for (const digest of [workshop.release.digest, child])
      expect(mirrored).to.contain(`config/signature/sha256/${hexOf(digest).slice(0, 16)}.yaml created`);
  });

  it('needs the store once', () => {
    expect(again.code, again.stderr).to.equal(0);
  });
});

describe('oc adm-release-mirror-config refuses', () => {
  let mirroring: Mirroring;
  before(async () => {
    mirroring = new Mirroring(await openWorkshop());
  });
  after(() => mirroring.workshop.close());

  const to = '--to=registry.test/a/b';
  const wrong: readonly (readonly [args: readonly string[], message: RegExp, release?: string])[] = [
    [['--to-dir=mirror'], /no release is named/, ''],
    [[], /unknown command “lst”\nhint: Did you mean list\?/, 'lst'],
    [['4.20.3'], /unknown command “mirror”\nhint: Did you mean “oc adm-release-mirror-config 4\.20\.3”\?/, 'mirror'],
    [[to, '--path-from=4.12.4'], /a path of updates has two ends/, ''],
    [[to, '--path-from=4.12.4', '--to-version=4.12.5'], /named twice: by a path/, '4.12.4'],
    [[to], /has a comma without a release/, '4.12.4,'],
    [[to, '--to-release-image=registry.test/a/b:c'], /several releases need one each/, '4.12.4,4.12.5'],
    [['--from=4.12.4', to], /given twice/, '4.12.4'],
    [[], /nothing says where the release goes/, '4.12.4'],
    [[to, '--to-image-stream=release'], /exclude each other/, '4.12.4'],
    [[to, '--skip-release-image', '--to-release-image=registry.test/a/c:d'], /leaves out the image/, '4.12.4'],
    [['--to-release-image=registry.test/a/c:d', '--config-to-dir=c'], /needs --to or --to-dir/, '4.12.4'],
    [[to, '--overwrite'], /--overwrite replaces objects/, '4.12.4'],
    [['--to=registry.test/a/b:tag'], /has a tag/, '4.12.4'],
    [[`--to=registry.test/a/b@sha256:${'0'.repeat(64)}`], /has a digest/, '4.12.4'],
    [['--to=release'], /names no registry/, '4.12.4'],
    [['--to=${component}'], /destination \$\{component\} cannot be used/, '4.12.4'],
    [['--to=s3://s3.amazonaws.com/region/bucket'], /s3:\/\/ is not a place/, '4.12.4'],
    [['--to=file://../release'], /cannot be a repository in a directory/, '4.12.4'],
    [['--config-to-dir=c', '--graph-data=https://graph.test/x.tar'], /--graph-data needs/, '4.12.4'],
    [[to], /is not the version of a release/, '4.12'],
    [[to, '--print-mirror-instructions=all'], /idms"?, "?icsp"?, "?none/, '4.12.4'],
    [[to], /is not an image of a mirror directory/, 'file://openshift/release'],
  ];
  for (const [args, message, release] of wrong) {
    it([release, ...args].join(' ').slice(0, 70), async () => {
      expect(await mirroring.fail(args, 2, release)).to.match(message);
    });
  }
});
