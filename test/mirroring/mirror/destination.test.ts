import { expect } from 'chai';
import {
  formatPlace,
  formatTarget,
  parseDestination,
  releaseName,
  releaseOfTag,
} from '../../../lib/mirroring/mirror/destination.ts';
import { failureOf } from '../../support/program/failure.ts';

const release = { version: '4.12.4', arch: 'x86_64' } as const;
const registry = { kind: 'registry', registry: 'registry.test:5000', repository: 'a/b' } as const;

describe('parseDestination', () => {
  it('gives every image of one repository a tag of its own', () => {
    const destination = parseDestination({ to: 'registry.test:5000/a/b' });
    expect(destination(releaseName, release)).to.deep.equal({ place: registry, tag: '4.12.4-x86_64' });
    expect(destination('etcd', release)).to.deep.equal({ place: registry, tag: '4.12.4-x86_64-etcd' });
  });

  it('is openshift/release in a directory by default', () => {
    const target = parseDestination({ toDir: '/m' })('etcd', release);
    const place = { kind: 'directory', root: '/m', repository: 'openshift/release' };
    expect(target).to.deep.equal({ place, tag: '4.12.4-x86_64-etcd' });
  });

  it('reads file:// with two slashes or three as a repository in the directory', () => {
    for (const to of ['file://a/b', 'file:///a/b']) {
      const { place } = parseDestination({ to, toDir: '/m' })('etcd', release);
      expect(place).to.deep.equal({ kind: 'directory', root: '/m', repository: 'a/b' });
    }
  });

  it('fills in templates: repositories, and tags that get the architecture', () => {
    const repositories = parseDestination({ to: 'registry.test:5000/v${version}/${component}' });
    expect(formatTarget(repositories('etcd', release))).to.equal('registry.test:5000/v4.12.4/etcd:4.12.4-x86_64');
    expect(formatTarget(repositories(releaseName, release))).to.equal(
      'registry.test:5000/v4.12.4/release:4.12.4-x86_64',
    );
    const tags = parseDestination({ to: 'registry.test:5000/a/b:${version}-${component}' });
    expect(formatTarget(tags('etcd', release))).to.equal('registry.test:5000/a/b:4.12.4-etcd-x86_64');
    const versions = parseDestination({ to: 'registry.test:5000/v${version}' });
    expect(formatTarget(versions('etcd', release))).to.equal('registry.test:5000/v4.12.4:4.12.4-x86_64-etcd');
  });

  it('reads the release from the tag of an image', () => {
    const aarch64 = { version: '4.12.4', arch: 'aarch64' } as const;
    const read = (to: string, tag: string, name = releaseName, toReleaseImage?: string): object | undefined =>
      releaseOfTag(tag, name, parseDestination({ to, toReleaseImage }));
    const tags = 'registry.test/a:${version}-${component}';
    expect(read('registry.test/a', '4.12.4-x86_64')).to.deep.equal(release);
    expect(read('registry.test/a', '4.12.4-aarch64-etcd', 'etcd')).to.deep.equal(aarch64);
    expect(read('registry.test/a', '4.12.4-aarch64-etcd', 'cli')).to.equal(undefined);
    expect(read(tags, '4.12.4-release-aarch64')).to.deep.equal(aarch64);
    expect(read(tags, '4.12.4-etcd-aarch64')).to.equal(undefined);
    expect(read(tags, '4.12.4-etcd-x86_64', 'etcd')).to.deep.equal(release);
    for (const own of ['registry.test/b:${version}-aarch64', 'registry.test/b:stable', 'registry.test/b']) {
      expect(read('registry.test/a', '4.12.4-aarch64', releaseName, own)).to.deep.equal(aarch64);
    }
  });

  it('gives each release image a tag of its own if the version is in it', () => {
    const toReleaseImage = 'other.test/c/d:v${version}';
    const destination = parseDestination({ to: 'registry.test:5000/a/b', toReleaseImage });
    expect(formatTarget(destination(releaseName, release))).to.equal('other.test/c/d:v4.12.4');
  });

  it('pushes the release image to another place, without a tag if none is given', () => {
    const destination = parseDestination({ to: 'registry.test:5000/a/b', toReleaseImage: 'other.test/c/d' });
    const place = { kind: 'registry', registry: 'other.test', repository: 'c/d' };
    expect(destination(releaseName, release)).to.deep.equal({ place, tag: undefined });
    expect(destination('etcd', release).place).to.deep.equal(registry);
  });

  for (const [to, why] of [
    ['registry.test/a/b:tag', 'has a tag'],
    ['registry.test/a/b:${version}', 'has a tag'],
    [`registry.test/a/b@sha256:${'0'.repeat(64)}`, 'has a digest'],
    ['release', 'names no registry'],
    ['registry.example:5000', 'it lacks the repository: registry.example:5000/REPOSITORY'],
    ['registry.test/UPPER', 'cannot be a repository'],
    ['s3://bucket/release', 's3:// is not a place'],
    ['file://../release', 'cannot be a repository in a directory'],
    ['file://a:b:c', 'cannot be a repository in a directory'],
  ] as const) {
    it(`refuses ${to.slice(0, 40)}`, async () => {
      const parse = async () => parseDestination({ to });
      const error = await failureOf(parse(), 'usage');
      expect(error.message).to.contain(why).and.contain('destination');
      expect(error.hint).not.to.equal(undefined);
    });
  }
});

describe('formatTarget', () => {
  it('names a place as a pullspec, and one in a directory as oc does', () => {
    const digest = `sha256:${'1'.repeat(64)}` as const;
    expect(formatPlace(registry)).to.equal('registry.test:5000/a/b');
    expect(formatTarget({ place: registry, tag: 't' }, digest)).to.equal(`registry.test:5000/a/b@${digest}`);
    expect(formatTarget({ place: registry })).to.equal('registry.test:5000/a/b');
    const place = { kind: 'directory', root: '/m', repository: 'a/b' } as const;
    expect(formatTarget({ place, tag: 't' })).to.equal('file://a/b:t');
  });
});
