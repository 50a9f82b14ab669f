import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { releaseRepository } from '../../lib/content/store/directory.ts';
import {
  blobBytes,
  digestOfFile,
  openWorkshop,
  type Workshop,
  type WorkshopOptions,
} from '../support/content/creation.ts';
import { requirePeer, run, runSuccessfully } from '../support/peers.ts';
import { attachmentTag } from '../support/release/attachments.ts';
import { extraImage } from '../support/release/extraImage.ts';

interface Metadata {
  formatVersion: number;
  version: string;
  arch: string;
  release: string;
  images: string[];
  components: Record<string, string>;
  extraImages: string[];
  osImages: string[];
  previous: string[];
  size: number;
  blobs: { digest: string; size: number }[];
  signatures: Record<string, { fingerprint: string; signer: string }[]>;
}

describe('create', () => {
  let workshop: Workshop;
  const open = async (options?: WorkshopOptions): Promise<void> => {
    workshop = await openWorkshop(options);
  };
  afterEach(() => workshop.close());

  /** Unpacks a bundle with tar, and returns the folder of its repository. */
  const unpack = async (path: string): Promise<{ root: string; repository: string; metadata: Metadata }> => {
    const root = join(workshop.folder, 'unpacked');
    await mkdir(root);
    await runSuccessfully('tar', ['-xf', path, '-C', root]);
    const metadata = JSON.parse(await readFile(join(root, 'metadata.json'), 'utf8')) as Metadata;
    return { root, repository: join(root, 'v2', releaseRepository), metadata };
  };

  describe('makes a bundle', function () {
    requirePeer(this, 'tar');

    it('with metadata.json first, then configuration, manifests, tags and blobs', async () => {
      await open();
      const path = await workshop.make();
      const names = (await runSuccessfully('tar', ['-tf', path])).trim().split('\n');
      const kinds = names.map(
        (name) =>
          /^(metadata\.json|config\/|v2\/openshift\/release\/(?:manifests\/sha256:|manifests\/|blobs\/sha256:))/.exec(
            name,
          )?.[1],
      );
      expect([...new Set(kinds)]).to.deep.equal([
        'metadata.json',
        'config/',
        'v2/openshift/release/manifests/sha256:',
        'v2/openshift/release/manifests/',
        'v2/openshift/release/blobs/sha256:',
      ]);
      expect(kinds.lastIndexOf('v2/openshift/release/manifests/sha256:')).to.be.below(
        kinds.indexOf('v2/openshift/release/manifests/'),
      );
      expect(new Set(names).size).to.equal(names.length);
      const { release } = workshop;
      expect(names).to.include(`config/signature/sha256/${release.digest.slice(7, 23)}.yaml`);
      for (const [name] of release.images)
        expect(names).to.include(`v2/openshift/release/manifests/${release.tag}-${name}`);
      // Independent of this machine and this time.
      const listing = await runSuccessfully('tar', ['--numeric-owner', '--full-time', '-tvf', path], {
        env: { ...process.env, TZ: 'UTC' },
      });
      for (const line of listing.trim().split('\n'))
        expect(line).to.match(/^(-rw-r--r--|lrwxrwxrwx) 0\/0 +\d+ 1980-01-01 00:00:00 /);
    });

    it('that unpacks to a mirror directory, and whose content has the right digests', async () => {
      await open();
      const { release } = workshop;
      const { root, repository, metadata } = await unpack(await workshop.make());
      for (const folder of ['blobs', 'manifests']) {
        for (const name of (await readdir(join(repository, folder))).filter((each) => each.startsWith('sha256:'))) {
          expect(
            `sha256:${createHash('sha256')
              .update(await readFile(join(repository, folder, name)))
              .digest('hex')}`,
          ).to.equal(name);
        }
      }
      const tags = (await readdir(join(repository, 'manifests'))).filter((name) => !name.startsWith('sha256:'));
      const attached = [release.digest, ...[...release.images.values()].slice(0, -1).map(({ digest }) => digest)];
      expect(tags.sort()).to.deep.equal(
        [
          release.tag,
          ...[...release.images.keys()].map((name) => `${release.tag}-${name}`),
          ...attached.map(attachmentTag),
        ].sort(),
      );
      expect(await readFile(join(repository, 'manifests', release.tag))).to.deep.equal(
        await readFile(join(repository, 'manifests', release.digest)),
      );
      expect((await readdir(join(repository, 'blobs'))).sort()).to.deep.equal(
        metadata.blobs.map(({ digest }) => digest).sort(),
      );
      expect((await readdir(root)).sort()).to.deep.equal(['config', 'metadata.json', 'v2']);
    });

    it('whose metadata names its content', async () => {
      await open({ release: { previous: ['4.11.9', '4.12.3'] } });
      const { release, key } = workshop;
      const path = await workshop.make();
      const { metadata, repository } = await unpack(path);
      expect(metadata).to.deep.include({
        formatVersion: 1,
        version: '4.12.4',
        arch: 'x86_64',
        release: release.pullspec,
      });
      expect(metadata.components).to.deep.equal(
        Object.fromEntries([...release.images].map(([name, { pullspec }]) => [name, pullspec])),
      );
      expect(metadata.images).to.deep.equal([release.pullspec, ...Object.values(metadata.components)]);
      expect(metadata.osImages).to.deep.equal(
        [metadata.components['machine-os-content'], metadata.components['rhel-coreos-8']].filter(Boolean),
      );
      expect(metadata.previous).to.deep.equal(['4.11.9', '4.12.3']);
      expect(metadata.size).to.equal((await stat(path)).size);
      expect(metadata.signatures[release.digest]).to.deep.equal([
        { fingerprint: key.fingerprint, signer: 'Test release key <release@example.com>' },
      ]);
      for (const { digest, size } of metadata.blobs)
        expect((await stat(join(repository, 'blobs', digest))).size).to.equal(size);
    });

    it('with its checksum and an UpgradeBundle beside it, and nothing else', async () => {
      await open();
      const path = await workshop.make();
      expect((await readdir(workshop.output)).sort()).to.deep.equal(
        ['', '.sha256', '.yaml'].map((suffix) => `upgrade-4.12.4-x86_64.tar${suffix}`),
      );
      expect((await run('sha256sum', ['-c', `${path}.sha256`], { cwd: workshop.output })).code).to.equal(0);
      expect(parse(await readFile(`${path}.yaml`, 'utf8'))).to.deep.equal({
        apiVersion: 'upgrade-bundle.openshift.io/v1alpha1',
        kind: 'UpgradeBundle',
        metadata: { name: '4.12.4-x86-64' },
        spec: {
          bundle: {
            digest: await digestOfFile(path),
            version: '4.12.4',
            releaseDigest: workshop.release.digest,
          },
        },
      });
    });

    it('with the ConfigMap of the signature, as the cluster wants it', async () => {
      await open();
      const { release, signatures } = workshop;
      const { root } = await unpack(await workshop.make());
      const hex = release.digest.slice(7);
      const object = parse(
        await readFile(join(root, 'config', 'signature', 'sha256', `${hex.slice(0, 16)}.yaml`), 'utf8'),
      ) as {
        kind: string;
        metadata: { namespace: string; labels: Record<string, string> };
        binaryData: Record<string, string>;
      };
      expect(object.kind).to.equal('ConfigMap');
      expect(object.metadata.namespace).to.equal('openshift-config-managed');
      expect(object.metadata.labels).to.have.property('release.openshift.io/verification-signatures');
      const [signature] = Object.values(object.binaryData);
      const stored = (signatures.files as Map<string, Buffer>).get(`/sha256=${hex}/signature-1`);
      expect(Buffer.from(signature ?? '', 'base64')).to.deep.equal(stored);
    });

    it('of a multi-arch release, with its list and all below it byte for byte', async () => {
      await open({ release: { arch: 'multi', listOfOne: 'machine-os-content' } });
      const { release, registry } = workshop;
      const { root, repository, metadata } = await unpack(await workshop.make());
      expect(metadata.release).to.equal(release.pullspec);
      for (const content of registry.content.repositories.values()) {
        for (const [digest, { bytes }] of content.manifests) {
          expect(await readFile(join(repository, 'manifests', digest))).to.deep.equal(bytes);
        }
      }
      expect(Object.keys(metadata.signatures)).to.deep.equal([release.digest, ...release.children]);
      expect(await readdir(join(root, 'config', 'signature', 'sha256'))).to.have.lengthOf(1 + release.children.length);
      expect(metadata.arch).to.equal('multi');
    });

    it('with extra images by tag and by digest', async () => {
      await open();
      const { registry, release } = workshop;
      const one = extraImage({ registry: registry.host, seed: 'one', repository: 'site/one' });
      const two = extraImage({ registry: registry.host, seed: 'two', repository: 'site/two' });
      for (const each of [one, two]) each.addTo(registry.content);
      const { metadata, repository } = await unpack(await workshop.make({ 'extra-image': [one.tagged, two.pullspec] }));
      expect(metadata.extraImages).to.deep.equal([one.pullspec, two.pullspec]);
      expect(metadata.images).to.include.members([one.pullspec, two.pullspec]);
      expect(metadata.images).to.have.lengthOf(release.images.size + 3);
      const names = await readdir(join(repository, 'manifests'));
      expect(names).to.include.members([one.digest, two.digest]);
      const extra = names.find((name) => name.includes('-extra-one-'));
      expect(await readFile(join(repository, 'manifests', extra ?? ''))).to.deep.equal(
        await readFile(join(repository, 'manifests', one.digest)),
      );
    });

    it('the same if images of the release are named as extra images', async () => {
      await open();
      const { release } = workshop;
      const plain = await digestOfFile(await workshop.make());
      const [component] = [...release.images.values()];
      const options = {
        'extra-image': [release.pullspec, component?.pullspec ?? ''],
        output: join(workshop.folder, 'named'),
      };
      expect(await digestOfFile(await workshop.make(options))).to.equal(plain);
      expect((await workshop.create(options)).stdout).to.match(/^Nothing to do/);
    });

    it('of a release image by tag or by digest, the same as by version', async () => {
      await open();
      const { release } = workshop;
      const byVersion = await digestOfFile(await workshop.make());
      const nothing = { version: undefined, arch: undefined, 'release-repository': undefined };
      for (const [name, image] of [
        ['tag', `${release.registry}/${release.releaseRepository}:${release.tag}`],
        ['digest', release.pullspec],
      ] as const) {
        const path = await workshop.make({ ...nothing, 'release-image': image, output: join(workshop.folder, name) });
        expect(path).to.equal(join(workshop.folder, name, 'upgrade-4.12.4-x86_64.tar'));
        expect(await digestOfFile(path)).to.equal(byVersion);
        const before = workshop.registry.requests.length;
        const again = await workshop.create({
          ...nothing,
          'release-image': image,
          output: join(workshop.folder, name),
        });
        expect(again.stdout).to.match(/^Nothing to do/);
        expect(
          workshop.registry.requests.slice(before).filter(({ path: each }) => each.includes('/blobs/')).length,
        ).to.be.at.most(2);
      }
    });

    it('of no release image for another architecture than is asked for', async () => {
      await open({ release: { arch: 's390x' } });
      const { pullspec } = workshop.release;
      for (const [arch, code] of [
        ['x86_64', 1],
        ['s390x', 0],
        [undefined, 0],
      ] as const) {
        const outcome = await workshop.create({ version: undefined, arch, 'release-image': pullspec, 'dry-run': true });
        expect(outcome.code, outcome.stderr).to.equal(code);
        if (code === 1) expect(outcome.stderr).to.contain('is of architecture s390x, not x86_64');
      }
    });

    it('keeps to the number of transfers at a time', async () => {
      await open();
      workshop.registry.fault(/./, { delay: 20 });
      await workshop.make({ 'max-per-registry': '2' });
      expect(workshop.registry.peakActive).to.be.at.most(4);
    });
  });

  describe('with --dry-run', () => {
    it('writes nothing, and says what it would fetch', async () => {
      await open();
      const { code, stdout } = await workshop.create({ 'dry-run': true, format: 'json' });
      expect(code).to.equal(0);
      const planned = JSON.parse(stdout) as { outcome: string; path: string; size: number; fetched: number };
      expect(planned).to.include({ outcome: 'planned', path: workshop.bundle });
      expect(await readdir(workshop.folder)).to.deep.equal([]);
      expect(blobBytes(workshop.registry)).to.be.below(planned.fetched);
      const made = await workshop.create({ format: 'json' });
      expect(JSON.parse(made.stdout)).to.deep.include({
        size: planned.size,
        fetched: planned.fetched,
        outcome: 'created',
      });
    });

    it('leaves a finished bundle without its checksum as it is', async () => {
      await open();
      const path = await workshop.make();
      await rm(`${path}.sha256`);
      const { code, stdout } = await workshop.create({ 'dry-run': true });
      expect(code).to.equal(0);
      expect(stdout).to.match(/^Nothing to do/);
      expect((await readdir(workshop.output)).sort()).to.deep.equal([
        'upgrade-4.12.4-x86_64.tar',
        'upgrade-4.12.4-x86_64.tar.yaml',
      ]);
    });
  });

  describe('gives the same bytes', () => {
    const mirrored: WorkshopOptions = {
      release: { registry: 'quay.io', verification: { publicKey: '', stores: [] }, components: 8 },
    };
    const changesOf = async (): Promise<Record<string, string>> => {
      const mirrors = [
        { source: 'quay.io', mirrors: [workshop.registry.host], mirrorSourcePolicy: 'NeverContactSource' },
      ];
      const set = {
        apiVersion: 'config.openshift.io/v1',
        kind: 'ImageDigestMirrorSet',
        spec: { imageDigestMirrors: mirrors },
      };
      return {
        'idms-file': await workshop.write('idms.yaml', JSON.stringify(set)),
        'signature-store': workshop.signatures.url,
        'signature-keyring': await workshop.write('key.asc', workshop.key.publicKey),
      };
    };

    it('in any order of finished downloads, with any registry, folder and number of transfers', async () => {
      const digests = new Set<string>();
      for (const [width, delayOf] of [
        ['6', (path: string) => parseInt(path.slice(-2), 16)],
        ['1', () => 0],
        ['17', (path: string) => 255 - parseInt(path.slice(-2), 16)],
      ] as const) {
        await open(mirrored);
        for (const digest of workshop.release.blobs.keys()) {
          workshop.registry.fault(new RegExp(`GET .*/blobs/${digest}`), { delay: delayOf(digest) });
        }
        const path = await workshop.make({ ...(await changesOf()), 'max-per-registry': width });
        digests.add(await digestOfFile(path));
        if (width !== '17') await workshop.close();
      }
      expect([...digests]).to.have.lengthOf(1);
    });
  });
});
