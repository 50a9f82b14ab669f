import { readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { inspectBundle, type InspectedImage, type Inspection } from '../../../lib/bundle/inspect/inspect.ts';
import { encodeMetadata, type BundleMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { childrenOf, isManifest, parseManifest } from '../../../lib/content/oci/descriptor.ts';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { runProgram } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { extraImage } from '../../support/release/extraImage.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import type { TestRelease } from '../../support/release/release.ts';

const blobFolder = 'v2/openshift/release/blobs';
const manifestFolder = 'v2/openshift/release/manifests';

async function inspect(path: string, context = makeContext()): Promise<Inspection> {
  await using bundle = await openBundle(path, context, { tolerant: true });
  return await inspectBundle(bundle, context);
}

/** Returns all content that an image of a release needs, with its size, from the release itself. */
function piecesOf(release: TestRelease, repository: string, root: string): Map<Digest, number> {
  const { manifests, tags } = release.content.repositories.get(repository) ?? { manifests: new Map(), tags: new Map() };
  const pieces = new Map<Digest, number>();
  const visit = (digest: Digest): void => {
    const bytes = (manifests as ReadonlyMap<string, { bytes: Buffer }>).get(digest)?.bytes;
    if (!bytes) throw new Error(`no manifest ${digest}`);
    pieces.set(digest, bytes.length);
    for (const child of childrenOf(parseManifest(bytes, digest))) {
      if (isManifest(child)) visit(child.digest);
      else pieces.set(child.digest, child.size);
    }
    const attachment = (tags as ReadonlyMap<string, string>).get(attachmentTag(digest));
    if (attachment !== undefined) visit(attachment as Digest);
  };
  visit(root as Digest);
  return pieces;
}

function expectedSizes(release: TestRelease): Map<string, Pick<InspectedImage, 'size' | 'unique' | 'shared'>> {
  const all = new Map([
    ['release', piecesOf(release, release.releaseRepository, release.digest)],
    ...[...release.images].map(
      ([name, { digest }]) => [name, piecesOf(release, release.componentRepository, digest)] as const,
    ),
  ]);
  const sizes = [...all].map(([name, pieces]) => {
    const others = [...all].filter(([other]) => other !== name).map(([, each]) => each);
    const sum = (list: [Digest, number][]): number => list.reduce((total, [, size]) => total + size, 0);
    const size = sum([...pieces]);
    const unique = sum([...pieces].filter(([digest]) => !others.some((other) => other.has(digest))));
    return [name, { size, unique, shared: size - unique }] as const;
  });
  return new Map(sizes);
}

const sizesOf = ({ images }: Inspection) =>
  new Map(images.map(({ name, size, unique, shared }) => [name, { size, unique, shared }]));

describe('inspectBundle', () => {
  const components = ['cli', 'cluster-version-operator', 'etcd', 'pod', 'rhel-coreos-8', 'tools'];
  let made: TestBundle;
  let directory: string;
  before(async () => {
    made = await makeBundle({ components, previous: ['4.11.1', '4.11.2'], listOfOne: 'cli' });
    directory = await made.unpack();
  });
  after(() => made.remove());

  for (const form of ['tar', 'directory'] as const) {
    describe(`of a ${form}`, () => {
      let inspection: Inspection;
      before(async () => {
        inspection = await inspect(form === 'tar' ? made.path : directory);
      });

      it('identifies the bundle, and says that nothing was verified', () => {
        const { version, digest, pullspec } = made.release;
        expect(inspection).to.include({
          form,
          version,
          arch: 'x86_64',
          release: pullspec,
          tool: 'test/1',
          verified: false,
        });
        expect(inspection.previous).to.deep.equal(['4.11.1', '4.11.2']);
        expect(inspection.notes).to.deep.equal([]);
        expect(inspection.signatures).to.have.length(1);
        const [signature] = inspection.signatures;
        expect(signature).to.include({ digest, image: 'release', held: 1 });
        expect(signature?.file).to.equal(`config/signature/sha256/${digest.slice(7, 23)}.yaml`);
        expect(signature?.signers.map(({ fingerprint }) => fingerprint)).to.deep.equal([made.key.fingerprint]);
      });

      it('gives each image its size, its own and its shared bytes', () => {
        expect(sizesOf(inspection)).to.deep.equal(expectedSizes(made.release));
        expect(inspection.images.every(({ complete }) => complete)).to.equal(true);
      });

      it('counts everything once in the totals', () => {
        const { totals, images, sharedBlobs } = inspection;
        const { metadata } = made.result;
        const sum = (list: readonly number[]): number => list.reduce((total, each) => total + each, 0);
        expect(totals.images).to.equal(metadata.images.length);
        expect(totals.blobs).to.equal(metadata.blobs.length);
        expect(totals.bytesUnshared).to.equal(sum(images.map(({ size }) => size)));
        expect(totals.saved).to.equal(totals.bytesUnshared - totals.bytes);
        expect(totals.bytes).to.equal(
          sum(images.map(({ unique }) => unique)) + sum(sharedBlobs.map(({ size }) => size)),
        );
      });

      it('names the blobs that most images need first', () => {
        const { sharedBlobs, images } = inspection;
        expect(sharedBlobs.slice(0, 2).map((blob) => blob.images)).to.deep.equal([images.length, images.length]);
        const counts = sharedBlobs.map((blob) => blob.images);
        expect(counts).to.deep.equal([...counts].sort((a, b) => b - a));
      });

      it('tells lists from images, and which have a sigstore signature', () => {
        const cli = inspection.images.find(({ name }) => name === 'cli');
        expect(cli?.platforms).to.deep.equal(['linux/amd64']);
        const last = [...made.release.images.keys()].at(-1);
        const bare = inspection.images.filter(({ hasAttachment }) => !hasAttachment).map(({ name }) => name);
        expect(bare).to.deep.equal([last]);
        expect(
          inspection.images.filter(({ kind }) => kind === 'operating-system').map(({ name }) => name),
        ).to.deep.equal(['rhel-coreos-8']);
        expect(inspection.images[0]).to.include({ name: 'release', kind: 'release', layers: 5 });
      });
    });
  }

  it('gives the digest that the .sha256 file has', async () => {
    expect((await inspect(made.path)).digest).to.equal(made.result.digest);
  });

  it('reads no blob', async () => {
    const root = await made.unpack();
    const before = await inspect(root);
    for (const { digest, size } of made.result.metadata.blobs) {
      await writeFile(join(root, blobFolder, digest), Buffer.alloc(size));
    }
    expect(await inspect(root)).to.deep.equal(before);
  });

  it('takes a tar with more behind it, as a device has', async () => {
    const device = join(made.folder, 'device');
    await writeFile(device, Buffer.concat([await readFile(made.path), Buffer.alloc(1024 * 1024, 7)]));
    const { size } = await stat(made.path);
    const { digest, ...expected } = await inspect(made.path);
    expect(digest).not.to.equal(undefined);
    expect(await inspect(device)).to.deep.equal({ ...expected, path: device, size });
  });

  it('describes a directory that another tool wrote', async () => {
    const root = await made.unpack();
    await rm(join(root, 'metadata.json'));
    const inspection = await inspect(root);
    expect(sizesOf(inspection)).to.deep.equal(expectedSizes(made.release));
    expect(inspection.signatures[0]).to.deep.include({ image: 'release', held: 1, signers: [] });
  });

  it('notes a missing manifest and missing blobs, and continues', async () => {
    const root = await made.unpack();
    const [first, second] = made.release.images.values();
    await rm(join(root, manifestFolder, first?.digest ?? ''));
    const blobs = await readdir(join(root, blobFolder));
    const own = piecesOf(made.release, made.release.componentRepository, second?.digest ?? '');
    const others = piecesOf(made.release, made.release.releaseRepository, made.release.digest);
    const missing = blobs.find((blob) => own.has(blob as Digest) && !others.has(blob as Digest)) ?? '';
    await rm(join(root, blobFolder, missing));
    const { images, notes } = await inspect(root);
    expect(images.filter(({ complete }) => !complete).map(({ name }) => name)).to.deep.equal([
      first?.name,
      second?.name,
    ]);
    expect(notes).to.have.length(2);
    expect(notes[0]).to.match(new RegExp(`^${first?.name ?? ''}: .*${first?.digest ?? ''}`));
    expect(notes[1]).to.equal(`${second?.name ?? ''}: a blob is missing`);
  });

  it('shows the present content of a truncated tar', async () => {
    const cut = join(made.folder, 'cut.tar');
    await writeFile(cut, await readFile(made.path));
    await truncate(cut, (await stat(cut)).size - 40_000);
    const inspection = await inspect(cut);
    expect(inspection.notes[0]).to.include('truncated');
    expect(inspection.images).to.have.length(made.result.metadata.images.length);
    expect(inspection.images.some(({ complete }) => !complete)).to.equal(true);
  });

  it('counts components that are one image once', async () => {
    const root = await made.unpack();
    const file = join(root, 'metadata.json');
    const metadata = JSON.parse(await readFile(file, 'utf8')) as BundleMetadata & {
      components: Record<string, string>;
    };
    metadata.components['z-cli'] = metadata.components['cli'] ?? '';
    await writeFile(file, encodeMetadata(metadata));
    const inspection = await inspect(root);
    expect(sizesOf(inspection)).to.deep.equal(expectedSizes(made.release));
    expect(inspection.images.find(({ name }) => name === 'cli')?.aliases).to.deep.equal(['z-cli']);
  });

  it('omits components with control characters in their names', async () => {
    const root = await made.unpack();
    const file = join(root, 'metadata.json');
    const metadata = JSON.parse(await readFile(file, 'utf8')) as BundleMetadata & {
      components: Record<string, string>;
    };
    metadata.components['\u001b[2J'] = metadata.components['cli'] ?? '';
    await writeFile(file, encodeMetadata(metadata));
    await failureOf(inspect(root), 'invalid-bundle');
  });

  it('stops when it is interrupted', async () => {
    const context = makeContext();
    await using bundle = await openBundle(made.path, context);
    context.interrupt();
    await failureOf(inspectBundle(bundle, context), 'interrupted');
  });

  describe('of a multi-architecture release with an extra image', () => {
    let multi: TestBundle;
    let inspection: Inspection;
    const extra = extraImage();
    before(async () => {
      multi = await makeBundle({ arch: 'multi', extraImages: [extra] });
      inspection = await inspect(multi.path);
    });
    after(() => multi.remove());

    it('has the platforms of each list, and the signatures by platform', () => {
      expect(inspection.images[0]?.platforms).to.deep.equal(['linux/amd64', 'linux/arm64']);
      const signed = ['release', 'release for linux/amd64', 'release for linux/arm64'];
      expect(inspection.signatures.map(({ image }) => image)).to.deep.equal(signed);
    });

    it('has the extra image under its pullspec', () => {
      const { images } = inspection;
      expect(images.at(-1)).to.include({ kind: 'extra', digest: extra.digest });
      expect(images.at(-1)?.name).to.equal(images.at(-1)?.pullspec);
    });
  });
});

describe('oc adm-upgrade-bundle inspect', () => {
  let made: TestBundle;
  let home: string;
  before(async () => {
    made = await makeBundle({ components: 20 });
    home = await makeFolder();
  });
  after(async () => {
    await made.remove();
    await removeFolder(home);
  });

  const run = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await runProgram(home, 'inspect', [made.path, ...args]);
    expect(code, stderr).to.equal(0);
    expect(stderr).to.equal('');
    return stdout;
  };

  it('shows a screenful, and says that the signer was not verified', async () => {
    const words = await run();
    expect(words).to.include(made.release.pullspec);
    expect(words).to.match(new RegExp(`Signed by .*${made.key.fingerprint}.*not verified`));
    expect(words).to.match(/^… and 6 more with .* of their own: -o wide lists them all$/m);
    expect(words.split('\n').length).to.be.below(50);
  });

  it('lists every digest with -o wide', async () => {
    const words = await run('-o', 'wide');
    for (const { digest } of made.release.images.values()) expect(words).to.include(digest);
  });

  it('gives the same data as JSON and as YAML', async () => {
    const json: unknown = JSON.parse(await run('-o', 'json'));
    expect(parse(await run('-o', 'yaml'))).to.deep.equal(json);
    expect(json).to.have.nested.property('totals.images', 21);
  });

  it('writes a page with -o html', async () => {
    const page = await run('-o', 'html');
    expect(page).to.match(/^<!doctype html>\n/);
    expect(page).to.match(/<\/html>\n$/);
  });
});
