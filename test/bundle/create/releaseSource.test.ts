import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { serveContent } from '../../../lib/content/server.ts';
import { releaseRepository } from '../../../lib/content/store/directory.ts';
import { openLocation } from '../../../lib/content/store/location.ts';
import { startRegistry } from '../../fakes/registry/registry.ts';
import { makeAuthority, type Authority } from '../../support/certificates.ts';
import {
  digestOfFile,
  expectFailure,
  openWorkshop,
  type ProgramOptions,
  type Workshop,
} from '../../support/content/creation.ts';
import { pushRelease, type PushOptions } from '../../support/content/push.ts';
import { makeContext } from '../../support/context.ts';
import {
  basicUser,
  startDockerRegistry,
  type DockerRegistry,
  type DockerRegistryOptions,
} from '../../support/dockerRegistry.ts';
import { startDockerTokens, type DockerTokens } from '../../support/dockerTokens.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';
import { layOutAsOc } from '../../support/release/mirrorDirectory.ts';

const idms = (source: string, ...mirrors: string[]): string =>
  JSON.stringify({
    apiVersion: 'config.openshift.io/v1',
    kind: 'ImageDigestMirrorSet',
    metadata: { name: 'release' },
    spec: { imageDigestMirrors: [{ source, mirrors, mirrorSourcePolicy: 'NeverContactSource' }] },
  });

describe('create from a real registry', function () {
  requirePeer(this, 'docker-registry', 'skopeo', 'tar');
  let authority: Authority;
  let tokens: DockerTokens;
  let workshop: Workshop;
  let expected: string;
  // Empty if the suite is skipped.
  const closing: (() => Promise<void>)[] = [];

  before(async () => {
    authority = await makeAuthority();
    closing.push(() => authority.remove());
    tokens = await startDockerTokens({ users: { [basicUser.username]: basicUser.password } });
    closing.push(() => tokens.stop());
    const components = ['etcd', 'machine-config-operator'];
    // All names are those of quay.io, so that each registry must give the same bundle.
    workshop = await openWorkshop({
      release: { registry: 'quay.io', arch: 'multi', components, listOfOne: 'etcd' },
    });
    closing.push(() => workshop.close());
    expected = await digestOfFile(await workshop.make(await changesFor(workshop.registry.host)));
  });
  after(async () => {
    await Promise.all(closing.map((close) => close()));
  });

  const changesFor = async (host: string): Promise<ProgramOptions> => ({
    'idms-file': await workshop.write('idms.yaml', idms('quay.io', host)),
    'signature-store': workshop.signatures.url,
  });
  const create = async (options: DockerRegistryOptions, push: PushOptions, changes: ProgramOptions): Promise<void> => {
    await using registry: DockerRegistry = await startDockerRegistry({ ...options, inMemory: true });
    await pushRelease(workshop.release, registry.url, push);
    await rm(workshop.output, { recursive: true });
    const { username, password } = basicUser;
    const auth = Buffer.from(`${username}:${password}`).toString('base64');
    const secret = await workshop.write('auth.json', JSON.stringify({ auths: { [registry.host]: { auth } } }));
    const path = await workshop.make({ ...(await changesFor(registry.host)), ...changes, 'pull-secret': secret });
    expect(await digestOfFile(path)).to.equal(expected);
  };
  const basic = `Basic ${Buffer.from(`${basicUser.username}:${basicUser.password}`).toString('base64')}`;

  it('with TLS of an authority of its own and a password', async () => {
    const certificate = await authority.issue();
    await create(
      { certificate, authentication: 'basic' },
      { ca: authority.certificate, authorization: () => basic },
      { insecure: undefined, 'certificate-authority': authority.certificateFile },
    );
  });

  it('with a token server', async () => {
    await create({ authentication: tokens }, { authorization: tokens.authorization }, {});
    expect(tokens.requests.some(({ user }) => user === basicUser.username)).to.equal(true);
  });

  it('writes images that skopeo reads with the same digests', async () => {
    const context = makeContext();
    const { release } = workshop;
    const location = await openLocation({ kind: 'archive', path: workshop.bundle }, context);
    const server = await serveContent((name) => location.repository(name), {}, context);
    try {
      const at = `${server.host}:${server.port}/${releaseRepository}`;
      const skopeo = (...args: string[]): Promise<string> => runSuccessfully('skopeo', args);
      const raw = await skopeo('inspect', '--raw', '--tls-verify=false', `docker://${at}:${release.tag}`);
      const manifests = workshop.registry.content.repositories.get(release.releaseRepository)?.manifests;
      expect(raw).to.equal(manifests?.get(release.digest)?.bytes.toString());
      const copied = join(workshop.folder, 'copied');
      for (const name of release.images.keys()) {
        await skopeo(
          'copy',
          '--all',
          '--preserve-digests',
          '--src-tls-verify=false',
          `docker://${at}:${release.tag}-${name}`,
          `dir:${copied}-${name}`,
        );
        const digest = release.images.get(name)?.digest ?? '';
        const bytes = workshop.registry.content.repositories
          .get(release.componentRepository)
          ?.manifests.get(digest)?.bytes;
        expect(await readFile(`${copied}-${name}/manifest.json`)).to.deep.equal(bytes);
      }
    } finally {
      await server.close();
      await location[Symbol.asyncDispose]();
    }
  });
});

describe('create --from-dir', () => {
  let workshop: Workshop;
  let path: string;
  let folder: string;
  let host: string;
  /** The servers are stopped when the bundle and its unpacked folder exist. */
  before(async function () {
    workshop = await openWorkshop();
    requirePeer(this, 'tar');
    ({ host } = workshop.registry);
    path = await workshop.make();
    folder = join(workshop.folder, 'unpacked');
    await mkdir(folder);
    await runSuccessfully('tar', ['-xf', path, '-C', folder]);
    await Promise.all([workshop.registry.stop(), workshop.signatures.stop()]);
  });
  after(() => workshop.close());
  /** Returns a copy of the unpacked bundle, to change. */
  const copy = async (name: string): Promise<string> => {
    const to = join(workshop.folder, name);
    await cp(folder, to, { recursive: true, verbatimSymlinks: true });
    return to;
  };

  it('creates the same bundle from an unpacked one, and asks no server for signatures', async () => {
    const output = join(workshop.folder, 'again');
    const planned = await workshop.create({ 'from-dir': folder, output, 'dry-run': true });
    const { stdout, stderr } = await workshop.create({ 'from-dir': folder, output });
    expect(await digestOfFile(join(output, basename(path)))).to.equal(await digestOfFile(path));
    // Nothing is downloaded, and no registry is asked.
    expect(planned.stdout + planned.stderr + stdout + stderr).not.to.match(/download|fetch/i);
    expect(planned.stderr + stderr).not.to.include(host);
    expect(planned.stdout).to.match(/^ {2}To copy +\d/m);
    expect(stderr).to.match(/^copying [\d.]+ .iB in \d+ blobs of \d+ images; /m);
    expect(stdout).to.match(/^ {2}Copied +\d/m);
  });

  it('makes the same bundle of a bundle, and of one in volumes', async () => {
    const output = join(workshop.folder, 'in-volumes');
    const split = await workshop.make({ 'from-dir': workshop.bundle, output, 'volume-size': '60k' });
    expect((await readdir(output)).sort().slice(0, 2)).to.deep.equal(
      ['000', '001'].map((number) => `upgrade-4.12.4-x86_64.tar.${number}`),
    );
    for (const [index, source] of [split, `${split}.001`, output].entries()) {
      const again = join(workshop.folder, `joined-${index}`);
      const path = await workshop.make({ 'from-dir': source, output: again });
      expect(await digestOfFile(path)).to.equal(await digestOfFile(workshop.bundle));
    }
  });

  it('takes the repository of the release from the unpacked bundle, unless another is given', async () => {
    const from = { 'from-dir': await copy('renamed'), 'dry-run': true, format: 'json' } as const;
    const releaseOf = async (repository: string | undefined): Promise<string> => {
      const outcome = await workshop.create({ ...from, 'release-repository': repository });
      expect(outcome.code, outcome.stderr).to.equal(0);
      return (JSON.parse(outcome.stdout) as { release: string }).release;
    };
    expect(await releaseOf(undefined)).to.equal(workshop.release.pullspec);
    expect(await releaseOf('registry.test/own')).to.equal(`registry.test/own@${workshop.release.digest}`);
    await workshop.write('renamed/metadata.json', '{');
    expect(await releaseOf(undefined)).to.match(/^quay\.io\/openshift-release-dev\/ocp-release@/);
  });

  it('ignores credentials, even invalid ones', async () => {
    await mkdir(join(workshop.folder, '.docker'));
    await workshop.write('.docker/config.json', '{');
    const output = join(workshop.folder, 'without-credentials');
    await workshop.make({ 'from-dir': folder, output });
    await rm(join(workshop.folder, '.docker'), { recursive: true });
  });

  it('makes a bundle of a directory that oc mirrored', async () => {
    const { release, key } = workshop;
    const mirrored = join(workshop.folder, 'oc');
    const repositories = new Map([[releaseRepository, { manifests: new Map(), tags: new Map() }]]);
    const content = { blobs: release.content.blobs, repositories };
    for (const { manifests } of release.content.repositories.values()) {
      for (const [digest, manifest] of manifests)
        content.repositories.get(releaseRepository)?.manifests.set(digest, manifest);
    }
    content.repositories.get(releaseRepository)?.tags.set(release.tag, release.digest);
    await layOutAsOc(mirrored, content);
    // oc writes the signature as JSON into config/.
    const signed = await readFile(
      join(folder, 'config', 'signature', 'sha256', `${release.digest.slice(7, 23)}.yaml`),
      'utf8',
    );
    await mkdir(join(mirrored, 'config'));
    const { parse } = await import('yaml');
    await writeFile(
      join(mirrored, 'config', `signature-sha256-${release.digest.slice(7, 23)}.json`),
      JSON.stringify(parse(signed)),
    );
    const made = await workshop.make({
      'from-dir': mirrored,
      output: join(workshop.folder, 'of-oc'),
      'trust-fingerprint': key.fingerprint,
    });
    expect(await digestOfFile(made)).to.match(/^sha256:/);
  });

  it('refuses a blob that was cut short in the directory, and names the image', async () => {
    const damaged = await copy('unpacked-cut');
    const layer = JSON.parse(
      String(
        workshop.release.content.repositories
          .get(workshop.release.componentRepository)
          ?.manifests.get(workshop.release.images.get('machine-os-content')?.digest ?? '')?.bytes,
      ),
    ) as { layers: { digest: string }[] };
    await writeFile(
      join(damaged, 'v2', releaseRepository, 'blobs', layer.layers.at(-1)?.digest ?? ''),
      Buffer.alloc(100),
    );
    const output = join(workshop.folder, 'cut');
    await expectFailure(await workshop.create({ 'from-dir': damaged, output }), output, [
      /^error \([a-z-]+\): machine-os-content: source: .*unpacked/m,
      /100 bytes/,
    ]);
  });

  it('says that a folder is no mirror directory, or has not that version', async () => {
    const { output } = workshop;
    await expectFailure(
      await workshop.create({ 'from-dir': join(workshop.folder, 'nowhere'), output: `${output}-2` }),
      `${output}-2`,
      [/^error \([a-z-]+\): there is no .*nowhere/m, /^hint: Check the path/m],
    );
    const outcome = await workshop.create({
      'from-dir': folder,
      version: '4.12.5',
      output: `${output}-2`,
    });
    await expectFailure(outcome, `${output}-2`, [
      /^error \([a-z-]+\): .*unpacked.* has no release 4\.12\.5/m,
      /^hint: .*4\.12\.4/m,
    ]);
  });
});

describe('create --idms-file', () => {
  it('asks mirrors first, in their order, then the source', async () => {
    await using workshop = await openWorkshop();
    await using mirror = await startRegistry();
    const { release, registry } = workshop;
    release.addTo(mirror.content);
    const missing = release.images.get('machine-os-content')?.digest ?? '';
    mirror.content.repositories.get(release.componentRepository)?.manifests.delete(missing);
    const policy = idms(registry.host, '127.0.0.1:9', mirror.host).replace(
      'NeverContactSource',
      'AllowContactingSource',
    );
    const direct = await digestOfFile(await workshop.make({ output: join(workshop.folder, 'direct') }));
    const before = registry.requests.length;
    const path = await workshop.make({
      'idms-file': await workshop.write('idms.yaml', policy.replace('"127.0.0.1:9",', '')),
    });
    expect(await digestOfFile(path)).to.equal(direct);
    const asked = registry.requests
      .slice(before)
      .filter(({ method, path: each }) => method === 'GET' && each.includes('/manifests/'))
      .map(({ path: each }) => each.split('/').at(-1));
    expect(asked.filter((each) => each?.startsWith('sha256:'))).to.include(missing);
    expect(asked).not.to.include(release.digest);
    const unreachable = await workshop.write('idms-2.yaml', policy);
    const slow = await workshop.make({
      'idms-file': unreachable,
      output: join(workshop.folder, 'second'),
      'dry-run': true,
    });
    expect(slow).to.include('second');
  });

  it('warns once that signatures may be missing that a mirror lacks, when their source cannot be asked', async () => {
    await using workshop = await openWorkshop({ release: { registry: '127.0.0.1:9' } });
    const policy = idms('127.0.0.1:9', workshop.registry.host).replace('NeverContactSource', 'AllowContactingSource');
    const outcome = await workshop.create({ 'idms-file': await workshop.write('idms.yaml', policy) });
    expect(outcome.code, outcome.stderr).to.equal(0);
    const warnings = outcome.stderr.match(/^warning: .*$/gm) ?? [];
    // One warning, and not one for each image.
    expect(warnings).to.have.length(1);
    expect(warnings[0]).to.match(/sigstore signatures .* 127\.0\.0\.1:9\/\S+ lack are treated as missing/);
  });

  it('asks a mirror of digests and of tags once', async () => {
    await using workshop = await openWorkshop();
    await using mirror = await startRegistry();
    const { host } = workshop.registry;
    const both = [
      idms(host, mirror.host),
      idms(host, mirror.host).replaceAll('Digest', 'Tag').replaceAll('digest', 'tag'),
    ];
    const file = await workshop.write('both.yaml', both.join('\n---\n'));
    await expectFailure(await workshop.create({ 'idms-file': file }), workshop.output, [/^error \([a-z-]+\): /m]);
    const asked = mirror.requests.filter(({ path }) => path.endsWith(`/manifests/${workshop.release.tag}`));
    expect(asked).to.have.lengthOf(1);
  });

  it('names the source that it must not contact without a mirror', async () => {
    await using workshop = await openWorkshop();
    const file = await workshop.write('idms.yaml', idms(workshop.registry.host));
    await expectFailure(await workshop.create({ 'idms-file': file }), workshop.output, [/^error \([a-z-]+\): /m]);
    await expectFailure(await workshop.create({ 'idms-file': 'nowhere.yaml' }), workshop.output, [
      /^error \([a-z-]+\): .*nowhere\.yaml/m,
    ]);
  });
});
