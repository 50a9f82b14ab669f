import { readdir, readFile, rm, writeFile, cp, symlink, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { parseAllDocuments } from 'yaml';
import { signatureConfigMap } from '../../lib/config/signatures.ts';
import { hexOf, type Digest } from '../../lib/content/oci/reference.ts';
import { startRegistry, type TestRegistry } from '../fakes/registry/registry.ts';
import { openWorkshop, type Workshop, runProgram, addRelease } from '../support/content/creation.ts';
import { TestContent } from '../support/content/image.ts';
import { useDockerRegistry } from '../support/dockerRegistry.ts';
import { findFreePort } from '../support/freePort.ts';
import { runSuccessfully, requirePeer } from '../support/peers.ts';
import type { Execution } from '../support/program/execution.ts';
import { addAttachment, attachmentTag } from '../support/release/attachments.ts';
import { type ExtraImage, extraImage } from '../support/release/extraImage.ts';
import { layOutAsOc } from '../support/release/mirrorDirectory.ts';
import { Mirroring, mirrorTagsOf, ownLayerOf, listTags, pullWhole } from '../support/release/mirroring.ts';
import { signDigest } from '../support/release/signing.ts';

describe('mirrorRelease', () => {
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
      expect([...(pushed('site/release')?.tags.keys() ?? [])]).to.have.members(mirrorTagsOf(release));
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
      expect([...(pushed('site/release')?.tags.keys() ?? [])]).to.have.members(mirrorTagsOf(release));
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

describe('mirrorRelease from a directory, with no network', () => {
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

describe('mirrorRelease from a directory in which oc kept the signature of one architecture', () => {
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

describe('mirrorRelease with additional images', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  let workshop: Workshop;
  let mirroring: Mirroring;
  const site = useDockerRegistry();
  let [tool, operator]: ExtraImage[] = [];

  beforeEach(async () => {
    workshop = await openWorkshop();
    mirroring = new Mirroring(workshop);
    const { host: registry, content } = workshop.registry;
    tool = extraImage({ registry, repository: 'tools/debug', seed: 'a' });
    operator = extraImage({ registry, repository: 'osus/operator', seed: 'b' });
    const contents = new TestContent();
    addAttachment(contents, { registry, repository: 'tools/debug', digest: tool.digest });
    for (const each of [tool, operator, contents]) each.addTo(content);
  });
  afterEach(() => workshop.close());

  const images = (): string[] => [
    `--additional-image=${tool?.tagged ?? ''}`,
    `--additional-image=${operator?.pullspec ?? ''}`,
  ];
  const files = async (folder: string): Promise<{ kind: string; spec: object }[]> => {
    const names = (await readdir(mirroring.path(folder))).sort();
    const texts = await Promise.all(names.map((name) => readFile(mirroring.path(folder, name), 'utf8')));
    return texts.map((text) => parseAllDocuments(text)[0]?.toJS() as { kind: string; spec: object });
  };
  const entry = (from: string, to: string) => ({
    source: `${workshop.registry.host}/${from}`,
    mirrors: [`${site.host}/${to}`],
  });

  it('puts each into a repository beside that of the release, with its signature and its mirrors', async () => {
    const to = `--to=${site.host}/site/release`;
    const { code, stdout, stderr } = await mirroring.run([to, '--config-to-dir=config', ...images()]);
    expect(code, stderr).to.equal(0);
    expect(stderr).to.contain('warning: 2 images not covered by the release signature');
    expect(await listTags(`${site.host}/site/tools/debug`)).to.have.members([
      'v1',
      attachmentTag(tool?.digest ?? 'sha256:'),
    ]);
    expect(stdout).to.contain(`${tool?.digest ?? ''} ${site.host}/site/tools/debug:v1\n`);
    await pullWhole(`${site.host}/site/osus/operator@${operator?.digest ?? ''}`, mirroring.path('operator'));
    expect((await files('config/mirrors')).map(({ kind, spec }) => [kind, spec])).to.deep.include.members([
      ['ImageDigestMirrorSet', { imageDigestMirrors: [entry('osus/operator', 'site/osus/operator')] }],
      ['ImageTagMirrorSet', { imageTagMirrors: [entry('tools/debug', 'site/tools/debug')] }],
    ]);
    expect(stdout).to.contain('kind: ImageTagMirrorSet');
  });

  it('takes them along in a directory, which verify reads, and from it without a network', async () => {
    await mirroring.succeed(['--to-dir=mirror', ...images()]);
    await Promise.all([workshop.registry.stop(), workshop.signatures.stop()]);
    const trust = `--trust-fingerprint=${workshop.key.fingerprint}`;
    const verified = await runProgram(workshop.folder, 'verify', ['mirror', trust]);
    expect(verified.code, verified.stdout + verified.stderr).to.equal(0);
    expect(verified.stdout).to.contain(tool?.digest);
    const args = ['--from-dir=mirror', `--to=${site.host}/again/release`];
    const config = ['--config-to-dir=mirror/config'];
    await mirroring.succeed([...args, ...config], workshop.release.version);
    await mkdir(mirroring.path('copies'));
    await pullWhole(`${site.host}/again/tools/debug:v1`, mirroring.path('copies/tool'));
    expect(await listTags(`${site.host}/again/tools/debug`)).to.include(attachmentTag(tool?.digest ?? 'sha256:'));
    expect((await files('mirror/config/mirrors')).map(({ kind }) => kind)).to.have.members([
      'ImageDigestMirrorSet',
      'ImageDigestMirrorSet',
      'ImageTagMirrorSet',
    ]);
    const again = await runProgram(workshop.folder, 'verify', ['mirror', trust]);
    expect(again.code, again.stdout + again.stderr).to.equal(0);
    const missing = await mirroring.fail([...args, '--additional-image=quay.io/a/b:v2'], 1, workshop.release.version);
    expect(missing).to.contain('does not have quay.io/a/b:v2 beside the release');
  });

  it('refuses two images that would get the same name, and needs a destination', async () => {
    expect(await mirroring.fail(['--config-to-dir=c', ...images()], 2)).to.match(/--additional-image needs --to/);
    const second = await startRegistry();
    const other = extraImage({ registry: second.host, repository: 'tools/debug', seed: 'c' });
    other.addTo(second.content);
    const both = [...images(), `--additional-image=${other.tagged}`];
    const stderr = await mirroring.fail([`--to=${site.host}/x/release`, ...both], 2);
    await second.stop();
    expect(stderr).to.match(/tools\/debug:v1\S+ and \S+ would both become \S+\/x\/tools\/debug:v1/);
  });
});

describe('mirrorRelease between registries', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  let workshop: Workshop;
  let mirroring: Mirroring;
  const site = useDockerRegistry();

  beforeEach(async () => {
    workshop = await openWorkshop();
    mirroring = new Mirroring(workshop);
  });
  afterEach(() => workshop.close());

  it('names the original sources in mirror sets if the release comes from an inner mirror', async () => {
    const { registry, release } = workshop;
    const tool = extraImage({ registry: registry.host, repository: 'tools/debug' });
    tool.addTo(registry.content);
    const inner = [`--to=${site.host}/inner/release`, '--config-to-dir=inner', `--additional-image=${tool.pullspec}`];
    const made = JSON.parse(await mirroring.succeed([...inner, '-o', 'json'])) as { mirrorSets: object[] };
    await writeFile(mirroring.path('idms.yaml'), made.mirrorSets.map((set) => JSON.stringify(set)).join('\n---\n'));
    registry.content.repositories.clear();
    const source = `${site.host}/inner/release@${release.digest}`;
    const named = `--additional-image=${site.host}/inner/tools/debug@${tool.digest}`;
    const enclave = [`--to=${site.host}/enclave/release`, '--idms-file=idms.yaml', named, '-o', 'json'];
    const outcome = JSON.parse(await mirroring.succeed(enclave, source)) as { mirrorSets: object[]; release: string };
    // The name of a mirror set depends on its content.
    const specs = (sets: object[]): string =>
      JSON.stringify(sets).replaceAll(/release-mirror-\w{8}/g, 'release-mirror');
    expect(specs(outcome.mirrorSets)).to.equal(specs(made.mirrorSets).replaceAll('/inner/', '/enclave/'));
    expect(outcome.release).to.equal(release.pullspec);
  });

  it('mounts blobs of a release that the same run put into another repository', async () => {
    const next = await addRelease(workshop, { version: '4.12.5' });
    const { code, stderr } = await mirroring.run(
      [`--to=${site.host}/each/\${version}`],
      `${workshop.release.pullspec},${next.pullspec}`,
    );
    expect(code, stderr).to.equal(0);
    const counts = [...stderr.matchAll(/^(\d+) blobs copied .*?(?:, (\d+) mounted.*)?$/gm)].map(
      ([, copied, mounted]) => [Number(copied), Number(mounted ?? 0)],
    );
    expect(counts).to.have.length(2);
    // The layers of the components are the same; only the configurations and the payload differ.
    expect(counts[1]?.[1]).to.be.at.least(5);
    expect(counts[1]?.[0]).to.be.lessThan(counts[0]?.[0] ?? 0);
    await pullWhole(`${site.host}/each/4.12.5:${next.tag}-rhel-coreos-8`, mirroring.path('copy'));
  });
});
