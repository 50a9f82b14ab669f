import { expect } from 'chai';
import {
  childrenOf,
  hasImageLayers,
  isContainerImage,
  isManifestText,
  manifestSizeLimit,
  mediaTypes,
  parseManifest,
  sumSizes,
  type Manifest,
} from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { isPluginError } from '../../../lib/errors.ts';

const configType = 'application/vnd.oci.image.config.v1+json';
const layerType = 'application/vnd.oci.image.layer.v1.tar+gzip';
const config = { mediaType: configType, digest: digestOf('config'), size: 6 };
const layer = { mediaType: layerType, digest: digestOf('layer'), size: 5 };
const image = { schemaVersion: 2, mediaType: mediaTypes.ociManifest, config, layers: [layer] };
const list = { schemaVersion: 2, mediaType: mediaTypes.ociIndex, manifests: [layer] };

const parse = (value: object): Manifest => parseManifest(Buffer.from(JSON.stringify(value)), 'the image');

describe('parseManifest', () => {
  it('returns the content of an image and of a list, in order', () => {
    expect(parse(image)).to.deep.equal({ mediaType: mediaTypes.ociManifest, config, layers: [layer], manifests: [] });
    const platform = { architecture: 'arm64', os: 'linux', variant: 'v8' };
    const annotations = { key: 'value' };
    const entries = [{ ...layer, platform, annotations }, config];
    expect(parse({ ...list, manifests: entries })).to.deep.equal({
      mediaType: mediaTypes.ociIndex,
      config: undefined,
      layers: [],
      manifests: entries,
    });
  });

  it('derives the media type of OCI content that has none', () => {
    const { mediaType: _, ...untypedImage } = image;
    const { mediaType: __, ...untypedList } = list;
    expect(parse(untypedImage).mediaType).to.equal(mediaTypes.ociManifest);
    expect(parse(untypedList).mediaType).to.equal(mediaTypes.ociIndex);
  });

  it('reads the subject of an artifact, and ignores an invalid one', () => {
    const subject = digestOf('subject');
    expect(parse({ ...image, subject: { digest: subject } }).subject).to.equal(subject);
    for (const other of [{ digest: 'sha512:x' }, 'x', null])
      expect(parse({ ...image, subject: other })).not.to.have.property('subject');
  });

  it('takes a missing list for an empty one, and content without a type for bytes', () => {
    const { mediaType: _, ...untyped } = layer;
    expect(parse({ ...image, layers: null }).layers).to.deep.equal([]);
    expect(parse({ ...image, layers: [untyped] }).layers).to.deep.equal([
      { ...layer, mediaType: 'application/octet-stream' },
    ]);
  });

  const schema1 = 'application/vnd.docker.distribution.manifest.v1+prettyjws';
  const { config: _, ...withoutConfig } = image;
  const isNoImage = /^the image is not an image manifest \(media type .*\)$/;
  const badDescriptor = /^the image has a descriptor without a sha256 digest or a size$/;
  const refused: [what: string, bytes: Buffer | object, message: RegExp][] = [
    ['text that is not JSON', Buffer.from('<html>'), /^the image is not JSON$/],
    ['bytes that are not UTF-8', Buffer.from([0x22, 0xff, 0x22]), /^the image is not JSON$/],
    ['JSON that is not an object', [], /^the image is not a JSON object$/],
    ['another schema version', { ...image, schemaVersion: 1 }, isNoImage],
    ['an image of schema 1', { ...image, mediaType: schema1 }, isNoImage],
    ['an image without a configuration', withoutConfig, isNoImage],
    ['layers that are not a list', { ...image, layers: {} }, /has a field that must be a list, and is not$/],
    ['a layer that is null', { ...image, layers: [null] }, badDescriptor],
    ['a digest of another algorithm', { ...image, layers: [{ ...layer, digest: 'sha512:00' }] }, badDescriptor],
    ...[-1, 1.5, '5', 2 ** 53].map((size): [string, object, RegExp] => [
      `the size ${size}`,
      { ...image, config: { ...config, size } },
      badDescriptor,
    ]),
  ];
  for (const [what, value, message] of refused) {
    it(`refuses ${what}`, () => {
      const bytes = Buffer.isBuffer(value) ? value : Buffer.from(JSON.stringify(value));
      expect(() => parseManifest(bytes, 'the image'))
        .to.throw(message)
        .and.satisfy((error: unknown) => isPluginError(error, 'invalid-manifest'));
      expect(isManifestText(bytes)).to.equal(false);
    });
  }
});

describe('isManifestText', () => {
  it('is true for a manifest within the size limit', () => {
    const bytes = Buffer.from(JSON.stringify(image));
    const padded = (size: number): Buffer => Buffer.concat([bytes, Buffer.alloc(size - bytes.length, ' ')]);
    expect(isManifestText(padded(manifestSizeLimit))).to.equal(true);
    expect(isManifestText(padded(manifestSizeLimit + 1))).to.equal(false);
    expect(isManifestText(undefined)).to.equal(false);
  });
});

describe('a manifest', () => {
  it('has the manifests of a list, else the configuration and the layers, as its content', () => {
    expect(childrenOf(parse(image))).to.deep.equal([config, layer]);
    expect(childrenOf(parse(list))).to.deep.equal([layer]);
    expect(sumSizes(childrenOf(parse(image)))).to.equal(11);
  });

  it('is of a container image if its configuration is', () => {
    const docker = { ...config, mediaType: 'application/vnd.docker.container.image.v1+json' };
    const artifact = { ...config, mediaType: 'application/vnd.cncf.helm.config.v1+json' };
    expect([image, { ...image, config: docker }].map((each) => isContainerImage(parse(each)))).to.deep.equal([
      true,
      true,
    ]);
    expect([list, { ...image, config: artifact }].map((each) => isContainerImage(parse(each)))).to.deep.equal([
      false,
      false,
    ]);
  });

  it('may be run if a layer has a type that runtimes unpack, with any configuration', () => {
    const artifact = { ...config, mediaType: 'application/vnd.oci.empty.v1+json' };
    const runs = (layers: object[], of: object = artifact): boolean =>
      hasImageLayers(parse({ ...image, config: of, layers }));
    for (const mediaType of [
      layerType,
      'application/vnd.oci.image.layer.v1.tar+zstd',
      'application/vnd.docker.image.rootfs.diff.tar.gzip',
      'application/vnd.docker.container.image.rootfs.diff+x-gtar',
    ])
      expect(
        runs([
          { ...layer, mediaType: 'text/plain' },
          { ...layer, mediaType },
        ]),
        mediaType,
      ).to.equal(true);
    expect(runs([{ ...layer, mediaType: 'text/spdx+json' }], config)).to.equal(false);
    expect(runs([], config)).to.equal(false);
  });

  it('may be run if a layer has no type and the configuration is of an image', () => {
    const { mediaType: __, ...untyped } = layer;
    const artifact = { ...config, mediaType: 'application/vnd.oci.empty.v1+json' };
    expect(hasImageLayers(parse({ ...image, layers: [untyped] }))).to.equal(true);
    expect(hasImageLayers(parse({ ...image, layers: [untyped], config: artifact }))).to.equal(false);
  });
});
