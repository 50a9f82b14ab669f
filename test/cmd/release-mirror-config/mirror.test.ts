import { mkdir, readdir, readFile, truncate, writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { parse } from 'yaml';
import { hexOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { shellWord } from '../../../lib/text.ts';
import { blobBytes, openWorkshop, type Workshop } from '../../support/content/creation.ts';
import { manifestsOf, pullByPeer, sizesOf } from '../../support/content/peerPull.ts';
import { useDockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer } from '../../support/peers.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import {
  listTags,
  Mirroring,
  pullWhole,
  readTagLinks,
  mirrorTagsOf,
  ownLayerOf,
} from '../../support/release/mirroring.ts';
import { buildRelease } from '../../support/release/release.ts';
import { until } from '../../support/until.ts';

describe('oc adm-release-mirror-config', () => {
  let workshop: Workshop;
  let mirroring: Mirroring;

  const open = async (options: Parameters<typeof openWorkshop>[0] = {}): Promise<void> => {
    workshop = await openWorkshop({ ...options, release: { layers: 1, baseLayers: 1, ...options.release } });
    mirroring = new Mirroring(workshop);
  };
  afterEach(() => workshop.close());

  describe('to a directory', () => {
    const blobPath = (digest: string): string => mirroring.path('mirror/v2/openshift/release/blobs', digest);

    it('writes the tree that oc image mirror reads, and the signature', async () => {
      await open();
      const { release } = workshop;
      const stdout = await mirroring.succeed(['--to-dir=mirror']);
      const links = await readTagLinks(mirroring.path('mirror'));
      expect([...links.keys()]).to.have.members(mirrorTagsOf(release));
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
      expect([...(await readTagLinks(mirroring.path('mirror'))).keys()]).to.have.members(
        mirrorTagsOf(workshop.release),
      );
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

  describe('to a registry', function () {
    requirePeer(this, 'docker-registry', 'skopeo');
    const site = useDockerRegistry();

    it('puts every image into one repository, and says how clusters find them there', async () => {
      await open();
      const { release } = workshop;
      const to = `${site.host}/site/release`;
      const stdout = await mirroring.succeed([`--to=${to}`, '--config-to-dir=config']);
      const tags = await listTags(to);
      expect(tags).to.have.members(mirrorTagsOf(release));
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
});

describe('oc adm-release-mirror-config refuses', () => {
  let mirroring: Mirroring;
  before(async () => {
    mirroring = new Mirroring(await openWorkshop());
  });
  after(() => mirroring.workshop.close());

  const to = '--to=registry.test/a/b';
  const wrong: readonly (readonly [args: readonly string[], message: RegExp, release?: string])[] = [
    [[], /unknown command “lst”\nhint: Did you mean list\?/, 'lst'],
    [['4.20.3'], /unknown command “mirror”\nhint: Did you mean “oc adm-release-mirror-config 4\.20\.3”\?/, 'mirror'],
    [[], /nothing says where the release goes/, '4.12.4'],
    [['--to=registry.test/a/b:tag'], /has a tag/, '4.12.4'],
    [[`--to=registry.test/a/b@sha256:${'0'.repeat(64)}`], /has a digest/, '4.12.4'],
    [['--to=release'], /names no registry/, '4.12.4'],
    [['--to=${component}'], /destination \$\{component\} cannot be used/, '4.12.4'],
    [['--to=s3://s3.amazonaws.com/region/bucket'], /s3:\/\/ is not a place/, '4.12.4'],
    [['--to=file://../release'], /cannot be a repository in a directory/, '4.12.4'],
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
