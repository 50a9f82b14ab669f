import { once } from 'node:events';
import { gunzipSync } from 'node:zlib';
import { expect } from 'chai';
import { Parser, type ReadEntry } from 'tar';
import { parse } from 'yaml';
import { mediaTypes, parseManifest } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { emptyContent } from '../../fakes/registry/content.ts';
import { attachmentTag } from './attachments.ts';
import { extraImage } from './extraImage.ts';
import { buildRelease, type TestRelease } from './release.ts';

describe('buildRelease', () => {
  it('gives the same digests for the same options, and others for another seed', () => {
    const { digest } = buildRelease({ seed: 'a' });
    expect(buildRelease({ seed: 'a' }).digest).to.equal(digest);
    expect(buildRelease({ seed: 'b' }).digest).not.to.equal(digest);
    expect(buildRelease({ seed: 'a', lazy: true }).digest).to.equal(digest);
  });

  it('has every blob under its digest, at about the size that was asked for', () => {
    const release = buildRelease({ layerSize: 100_000 });
    for (const [digest, blob] of release.blobs) {
      expect(digestOf(blob.read())).to.equal(digest);
      expect(blob.read()).to.have.length(blob.size);
    }
    const image = imageOf(release, 'etcd');
    expect(image.layers).to.have.length(4);
    for (const { size } of image.layers) expect(size).to.be.within(96_000, 104_000);
  });

  it('names each layer’s tar in the configuration', () => {
    const release = buildRelease({ components: ['etcd'] });
    const { config, layers } = imageOf(release, 'etcd');
    const { architecture, rootfs } = readJson(release, config?.digest) as {
      architecture: string;
      rootfs: { diff_ids: string[] };
    };
    expect(architecture).to.equal('amd64');
    expect(rootfs.diff_ids).to.deep.equal(layers.map(({ digest }) => digestOf(gunzipSync(blobOf(release, digest)))));
  });

  it('shares base layers among all images', () => {
    const release = buildRelease({ components: 5, baseLayers: 3, layers: 1 });
    const lists = [...release.images.keys()].map((name) => imageOf(release, name).layers.map((layer) => layer.digest));
    expect(new Set(lists.map((layers) => layers.slice(0, 3).join())).size).to.equal(1);
    expect(new Set(lists.flat()).size).to.equal(3 + 5);
  });

  it('has a payload with the metadata in its last layer', async () => {
    const verification = { publicKey: 'A KEY\n', stores: ['http://127.0.0.1:1/signatures'] };
    const release = buildRelease({ version: '4.12.9', previous: ['4.12.8'], verification });
    const files = await payloadOf(release);
    const references = JSON.parse(files.get('release-manifests/image-references') ?? '') as {
      metadata: { name: string };
      spec: { tags: { name: string; from: { name: string } }[] };
    };
    expect(references.metadata.name).to.equal('4.12.9');
    expect(references.spec.tags.map(({ name, from }) => [name, from.name])).to.deep.equal(
      [...release.images.values()].map(({ name, pullspec }) => [name, pullspec]),
    );
    expect(JSON.parse(files.get('release-manifests/release-metadata') ?? '')).to.deep.include({
      kind: 'cincinnati-metadata-v0',
      version: '4.12.9',
      previous: ['4.12.8'],
    });
    const configMap = parse(files.get('release-manifests/0000_90_cluster-update-keys_configmap.yaml') ?? '') as {
      data: Record<string, string>;
    };
    expect(configMap.data).to.deep.equal({
      'store-test-1': 'http://127.0.0.1:1/signatures',
      'verifier-public-key-test': 'A KEY\n',
    });
  });

  it('adds, replaces and leaves out files of the payload', async () => {
    const files = await payloadOf(
      buildRelease({ files: { 'image-references': undefined, 'release-metadata': '{', 'extra.yaml': 'a: 1' } }),
    );
    expect(files.has('release-manifests/image-references')).to.equal(false);
    expect(files.get('release-manifests/release-metadata')).to.equal('{');
    expect(files.get('release-manifests/extra.yaml')).to.equal('a: 1');
  });

  it('attaches sigstore signatures to the release and to all components but the last', () => {
    const release = buildRelease({ components: ['cli', 'etcd', 'pod'] });
    const tagsOf = (repository: string): string[] => [
      ...(release.content.repositories.get(repository)?.tags.keys() ?? []),
    ];
    expect(tagsOf(release.releaseRepository)).to.have.members(['4.12.4-x86_64', attachmentTag(release.digest)]);
    const signed = [...release.images.values()].slice(0, 2).map(({ digest }) => attachmentTag(digest));
    expect(tagsOf(release.componentRepository)).to.have.members(signed);
  });

  it('makes a multi-arch release: lists of images, and payloads that point to lists', async () => {
    const release = buildRelease({ arch: 'multi', architectures: ['x86_64', 's390x'], listOfOne: 'pod' });
    expect(release.tag).to.equal('4.12.4-multi');
    const list = manifestOf(release, release.releaseRepository, release.digest);
    expect(list.mediaType).to.equal(mediaTypes.dockerList);
    expect(list.manifests.map(({ platform }) => platform?.architecture)).to.deep.equal(['amd64', 's390x']);
    expect(list.manifests.map(({ digest }) => digest)).to.deep.equal(release.children);
    expect(imageOf(release, 'etcd').manifests).to.have.length(2);
    expect(imageOf(release, 'pod').manifests).to.have.length(1);
    const [first, second] = await Promise.all(release.children.map((child) => payloadOf(release, child)));
    expect(first).to.deep.equal(second);
  });

  it('makes OCI images on request', () => {
    const release = buildRelease({ components: ['etcd'], format: 'oci' });
    expect(imageOf(release, 'etcd').mediaType).to.equal(mediaTypes.ociManifest);
  });

  it('holds no lazy layer in memory and reads it the same each time', () => {
    const release = buildRelease({ components: ['etcd'], lazy: true });
    const [layer] = imageOf(release, 'etcd').layers;
    const blob = layer && release.blobs.get(layer.digest);
    expect(blob?.lazy).to.equal(true);
    expect(blob?.read()).not.to.equal(blob?.read());
    expect(release.content.blobs.get(layer?.digest ?? '')).not.to.be.instanceOf(Buffer);
  });
});

describe('extraImage', () => {
  it('adds its tag to a registry’s content beside a release', () => {
    const content = emptyContent();
    const release = buildRelease();
    const extra = extraImage({ repository: release.releaseRepository, tag: 'tool' });
    release.addTo(content);
    extra.addTo(content);
    const tags = content.repositories.get(release.releaseRepository)?.tags;
    expect(tags?.get('tool')).to.equal(extra.digest);
    expect(tags?.get(release.tag)).to.equal(release.digest);
  });
});

function manifestOf(release: TestRelease, repository: string, digest: string) {
  const bytes = release.content.repositories.get(repository)?.manifests.get(digest)?.bytes;
  return parseManifest(bytes ?? Buffer.alloc(0), digest);
}

function imageOf(release: TestRelease, name: string) {
  return manifestOf(release, release.componentRepository, release.images.get(name)?.digest ?? '');
}

function blobOf(release: TestRelease, digest: string): Buffer {
  const found = [...release.blobs.values()].find((blob) => blob.digest === digest);
  if (!found) throw new Error(`no blob ${digest}`);
  return found.read();
}

function readJson(release: TestRelease, digest = ''): unknown {
  return JSON.parse(blobOf(release, digest).toString());
}

async function payloadOf(release: TestRelease, digest: string = release.digest): Promise<Map<string, string>> {
  const layer = manifestOf(release, release.releaseRepository, digest).layers.at(-1);
  const entries: Promise<[string, string]>[] = [];
  const onReadEntry = (entry: ReadEntry): void => {
    entries.push(entry.concat().then((bytes) => [entry.path, bytes.toString()]));
  };
  const parser = new Parser({ onReadEntry });
  const ended = once(parser, 'end');
  parser.end(gunzipSync(blobOf(release, layer?.digest ?? '')));
  await ended;
  return new Map(await Promise.all(entries));
}
