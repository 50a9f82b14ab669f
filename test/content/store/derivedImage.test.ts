import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { parseManifest, type Descriptor, type Manifest } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { deriveImage, listPlatforms, Overlay, type DerivedImage } from '../../../lib/content/store/derivedImage.ts';
import { readContent, readImageManifest } from '../../../lib/content/store/store.ts';
import { fieldsOf } from '../../../lib/fields.ts';
import { TestContent, type ImageFormat } from '../../support/content/image.ts';
import { makeFileLayer, makeNoiseLayer } from '../../support/content/layers.ts';
import { failureOf } from '../../support/program/failure.ts';

const layers = [makeNoiseLayer('base', 10_000), makeFileLayer(new Map([['usr/bin/bash', 'bash']]))];
const own = makeFileLayer(new Map([['data', 'new']]));
const hint = 'Use another image.';

describe('deriveImage', () => {
  const content = new TestContent();
  const addBase = (architecture: string, format: ImageFormat = 'docker'): Descriptor =>
    content.addImage('release', { architecture, layers, format, labels: { title: 'base' } });
  const base = addBase('arm64');

  const derive = (root: Descriptor = base, omitted?: ReadonlySet<typeof own.digest>): Promise<DerivedImage> =>
    deriveImage(
      { source: content.sourceOf('release'), root },
      {
        what: 'the image',
        layer: { bytes: own.read(), diffId: own.diffId },
        createdBy: 'a test',
        configure: ({ Labels, Env }) => ({ Labels, Env, Cmd: ['run'] }),
        hint,
        ...(omitted && { omitted }),
      },
    );
  const configOf = async ({ source }: DerivedImage, { config }: Manifest): Promise<Record<string, unknown>> =>
    JSON.parse((await readContent(source, config ?? expect.fail())).toString()) as Record<string, unknown>;

  it('adds a layer and its entry of the history, and changes the configuration', async () => {
    const image = await derive();
    const manifest = await readImageManifest(image.source, image.root);
    expect(manifest.mediaType).to.equal(base.mediaType);
    expect(manifest.layers.map(({ digest }) => digest)).to.deep.equal([...layers, own].map(({ digest }) => digest));
    expect(manifest.layers[2]?.mediaType).to.equal(manifest.layers[1]?.mediaType);
    const config = await configOf(image, manifest);
    expect(config).to.deep.include({ architecture: 'arm64', os: 'linux' });
    expect(config['config']).to.deep.equal({ Labels: { title: 'base' }, Env: ['PATH=/usr/bin:/bin'], Cmd: ['run'] });
    expect(fieldsOf(config['rootfs'])['diff_ids']).to.deep.equal([...layers, own].map(({ diffId }) => diffId));
    expect((config['history'] as unknown[]).at(-1)).to.deep.equal({
      created: '1980-01-01T00:00:00Z',
      created_by: 'a test',
    });
    expect((await derive()).root).to.deep.equal(image.root);
  });

  it('leaves out layers of the base, and the history that would not match', async () => {
    const [left, kept] = layers as [(typeof layers)[0], (typeof layers)[0]];
    const image = await derive(base, new Set([left.digest]));
    const manifest = await readImageManifest(image.source, image.root);
    expect(manifest.layers.map(({ digest }) => digest)).to.deep.equal([kept.digest, own.digest]);
    const config = await configOf(image, manifest);
    expect(fieldsOf(config['rootfs'])['diff_ids']).to.deep.equal([kept.diffId, own.diffId]);
    expect(config).not.to.have.property('history');
  });

  it('reads new content from memory and the rest from the base', async () => {
    const { root, source } = await derive();
    const manifest = parseManifest(await readContent(source, root), 'the image');
    for (const descriptor of [root, manifest.config!, ...manifest.layers]) {
      expect(await source.exists(descriptor)).to.be.true;
      expect(digestOf(await readContent(source, descriptor))).to.equal(descriptor.digest);
    }
    expect(await source.resolve(root.digest)).to.deep.equal(root);
    await failureOf(source.resolve('latest'), 'not-found');
    const rest = await buffer(await source.fetch(root, 10));
    expect(rest).to.deep.equal((await readContent(source, root)).subarray(10));
  });

  it('has an image for each architecture of a base that is a list', async () => {
    const attestation = { ...addBase('unknown'), platform: { architecture: 'unknown', os: 'unknown' } };
    const list = content.addList('release', [addBase('amd64', 'oci'), addBase('s390x', 'oci'), attestation], 'oci');
    const image = await derive(list);
    const { mediaType, manifests } = await readImageManifest(image.source, image.root);
    expect(mediaType).to.equal(list.mediaType);
    expect(manifests.map(({ platform }) => platform?.architecture)).to.deep.equal(['amd64', 's390x']);
    for (const child of manifests) {
      const manifest = await readImageManifest(image.source, child);
      expect(await configOf(image, manifest)).to.have.property('architecture', child.platform?.architecture);
      expect(manifest.layers.map((layer) => layer.mediaType)).to.deep.equal(
        Array(3).fill('application/vnd.oci.image.layer.v1.tar+gzip'),
      );
    }
  });

  it('refuses a base that is no image for linux or whose configuration does not fit it', async () => {
    const { mediaType } = base;
    const stored = JSON.parse((await readContent(content.sourceOf('release'), base)).toString()) as { config: object };
    const withConfig = (text: string, changes: object = {}): Descriptor => {
      const bytes = Buffer.from(text);
      content.addBlob({ digest: digestOf(bytes), size: bytes.length, read: () => bytes });
      const config = { ...stored.config, digest: digestOf(bytes), size: bytes.length };
      return content.addManifest('release', mediaType, { ...stored, config, ...changes });
    };
    const windows = [{ ...base, platform: { architecture: 'amd64', os: 'windows' } }];
    const refused: [Descriptor, string][] = [
      [content.addManifest('release', mediaType, { ...stored, layers: [] }), 'does not match its layers'],
      [content.addList('release', windows), 'it is a list without an image for linux'],
      [withConfig('x'), 'its configuration is not JSON'],
      [withConfig('{"architecture":"amd64","os":"windows"}'), 'it is not for linux'],
      [withConfig('{"os":"linux"}'), 'it is not for linux'],
      [withConfig('{"architecture":"amd64","os":"linux"}'), 'does not match its layers'],
      [withConfig('{"architecture":"amd64","os":"linux"}', { layers: [] }), 'does not match its layers'],
    ];
    for (const [root, why] of refused) {
      const error = await failureOf(derive(root), 'invalid-manifest');
      expect(error.message)
        .to.match(new RegExp(`^the image cannot be built on ${root.digest} in quay.io/release: `))
        .and.contain(why);
      expect(error.hint).to.equal(hint);
    }
  });
});

describe('listPlatforms', () => {
  it('lists the Linux images of a list, or those of one architecture, without attestations and lists', () => {
    const content = new TestContent();
    const at = (
      architecture: string,
      os = 'linux',
    ): Descriptor & { platform: { architecture: string; os: string } } => ({
      ...content.addImage('a', { architecture, layers: [] }),
      platform: { architecture, os },
    });
    const below = { ...content.addList('a', []), platform: { architecture: 'amd64', os: 'linux' } };
    const { platform: _, ...without } = at('s390x');
    const manifests = [at('amd64'), at('arm64'), at('amd64', 'windows'), at('unknown', 'unknown'), below, without];
    const architectures = (...wanted: string[]): string[] =>
      listPlatforms({ manifests }, ...wanted).map(({ platform }) => platform.architecture);
    expect(architectures()).to.deep.equal(['amd64', 'arm64']);
    expect(architectures('arm64')).to.deep.equal(['arm64']);
    expect(architectures('ppc64le')).to.deep.equal([]);
  });
});

describe('Overlay', () => {
  const mediaType = 'application/octet-stream';

  it('has the given and the added content, and nothing else without a base', async () => {
    const [given, more] = [Buffer.from('given'), Buffer.from('more')];
    const overlay = new Overlay('memory', undefined, new Map([[digestOf(given), given]]));
    const added = overlay.add(mediaType, more);
    expect(added).to.deep.equal({ mediaType, digest: digestOf(more), size: 4 });
    expect([overlay.has(digestOf(given)), overlay.has(added.digest), overlay.has(digestOf('x'))]).to.deep.equal([
      true,
      true,
      false,
    ]);
    const absent = { mediaType, digest: digestOf('x'), size: 1 };
    expect(await overlay.exists(absent)).to.equal(false);
    const { message } = await failureOf(overlay.fetch(absent), 'not-found');
    expect(message).to.equal(`memory does not have ${absent.digest}`);
    expect(await overlay.tags()).to.deep.equal([]);
  });

  it('gives the chunks of its own content, and not of the base', async () => {
    const base = new Overlay('base', undefined);
    const below = base.add(mediaType, Buffer.from('below'));
    const overlay = new Overlay('top', base);
    const mine = overlay.add(mediaType, Buffer.from('content'));
    expect((await buffer(overlay.chunks(mine, 2, 5))).toString()).to.equal('nte');
    expect((await buffer(await overlay.fetch(below))).toString()).to.equal('below');
    await failureOf(buffer(overlay.chunks(below, 0, 5)), 'not-found');
  });

  it('reports own content that differs from its digest', async () => {
    const overlay = new Overlay('memory', undefined, new Map([[digestOf('right'), Buffer.from('wrong')]]));
    const { message } = await failureOf(
      readContent(overlay, { mediaType, digest: digestOf('right'), size: 5 }),
      'digest-mismatch',
    );
    expect(message).to.contain('memory: ');
  });
});
