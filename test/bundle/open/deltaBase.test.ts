import { copyFile, mkdir, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import type { BlobRecord } from '../../../lib/bundle/metadata/metadata.ts';
import type { Bundle } from '../../../lib/bundle/open/bundle.ts';
import {
  addBases,
  baseHint,
  completeBundle,
  describeMissingBlobs,
  descriptorOf,
  listMissingBlobs,
  openComplete,
} from '../../../lib/bundle/open/deltaBase.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('the base of a delta bundle', () => {
  let base: TestBundle;
  let delta: TestBundle;
  let left: readonly BlobRecord[];
  before(async () => {
    base = await makeBundle({ version: '4.12.3', components: 2 });
    delta = await makeBundle({ version: '4.12.4', components: 2, base: base.path });
    left = delta.result.metadata.base?.blobs ?? [];
    expect(left).to.have.length.greaterThan(1);
  });
  after(() => Promise.all([base.remove(), delta.remove()]));

  /** Returns the same bundle, and counts how often it is closed. */
  const watch = (bundle: Bundle): { bundle: Bundle; closed: () => number } => {
    let closed = 0;
    const close = (): Promise<void> => ((closed += 1), bundle[Symbol.asyncDispose]());
    return { bundle: { ...bundle, [Symbol.asyncDispose]: close }, closed: () => closed };
  };

  it('gives the blobs that the delta lacks, as streams and in chunks', async () => {
    const context = makeContext();
    await using bundle = await openComplete(delta.path, { bases: [base.path] }, context);
    for (const blob of left) {
      expect(await bundle.content.exists(descriptorOf(blob))).to.equal(true);
      expect(digestOf(await buffer(await bundle.content.fetch(descriptorOf(blob))))).to.equal(blob.digest);
      const chunks = await buffer(bundle.content.chunks(descriptorOf(blob), 1, blob.size));
      expect(chunks).to.have.length(blob.size - 1);
    }
    expect(bundle.bases).to.have.length(1);
    expect(await bundle.content.tags())
      .to.include(delta.release.tag)
      .and.not.include(base.release.tag);
    expect(context.lines).to.deep.equal([`info: the base blobs of ${basename(delta.path)} are read from ${base.path}`]);
  });

  it('is found in the folder of the delta, among other files', async () => {
    const folder = join(delta.folder, 'drive');
    await mkdir(folder);
    const path = join(folder, 'delta.tar');
    await copyFile(delta.path, path);
    await writeFile(join(folder, 'a.tar'), 'no bundle');
    await copyFile(delta.path, join(folder, 'the-delta-again.tar'));
    await failureOf(openComplete(path, { bases: [] }, makeContext()), 'incomplete');
    await copyFile(base.path, join(folder, 'z.tar'));
    await using bundle = await openComplete(path, { bases: [] }, makeContext());
    expect(await listMissingBlobs(bundle)).to.deep.equal([]);
    expect(bundle.bases).to.have.length(1);
    await rm(folder, { recursive: true });
  });

  it('is not searched in the folder if the named bundles have all blobs', async () => {
    const folder = join(delta.folder, 'both');
    await mkdir(folder);
    for (const { path } of [delta, base]) await copyFile(path, join(folder, basename(path)));
    await using bundle = await openComplete(join(folder, basename(delta.path)), { bases: [base.path] }, makeContext());
    expect(bundle.bases).to.have.length(1);
  });

  it('is named with each blob if it is missing', async () => {
    const { message, hint, settings } = await failureOf(
      openComplete(delta.path, { bases: [] }, makeContext()),
      'incomplete',
    );
    const [title, ...lines] = message.split('\n');
    const count = `${left.length} blobs of it are missing:`;
    expect(title).to.equal(`${delta.path} is a delta bundle for ${base.release.pullspec} (4.12.3), and ${count}`);
    expect(lines).to.deep.equal(left.map(({ digest, size }) => `  ${digest} of ${size} bytes`));
    expect(hint).to.equal('Name the bundle of its base release 4.12.3, or copy it into the same folder.');
    expect(settings).to.deep.equal(['base']);
  });

  it('is not needed for content that the destination already has', async () => {
    const held = new Set<string>(left.map(({ digest }) => digest));
    const options = { bases: [], listHeld: () => Promise.resolve(held) };
    const bundle = await openComplete(delta.path, options, makeContext());
    expect(await listMissingBlobs(bundle)).to.deep.equal(left);
    await bundle[Symbol.asyncDispose]();
    const [first] = left;
    held.delete(first?.digest ?? '');
    const { message } = await failureOf(openComplete(delta.path, options, makeContext()), 'incomplete');
    expect(message)
      .to.match(/a blob of it is missing:/)
      .and.to.include(first?.digest);
  });

  it('is closed if the content of the destination cannot be read', async () => {
    const { bundle, closed } = watch(await openBundle(delta.path, makeContext()));
    const unreadable = new Error('permission denied');
    const options = { bases: [], listHeld: () => Promise.reject(unreadable) };
    const completing = completeBundle(bundle, options, makeContext());
    expect(await completing.catch((error: unknown) => error)).to.equal(unreadable);
    expect(closed()).to.equal(1);
  });

  it('closes the delta if a named bundle cannot be opened', async () => {
    const { bundle, closed } = watch(await openBundle(delta.path, makeContext()));
    await failureOf(addBases(bundle, [base.path, join(base.folder, 'none.tar')], makeContext()), 'not-found');
    expect(closed()).to.equal(1);
  });

  it('is not needed by other bundles, which stay as they are', async () => {
    const context = makeContext();
    await using bundle = await openBundle(base.path, context);
    expect(await addBases(bundle, [delta.path], context)).to.equal(bundle);
    expect(context.lines).to.deep.equal([`warn: ${base.path} is not a delta bundle, and needs no base`]);
    expect(await listMissingBlobs(bundle)).to.deep.equal([]);
  });

  describe('that is the site', () => {
    const blobs = ['a', 'b', 'c'].map((text) => ({ digest: digestOf(text), size: 1 }));
    const [a, b, c] = blobs.map(({ digest }) => digest);
    const images = { 'quay.io/one:1': [a!, b!], 'quay.io/two:2': [b!, c!] };

    it('is described by the images that lack blobs', () => {
      expect(describeMissingBlobs(undefined, blobs)).to.equal('3 blobs');
      expect(describeMissingBlobs({ images }, blobs.slice(0, 1))).to.equal('a blob of quay.io/one:1');
      expect(describeMissingBlobs({ images }, blobs.slice(1, 2))).to.match(
        /^a blob of quay.io\/one:1.*quay.io\/two:2$/,
      );
    });

    it('is reported again in the hint', () => {
      const { metadata } = delta.result;
      const ofSite = { ...metadata, base: { ...metadata.base!, images } };
      expect(baseHint(ofSite)).to.match(/^Create the bundle again from a new report of the site, or name the bundle/);
      expect(baseHint(metadata)).to.match(/^Name the bundle of its base release 4\.12\.3/);
    });
  });
});
