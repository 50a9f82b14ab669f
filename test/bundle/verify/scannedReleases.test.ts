import { join } from 'node:path';
import { expect } from 'chai';
import type { BundleMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import type { Problem } from '../../../lib/bundle/open/bundle.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { scanContent, visitAttachments, Walk } from '../../../lib/bundle/verify/scan.ts';
import {
  checkReleaseBytes,
  checkTags,
  listExpectedImages,
  listExpectedTags,
  listUnreferenced,
  nameRelease,
  readScannedReleases,
} from '../../../lib/bundle/verify/scannedReleases.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { repack, type UnpackedBundle } from '../../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { extraImage } from '../../support/release/extraImage.ts';

const folder = 'v2/openshift/release';
const extra = extraImage();

describe('the releases of a scanned bundle', () => {
  let one: TestBundle;
  let several: TestBundle;
  before(async () => {
    [one, several] = await Promise.all([
      makeBundle({ components: 3, extraImages: [extra] }),
      makeBundle({ components: 2, previous: ['4.12.3'], earlier: [{ version: '4.12.3', seed: 'other' }] }),
    ]);
  });
  after(() => Promise.all([one.remove(), several.remove()]));

  /** Scans a changed copy as `verify` does. */
  const scan = async (made: TestBundle, change: (unpacked: UnpackedBundle) => void = () => undefined) => {
    const context = makeContext();
    const path = await repack(made.path, join(made.folder, 'changed.tar'), change);
    await using bundle = await openBundle(path, context);
    const scanned = await scanContent(bundle, context);
    const scannedReleases = await readScannedReleases(bundle, scanned, context);
    const walk = new Walk(scanned);
    for (const { digest } of scannedReleases) walk.visit(digest, 'release');
    const images = listExpectedImages(bundle.metadata, scannedReleases);
    for (const [image, names] of images) for (const name of names) walk.visit(image, name);
    const attached = visitAttachments(scanned, walk);
    const releases = scannedReleases.flatMap(({ release }) => release ?? []);
    const tags = listExpectedTags(bundle, releases);
    return {
      scannedReleases,
      images,
      tags,
      bytes: checkReleaseBytes(bundle.metadata, scanned, scannedReleases),
      wrongTags: checkTags(bundle, scanned, tags, attached, walk),
      unreferenced: listUnreferenced(bundle, scanned, walk),
    };
  };
  const change = (unpacked: UnpackedBundle, changes: Partial<BundleMetadata>): void => {
    unpacked.metadata = { ...unpacked.metadata, ...changes };
  };
  const sortsOf = (problems: readonly Problem[]): string[] =>
    problems.map(({ kind, subject }) => `${kind} ${subject}`).sort();
  const messagesOf = (problems: readonly Problem[]): string => problems.map(({ message }) => message).join('\n');
  const componentsOf = ({ release }: TestBundle): { name: string; digest: Digest }[] => [...release.images.values()];

  it('are read with their images and tags, and have no problems', async () => {
    const { scannedReleases, images, tags, ...problems } = await scan(one);
    const { release } = one;
    expect(scannedReleases.map((each) => each.problems)).to.deep.equal([[]]);
    expect(scannedReleases.map(nameRelease)).to.deep.equal([{ version: '4.12.4', release: release.pullspec }]);
    for (const { name, digest } of componentsOf(one)) {
      expect(images.get(digest)).to.deep.equal([name]);
      expect(tags.get(`${release.tag}-${name}`)).to.equal(digest);
    }
    expect(tags.get(release.tag)).to.equal(release.digest);
    expect(images.has(extra.digest)).to.equal(true);
    expect(problems).to.deep.equal({ bytes: [], wrongTags: [], unreferenced: [] });
  });

  it('have names that begin with the version if there are several', async () => {
    const { scannedReleases, images, ...problems } = await scan(several);
    expect(scannedReleases.map(({ release }) => release?.version)).to.deep.equal(['4.12.3', '4.12.4']);
    const names = [...images.values()].flat();
    for (const version of ['4.12.3', '4.12.4'])
      expect(names.filter((name) => name.startsWith(version))).not.to.be.empty;
    expect(names.every((name) => /^4\.12\.[34]/.test(name))).to.equal(true);
    expect([problems.bytes, problems.wrongTags, problems.unreferenced]).to.deep.equal([[], [], []]);
  });

  it('are found by their tag if metadata.json names another image, which is a problem', async () => {
    const [component] = componentsOf(one);
    const { scannedReleases } = await scan(one, (unpacked) => {
      const release = unpacked.metadata.release.replace(one.release.digest, component!.digest);
      change(unpacked, { release });
    });
    const [{ digest, release, problems }] = scannedReleases;
    expect(digest).to.equal(one.release.digest);
    expect(release?.version).to.equal('4.12.4');
    expect(sortsOf(problems)).to.deep.equal(['inconsistent metadata', 'inconsistent metadata']);
    expect(messagesOf(problems)).to.include(
      `metadata.json says that the release is ${component!.digest}, and it is ${one.release.digest}`,
    );
  });

  it('have the images of metadata.json if a payload cannot be read', async () => {
    const { scannedReleases, images } = await scan(one, (unpacked) => {
      unpacked.files.delete(`${folder}/manifests/${one.release.digest}`);
      change(unpacked, { components: {} });
    });
    const [{ digest, release, problems }] = scannedReleases;
    expect({ digest, release, problems }).to.deep.equal({
      digest: one.release.digest,
      release: undefined,
      problems: [],
    });
    const { metadata } = one.result;
    expect([...images.keys()]).to.have.members(metadata.images.map((image) => image.replace(/.*@/, '')));
  });

  it('are compared with the bytes that metadata.json states for each', async () => {
    const { bytes } = await scan(several, (unpacked) => {
      const [first, second] = unpacked.metadata.releases ?? [];
      change(unpacked, { releases: [{ ...first!, bytes: first!.bytes + 1 }, second!] });
    });
    expect(messagesOf(bytes)).to.match(/^metadata\.json says that 4\.12\.3 adds \d+ bytes, and it adds \d+$/);
    expect(sortsOf(bytes)).to.deep.equal(['inconsistent metadata']);
  });

  it('have only tags that lead to their images, and all of them', async () => {
    const [first, second, third] = componentsOf(one);
    const tag = ({ name }: { name: string }): string => `${one.release.tag}-${name}`;
    const absent = digestOf('absent');
    const { wrongTags } = await scan(one, ({ files }) => {
      files.set(`${folder}/manifests/${tag(first!)}`, second!.digest);
      files.delete(`${folder}/manifests/${tag(third!)}`);
      files.set(`${folder}/manifests/latest`, first!.digest);
      files.set(`${folder}/manifests/${attachmentTag(first!.digest)}`, second!.digest);
      files.set(`${folder}/manifests/${attachmentTag(absent)}`, second!.digest);
    });
    expect(messagesOf(wrongTags).split('\n')).to.have.members([
      `the tag ${tag(first!)} leads to ${second!.digest} instead of ${first!.digest}`,
      `the tag ${tag(third!)} of ${third!.digest} is missing`,
      'the tag latest is not a tag of this release',
      `the tag ${attachmentTag(first!.digest)} leads to an image that can run, and not to the sigstore signature of ${first!.digest}`,
      `the tag ${attachmentTag(absent)} belongs to no image of this bundle`,
    ]);
    expect([...new Set(sortsOf(wrongTags))]).to.deep.equal(['corrupt tag', 'missing tag', 'unexpected tag']);
  });

  it('need all content of the bundle', async () => {
    const manifest = Buffer.from('{"schemaVersion":2}');
    const { unreferenced } = await scan(one, ({ files }) => {
      files.set(`${folder}/blobs/${digestOf('spare')}`, Buffer.from('spare'));
      files.set(`${folder}/manifests/${digestOf(manifest)}`, manifest);
      files.set('v2/other/blobs/x', Buffer.from('x'));
      files.set('setup.sh', Buffer.from('#!/bin/sh'));
      files.set('v2/other/manifests/tag', digestOf(manifest));
    });
    expect(messagesOf(unreferenced).split('\n')).to.have.members([
      `the manifest ${digestOf(manifest)} belongs to no image of this bundle`,
      `the blob ${digestOf('spare')} belongs to no image of this bundle`,
      'v2/other/blobs/x does not belong in a bundle',
      'setup.sh does not belong in a bundle',
      `v2/other/manifests/tag is a link to ${digestOf(manifest)}, which does not belong in a bundle`,
    ]);
    expect(sortsOf(unreferenced).every((sort) => sort.startsWith('unexpected '))).to.equal(true);
  });

  it('may need the blobs that metadata.json lists if a manifest is missing, and no other', async () => {
    const [component] = componentsOf(one);
    const { unreferenced } = await scan(one, ({ files }) => {
      files.delete(`${folder}/manifests/${component!.digest}`);
      files.set(`${folder}/blobs/${digestOf('spare')}`, Buffer.from('spare'));
    });
    expect(messagesOf(unreferenced)).to.equal(`the blob ${digestOf('spare')} belongs to no image of this bundle`);
  });
});
