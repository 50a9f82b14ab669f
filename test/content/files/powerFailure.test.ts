import { readFile, readlink, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import type { BundleMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import { prepareSidecars } from '../../../lib/bundle/open/sidecars.ts';
import { ArchiveWriter } from '../../../lib/content/archive/archiveWriter.ts';
import { layOutTar } from '../../../lib/content/archive/tarLayout.ts';
import { writeAtomically } from '../../../lib/content/files/atomicWrite.ts';
import { digestOf, hexOf } from '../../../lib/content/oci/reference.ts';
import { Directory } from '../../../lib/content/store/directory.ts';
import { ForgetfulDisk } from '../../fakes/files/forgetfulDisk.ts';
import { entriesOf, makeTarFile, withoutContent } from '../../support/archive/archive.ts';
import { openWorkshop } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { contentOf, makeSample } from '../store/contract.ts';

describe('a power failure', () => {
  const repository = 'openshift/release';
  let folder: string;
  before(function () {
    // The fake disk reads open files through /proc.
    if (process.platform !== 'linux') this.skip();
  });
  beforeEach(async () => (folder = await makeFolder()));
  afterEach(() => removeFolder(folder));

  it('leaves a file that was replaced with its new content', async () => {
    await writeFile(join(folder, 'file'), 'old');
    using disk = await ForgetfulDisk.open(folder);
    await writeAtomically(join(folder, 'file'), 'new');
    expect([...disk.failPower()].map(([path, content]) => [path, String(content)])).to.deep.equal([['file', 'new']]);
  });

  it('leaves a file in a new folder', async () => {
    using disk = await ForgetfulDisk.open(folder);
    await writeAtomically(join(folder, 'below', 'file'), 'new');
    expect(String(disk.failPower().get('below/file'))).to.equal('new');
  });

  it('leaves a finished archive whole', async () => {
    using disk = await ForgetfulDisk.open(folder);
    const sample = makeSample(repository);
    const full = await entriesOf(sample.content, repository);
    const writer = await ArchiveWriter.open(
      join(folder, 'upgrade.tar'),
      layOutTar(withoutContent(full)),
      makeContext(),
    );
    for (const { descriptor, bytes } of await contentOf(sample))
      await writer.push(descriptor, () => Promise.resolve(Readable.from([bytes])));
    await writer.finish();
    expect(disk.failPower().get('upgrade.tar')?.equals(makeTarFile(full))).to.equal(true);
  });

  it('leaves a directory with all content and tags', async () => {
    using disk = await ForgetfulDisk.open(folder);
    const sample = makeSample(repository);
    const directory = new Directory(folder, repository, {}, makeContext());
    for (const { descriptor, bytes } of await contentOf(sample))
      await directory.push(descriptor, () => Promise.resolve(Readable.from([bytes])));
    await directory.tag(sample.image, '1.0-x86_64');
    await directory.close();
    const left = disk.failPower();
    for (const { descriptor, bytes } of await contentOf(sample)) {
      const found = ['blobs', 'manifests'].map((each) => left.get(`v2/${repository}/${each}/${descriptor.digest}`));
      expect(found.some((each) => each?.equals(bytes))).to.equal(true);
    }
    expect(String(left.get(`v2/${repository}/manifests/1.0-x86_64`))).to.equal(
      await readlink(join(folder, 'v2', repository, 'manifests', '1.0-x86_64')),
    );
  });

  it('leaves no digest of another tar beside a bundle, at any time', async () => {
    await using workshop = await openWorkshop();
    const path = await workshop.make();
    const old = await readFile(`${path}.sha256`, 'utf8');
    await writeFile(path, 'a damaged tar');
    await writeFile(`${path}.sha256`, old.replace(/^[0-9a-f]{64}/, hexOf(digestOf(await readFile(path)))));
    const left: (string | undefined)[] = [];
    using disk = await ForgetfulDisk.open(workshop.output, (to, { failPower }) => {
      if (to === basename(path)) left.push(failPower().get(`${to}.sha256`)?.toString());
    });
    await workshop.make();
    expect(left).to.deep.equal([undefined]);
    expect(String(disk.failPower().get(`${basename(path)}.sha256`))).to.equal(old);
  });

  describe('while a bundle is replaced', () => {
    const metadata = {
      version: '4.12.4',
      arch: 'x86_64',
      release: `registry/release@${digestOf('')}`,
    } as BundleMetadata;
    const digests = { digest: digestOf('new'), volumes: [] };

    it('leaves no digest of the old bundle', async () => {
      const path = join(folder, 'upgrade.tar');
      for (const suffix of ['.sha256', '.yaml']) await writeFile(`${path}${suffix}`, 'old');
      using disk = await ForgetfulDisk.open(folder);
      await prepareSidecars(path, digests, metadata);
      expect([...disk.failPower().keys()].filter((each) => !each.endsWith('.partial'))).to.deep.equal([]);
    });

    it('leaves the digest of the new bundle', async () => {
      const path = join(folder, 'upgrade.tar');
      using disk = await ForgetfulDisk.open(folder);
      await (
        await prepareSidecars(path, digests, metadata)
      )();
      const left = disk.failPower();
      for (const suffix of ['.sha256', '.yaml'])
        expect(left.get(`upgrade.tar${suffix}`)?.equals(await readFile(`${path}${suffix}`))).to.equal(true);
    });
  });
});
