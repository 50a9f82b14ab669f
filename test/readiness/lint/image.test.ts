import { expect } from 'chai';
import {
  isFullReference,
  isLocalImage,
  isPlaceholder,
  normalizeImage,
  readDiskImport,
  readReleaseImages,
  readResourceImage,
  templateWord,
} from '../../../lib/readiness/lint/image.ts';

const digest = `sha256:${'a'.repeat(64)}`;

describe('the names of images', () => {
  it('are normalized as nodes list them', () => {
    expect(normalizeImage(`quay.io/x/y:1@${digest}`)).to.equal(`quay.io/x/y@${digest}`);
    expect(normalizeImage('quay.io/x/y')).to.equal('quay.io/x/y:latest');
    expect(normalizeImage('quay.io/x/y:1')).to.equal('quay.io/x/y:1');
    expect(normalizeImage('${IMAGE}')).to.equal('${IMAGE}');
  });

  it('may be filled in later', () => {
    for (const image of ['${IMAGE}', '<injected>', 'a b', '', `quay.io/x/${templateWord}:1`])
      expect(isPlaceholder(image), image).to.equal(true);
    for (const image of ['quay.io/x/y:1', `[::1]:5000/x@${digest}`])
      expect(isPlaceholder(image), image).to.equal(false);
  });

  it('may be of this machine', () => {
    for (const image of [
      'localhost/x',
      'localhost:5000/x',
      '127.0.0.1/x',
      '[::1]:5000/x',
      'docker://localhost/x',
      'dir:/x',
    ])
      expect(isLocalImage(image), image).to.equal(true);
    for (const image of ['localhost.test/x', 'quay.io/localhost/x', 'docker://quay.io/x'])
      expect(isLocalImage(image), image).to.equal(false);
  });

  it('are full with a registry, and a tag or digest', () => {
    for (const image of ['quay.io/x/y:1', `registry:5000/x@${digest}`])
      expect(isFullReference(image), image).to.equal(true);
    for (const image of ['x/y:1', 'quay.io/x/y', 'quay.io:443', 'https://quay.io/x:1', `quay.io/${'x'.repeat(500)}:1`])
      expect(isFullReference(image), image).to.equal(false);
  });
});

describe('readResourceImage', () => {
  it('reads an image in one field, and in parts', () => {
    expect(readResourceImage({ image: 'quay.io/x/y:1' })).to.deep.include({ image: 'quay.io/x/y:1', field: 'image' });
    expect(readResourceImage({ repository: 'x.io/n', image: 'driver', version: '5' })?.image).to.equal(
      'x.io/n/driver:5',
    );
    expect(readResourceImage({ registry: 'x.io', repository: 'app', tag: '1' })).to.deep.include({
      image: 'x.io/app:1',
      field: 'repository',
    });
    expect(readResourceImage({ repository: 'x.io/app', digest })?.image).to.equal(`x.io/app@${digest}`);
  });

  it('leaves out other words, unless they are pulled', () => {
    expect(readResourceImage({ image: 'rhcos', repository: 'https://git.test/x' })).to.equal(undefined);
    expect(readResourceImage({ repository: 'x/y' })).to.equal(undefined);
    expect(readResourceImage({ image: 'rhcos', pullPolicy: 'Always' })).to.deep.equal({
      image: 'rhcos',
      field: 'image',
      pullsAlways: true,
    });
  });
});

describe('readDiskImport', () => {
  const registry = { url: 'docker://quay.io/x' };

  it('reads the URL or the image stream of a disk', () => {
    expect(readDiskImport({ source: { registry } })).to.deep.equal({
      url: registry.url,
      field: 'source.registry.url',
      isScheduled: false,
    });
    expect(readDiskImport({ source: { registry: { imageStream: 's' } } })?.field).to.equal(
      'source.registry.imageStream',
    );
    expect(readDiskImport({ source: { pvc: {} } })).to.equal(undefined);
  });

  it('is scheduled only with a schedule and a data source', () => {
    const template = { spec: { source: { registry } } };
    expect(readDiskImport({ schedule: '0 0 * * *', managedDataSource: 'x', template })).to.deep.include({
      isScheduled: true,
      field: 'template.spec.source.registry.url',
    });
    expect(readDiskImport({ schedule: '0 0 * * *', template })).to.equal(undefined);
  });
});

describe('readReleaseImages', () => {
  const list = (name: string): string =>
    JSON.stringify({ metadata: { name: '4.20.3' }, spec: { tags: [{ name: 'etcd', from: { name } }] } });

  it('finds components by their digest in every mirror, and the release itself', () => {
    const images = readReleaseImages([list(`quay.io/x/y@${digest}`)], `quay.io/x/r@sha256:${'b'.repeat(64)}`);
    expect(images?.version).to.equal('4.20.3');
    expect(images?.componentOf(`mirror.test/z@${digest}`)).to.equal('etcd');
    expect(images?.componentOf(`mirror.test/z@sha256:${'b'.repeat(64)}`)).to.equal('release');
    expect(images?.componentOf('mirror.test/z:1')).to.equal(undefined);
  });

  it('counts an unreadable list as empty', () => {
    expect(readReleaseImages(['{broken'])).to.equal(undefined);
    expect(readReleaseImages(['{broken', list('quay.io/x/y:v4')])?.componentOf('quay.io/x/y:v4')).to.equal('etcd');
  });
});
