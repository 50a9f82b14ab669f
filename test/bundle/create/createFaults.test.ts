import { readdir } from 'node:fs/promises';
import { expect } from 'chai';
import { generatedBody } from '../../fakes/registry/content.ts';
import type { StoredManifest } from '../../fakes/registry/registry.ts';
import { blobBytes, digestOfFile, expectFailure, openWorkshop, type Workshop } from '../../support/content/creation.ts';
import type { ReleaseOptions } from '../../support/release/release.ts';

describe('create against a registry that is wrong', () => {
  let workshop: Workshop;

  beforeEach(async () => {
    workshop = await openWorkshop();
  });
  afterEach(() => workshop.close());

  const fails = async (...messages: RegExp[]): Promise<void> => {
    await expectFailure(await workshop.create(), workshop.output, messages);
  };
  /** Returns an image of the release, or the payload for `release`, with its manifest in the registry. */
  const imageOf = (name: string): { stored: StoredManifest; digest: string; layers: string[]; config: string } => {
    const { content, release } = { content: workshop.registry.content, release: workshop.release };
    const digest = name === 'release' ? release.digest : (release.images.get(name)?.digest ?? '');
    const repository = name === 'release' ? release.releaseRepository : release.componentRepository;
    const stored = content.repositories.get(repository)?.manifests.get(digest);
    if (!stored) throw new Error(`there is no ${name}`);
    const { config, layers } = JSON.parse(stored.bytes.toString()) as {
      config: { digest: string };
      layers: { digest: string }[];
    };
    return { stored, digest, layers: layers.map((layer) => layer.digest), config: config.digest };
  };
  const ownLayerOf = (name: string): string => imageOf(name).layers.at(-1) ?? '';
  const flip = (bytes: Buffer): Buffer => {
    const flipped = Buffer.from(bytes);
    flipped.writeUInt8(flipped.readUInt8(bytes.length >> 1) ^ 0xff, bytes.length >> 1);
    return flipped;
  };
  const alterBlob = (digest: string, alter: (bytes: Buffer) => Buffer): void => {
    const { blobs } = workshop.registry.content;
    blobs.set(digest, alter(blobs.get(digest) as Buffer));
  };

  describe('whose content is corrupt', () => {
    it('refuses a layer that is cut short, and names its image and the registry', async () => {
      const layer = ownLayerOf('machine-config-operator');
      alterBlob(layer, (bytes) => bytes.subarray(0, 1000));
      await fails(
        /^error \([a-z-]+\): machine-config-operator: source: /m,
        /1000 bytes/,
        new RegExp(workshop.registry.host),
        new RegExp(layer),
      );
    });

    it('refuses a layer with a flipped byte, and resumes after it is repaired', async () => {
      const layer = ownLayerOf('machine-config-operator');
      alterBlob(layer, flip);
      await fails(/^error \([a-z-]+\): machine-config-operator: source: /m, /corrupt/, new RegExp(layer), /^hint: /m);
      alterBlob(layer, flip);
      const before = workshop.registry.requests.length;
      await workshop.make();
      const again = workshop.registry.requests.slice(before).filter(({ path }) => path.includes('/blobs/'));
      // The payload’s metadata is read before the run resumes.
      const repositories = new Set(again.map(({ path }) => path));
      expect([...repositories].filter((path) => path.endsWith(layer))).to.have.lengthOf(1);
      expect(repositories.size).to.equal(3);
    });

    it('refuses a flipped manifest of a component', async () => {
      const { stored, digest } = imageOf('machine-os-content');
      stored.bytes = flip(stored.bytes);
      await fails(/^error \([a-z-]+\): machine-os-content: /m, /corrupt/, new RegExp(digest));
    });

    it('refuses a flipped manifest of the release before any blob is fetched', async () => {
      const { stored, digest } = imageOf('release');
      stored.bytes = flip(stored.bytes);
      const changes = { version: undefined, 'release-image': workshop.release.pullspec };
      await expectFailure(await workshop.create(changes), workshop.output, [
        /^error \([a-z-]+\): /m,
        /corrupt/,
        new RegExp(digest),
      ]);
      expect(blobBytes(workshop.registry)).to.equal(0);
    });

    it('refuses the manifest of a tag if the registry states another digest', async () => {
      const { stored, digest } = imageOf('release');
      stored.bytes = Buffer.concat([stored.bytes, Buffer.from(' ')]);
      await fails(/^error \([a-z-]+\): /m, /corrupt/, new RegExp(digest));
    });

    it('recognises a flipped layer of release manifests by its digest', async () => {
      alterBlob(ownLayerOf('release'), flip);
      await fails(/^error \([a-z-]+\): /m, /corrupt/, new RegExp(ownLayerOf('release')));
    });

    it('names a layer that all images share once, with how many need it', async () => {
      const [base = ''] = imageOf('release').layers;
      alterBlob(base, flip);
      await fails(/^error \([a-z-]+\): release(?:, [a-z0-9-]+){4}: source: /m, /corrupt/);
    });

    it('reads of an endless manifest no more than a manifest may have', async () => {
      workshop.registry.fault(/(GET|HEAD) .*\/manifests\//, {
        headers: { 'docker-content-digest': null },
        answer: {
          status: 200,
          headers: { 'content-type': 'application/vnd.docker.distribution.manifest.v2+json' },
          body: generatedBody(10 * 1024 ** 3),
        },
      });
      const outcome = await workshop.start().outcome;
      await expectFailure(outcome, workshop.output, [
        /^error \([a-z-]+\): /m,
        /(more than|exceeds) the limit of 4194304/,
      ]);
      expect(outcome.peakMemory).to.be.below(200 * 1024 ** 2);
    });

    it('reads of a manifest that does not say how long it is no more than a manifest may have', async () => {
      const of = (method: string): RegExp => new RegExp(`${method} .*/manifests/${workshop.release.tag}`);
      const headers = { 'content-type': 'application/vnd.docker.distribution.manifest.v2+json' };
      workshop.registry.fault(of('HEAD'), { answer: { status: 405 } });
      workshop.registry.fault(of('GET'), {
        chunked: true,
        answer: { status: 200, headers, body: generatedBody(1e10) },
      });
      await fails(/^error \([a-z-]+\): /m, /(more than|exceeds) the limit of 4194304/);
      expect(workshop.registry.requests.at(-1)?.bytesSent).to.be.below(64 * 1024 ** 2);
    });
  });

  describe('that lacks something', () => {
    it('names the component whose image is missing, and the repository', async () => {
      const { digest } = imageOf('machine-os-content');
      workshop.registry.content.repositories.get(workshop.release.componentRepository)?.manifests.delete(digest);
      const { registry, componentRepository } = workshop.release;
      await fails(
        new RegExp(
          `^error \\([a-z-]+\\): machine-os-content: source: ${registry}/${componentRepository} has no ` +
            `manifest ${digest}`,
          'm',
        ),
        /^hint: /m,
      );
    });

    it('names all components whose images are missing', async () => {
      const manifests = workshop.registry.content.repositories.get(workshop.release.componentRepository)?.manifests;
      for (const name of ['machine-os-content', 'machine-config-operator']) manifests?.delete(imageOf(name).digest);
      await fails(
        /^error \([a-z-]+\): 2 of 5 images could not be copied/m,
        /^ +machine-os-content: /m,
        /^ +machine-config-operator: /m,
      );
    });

    it('names the image whose layer is missing', async () => {
      const layer = ownLayerOf('machine-os-content');
      workshop.registry.content.blobs.delete(layer);
      await fails(/^error \([a-z-]+\): machine-os-content: source: /m, new RegExp(`has no blob ${layer}`));
    });

    it('fetches a shared layer from another repository of the release if it is missing in one', async () => {
      const [base = ''] = imageOf('release').layers;
      const { releaseRepository } = workshop.release;
      workshop.registry.fault(new RegExp(`GET /v2/${releaseRepository}/blobs/${base}`), { answer: { status: 404 } });
      const path = await workshop.make();
      expect(await digestOfFile(path)).to.match(/^sha256:/);
    });

    it('names versions near an unknown one', async () => {
      const tags = workshop.registry.content.repositories.get(workshop.release.releaseRepository)?.tags;
      for (const version of ['4.12.3', '4.13.1']) tags?.set(`${version}-x86_64`, workshop.release.digest);
      const outcome = await workshop.create({ version: '4.12.5' });
      await expectFailure(outcome, workshop.output, [
        /^error \([a-z-]+\): .* has no release 4\.12\.5 for x86_64/m,
        /^hint: .*4\.12\.4, 4\.12\.3, 4\.13\.1/m,
      ]);
    });

    it('names the architectures that a version exists for', async () => {
      const outcome = await workshop.create({ arch: 'arm64' });
      await expectFailure(outcome, workshop.output, [
        /no release 4\.12\.4 for aarch64/,
        /^hint: .*x86_64.*\ntry: --arch, --release-repository$/m,
      ]);
    });
  });

  describe('that is slow, busy or unreliable', () => {
    it('says how much came of blobs that are always cut short, of which images', async () => {
      const names = ['machine-os-content', 'machine-config-operator'];
      for (const name of names) {
        const fault = { cut: { after: 3000, how: 'end' }, ignoreRange: true } as const;
        workshop.registry.fault(new RegExp(`GET .*/blobs/${ownLayerOf(name)}`), fault);
      }
      const where = `${workshop.registry.host}/${workshop.release.componentRepository}`;
      await fails(
        /^error \([a-z-]+\): 2 of 5 images could not be copied:$/m,
        ...names.map((name) => {
          const layer = ownLayerOf(name);
          const said = `${name}: source: ${where}: blob ${layer} was interrupted after 3000 of \\d+ bytes each time`;
          return new RegExp(`^  ${said}$`, 'm');
        }),
        /^hint: .*Push the image again/m,
      );
    });

    it('names the release and its repository if the network fails while the payload is read', async () => {
      const { host } = workshop.registry;
      const elsewhere = { status: 307, headers: { location: `https://${host}/` } };
      workshop.registry.fault(new RegExp(`GET .*/blobs/${ownLayerOf('release')}`), { answer: elsewhere });
      const said = `release: source ${host}/[a-z/-]+: sha256:[0-9a-f]{64}: ${host} speaks http, not https`;
      await fails(new RegExp(`^error \\([a-z-]+\\): ${said}`, 'm'), /^hint: /m);
    });

    it('fetches nothing twice, even if several images share it', async () => {
      await workshop.make();
      const blobs = workshop.registry.requests.filter(
        ({ method, path }) => method === 'GET' && path.includes('/blobs/'),
      );
      const [config, manifests] = [imageOf('release').config, ownLayerOf('release')];
      const paths = blobs
        .map(({ path }) => path.split('/').at(-1) ?? '')
        .filter((path) => ![config, manifests].includes(path));
      expect(new Set(paths).size).to.equal(paths.length);
    });
  });
});

describe('create of a payload that is hostile or malformed', () => {
  const release =
    (options: ReleaseOptions, ...messages: RegExp[]) =>
    async (): Promise<void> => {
      await using workshop = await openWorkshop({ release: options });
      await expectFailure(await workshop.create(), workshop.output, [/^error \([a-z-]+\): /m, ...messages]);
      expect(await readdir(workshop.folder)).to.deep.equal([]);
    };

  for (const name of ['../../../etc/cron.d/evil', 'sha256:0']) {
    it(
      `refuses a component called ${JSON.stringify(name).slice(0, 40)}`,
      release({ components: ['etcd', name] }, /has a name that cannot be a component’s/),
    );
  }

  it('shows nothing of a hostile name that a terminal would obey', async () => {
    const workshop = await openWorkshop({ release: { components: ['etcd', 'a\u001b[31mred'] } });
    const { stderr } = await workshop.create();
    await workshop.close();

    expect(stderr).not.to.match(/\u001b/);
  });

  it(
    'refuses an image that is no release',
    release(
      { files: { 'image-references': undefined } },
      /has no release-manifests\/image-references/,
      /^hint: .*not a release/m,
    ),
  );
  it(
    'refuses references that are not JSON',
    release({ files: { 'image-references': '{' } }, /image-references is not JSON/),
  );
  it('refuses another version than its tag says', async () => {
    await using workshop = await openWorkshop();
    workshop.registry.content.repositories
      .get(workshop.release.releaseRepository)
      ?.tags.set('4.12.9-x86_64', workshop.release.digest);
    await expectFailure(await workshop.create({ version: '4.12.9' }), workshop.output, [
      /^error \([a-z-]+\): .*is of version 4\.12\.4, not 4\.12\.9/m,
      /^hint: /m,
    ]);
  });
});
