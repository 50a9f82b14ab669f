import { copyFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { scanContent, type ScannedContent } from '../../../lib/bundle/verify/scan.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { repack, rewrite } from '../../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';

const folder = 'v2/openshift/release';

describe('scanContent', () => {
  let bundle: TestBundle;
  before(async () => {
    bundle = await makeBundle();
  });
  after(() => bundle.remove());

  async function scan(path: string): Promise<ScannedContent> {
    const context = makeContext();
    await using opened = await openBundle(path, context, { tolerant: true });
    return await scanContent(opened, context);
  }

  it('finds manifests, blobs, tags and configuration with their contents checked', async () => {
    const { digest, bytes, manifests, blobs, tags, config, others, strayBytes } = await scan(bundle.path);
    const { metadata } = bundle.result;
    expect({ digest, bytes, strayBytes }).to.deep.equal({
      digest: bundle.result.digest,
      bytes: metadata.size,
      strayBytes: 0,
    });
    expect([...blobs].map(([name, { size }]) => ({ digest: name, size }))).to.have.deep.members([...metadata.blobs]);
    expect([...blobs.values(), ...manifests.values()].filter(({ fault }) => fault !== undefined)).to.deep.equal([]);
    expect(manifests.get(bundle.release.digest)?.manifest?.layers).not.to.be.empty;
    expect(tags.get(bundle.release.tag)?.digest).to.equal(bundle.release.digest);
    expect(config.map(({ text }) => text.split('\n', 2)[1])).to.deep.equal(['kind: ConfigMap']);
    expect(others).to.deep.equal([]);
  });

  it('finds the same in the unpacked directory, except for the digest of the whole', async () => {
    const inTar = await scan(bundle.path);
    const inDirectory = await scan(await bundle.unpack());
    expect(inDirectory.digest).to.equal(undefined);
    for (const part of ['manifests', 'blobs', 'tags'] as const) {
      const sorted = (content: ScannedContent) => [...content[part].keys()].sort();
      expect(sorted(inDirectory)).to.deep.equal(sorted(inTar));
    }
  });

  it('tells an corrupt blob from one at which the tar breaks off', async () => {
    const { metadata } = bundle.result;
    const last = metadata.blobs.at(-1) ?? { digest: digestOf(''), size: 0 };
    const path = join(bundle.folder, 'cut.tar');
    await rewrite(bundle.path, path, (bytes) =>
      bytes.subarray(0, bytes.length - 1024 - Math.floor(last.size / 2) - 512),
    );
    const { blobs, digest } = await scan(path);
    expect(digest).to.equal(undefined);
    expect(blobs.get(last.digest)?.fault).to.equal('truncated');
  });

  it('accepts an empty blob', async () => {
    const path = await repack(bundle.path, join(bundle.folder, 'empty.tar'), ({ files }) => {
      files.set(`${folder}/blobs/${digestOf('')}`, Buffer.alloc(0));
      files.set(`${folder}/blobs/${digestOf('x')}`, Buffer.alloc(0));
    });
    const { blobs } = await scan(path);
    expect(blobs.get(digestOf('')))
      .to.deep.include({ size: 0 })
      .and.not.to.have.property('fault');
    expect(blobs.get(digestOf('x'))?.fault).to.equal('corrupt');
  });

  it('reads a tag that is a copy of its manifest, and names with a dash, as on Windows', async () => {
    const root = await bundle.unpack();
    const at = (name: string): string => join(root, folder, 'manifests', name);
    await unlink(at(bundle.release.tag));
    await copyFile(at(bundle.release.digest), at(bundle.release.tag));
    await copyFile(at(bundle.release.digest), at(bundle.release.digest.replace(':', '-')));
    await unlink(at(bundle.release.digest));
    const { tags, manifests } = await scan(root);
    expect(tags.get(bundle.release.tag)?.digest).to.equal(bundle.release.digest);
    expect(manifests.get(bundle.release.digest)?.manifest).not.to.equal(undefined);
  });

  it('counts the bytes in the padding that are not zero', async () => {
    const path = join(bundle.folder, 'stray.tar');
    await rewrite(bundle.path, path, (bytes) => {
      bytes.write('xyz', 512 + JSON.stringify(bundle.result.metadata, null, 2).length + 10);
      return bytes;
    });
    expect((await scan(path)).strayBytes).to.equal(3);
  });
});
