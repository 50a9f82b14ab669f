import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { clusterPinFile, holdFile, pinFile } from '../../../lib/node/machine/host.ts';
import {
  countPinned,
  holdImages,
  readHold,
  readPinnedReleases,
  releaseImages,
  unpinImages,
  unpinReleases,
  writePins,
} from '../../../lib/node/runtime/pins.ts';
import { makeBundle } from '../../support/content/bundle.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';

const program = fileURLToPath(new URL('../../../cmd/oc-adm_upgrade_bundle.ts', import.meta.url));
const [one, two] = ['quay.io/a/b@sha256:1', 'quay.io/a/b@sha256:2'];

describe('pinImages', () => {
  let root: string;
  const host = () => ({ root, environment: {} });
  const write = async (path: string, text: string): Promise<void> => {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  };
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'pins-'));
  });
  afterEach(() => rm(root, { recursive: true }));

  it('counts the images that CRI-O keeps by its last list: names, and parts of names', async () => {
    expect(await countPinned(host(), [one, two])).to.equal(0);
    await writePins(host(), [one]);
    expect(await countPinned(host(), [one, two])).to.equal(1);
    for (const [pattern, count] of [
      ['quay.io/a/*', 2],
      ['*b@sha256*', 2],
      [two, 1],
      ['quay.io/c/*', 0],
    ] as const) {
      await write(clusterPinFile, `[crio.image]\npinned_images = ["${pattern}"]\n`);
      expect(await countPinned(host(), [one, two]), pattern).to.equal(count);
    }
  });

  it('writes a list in the table of images, adds to it, and says whether anything changed', async () => {
    expect(await writePins(host(), [two])).to.deep.equal({ file: pinFile, pinned: [two], changed: true });
    expect(await writePins(host(), [one])).to.deep.include({ pinned: [one, two], changed: true });
    expect(await writePins(host(), [one])).to.deep.include({ changed: false });
    const text = await readFile(join(root, pinFile), 'utf8');
    expect(text).to.contain(`[crio.image]\npinned_images = [\n  "${one}",\n  "${two}",\n]\n`);
    expect(await readdir(dirname(join(root, pinFile)))).to.have.length(1);
  });

  it('removes pins that are no longer needed, and the file with the last one', async () => {
    await writePins(host(), [one, two]);
    expect(await unpinImages(host(), [one])).to.deep.include({ pinned: [two], changed: true });
    for (const last of [[two], 'all'] as const) {
      await writePins(host(), [two]);
      expect(await unpinImages(host(), last)).to.deep.include({ pinned: [], changed: true });
      expect(await readdir(dirname(join(root, pinFile)))).to.deep.equal([]);
    }
    expect(await unpinImages(host(), 'all')).to.deep.include({ changed: false });
  });

  it('removes the pins of a release that no other release needs', async () => {
    const [three, four] = ['quay.io/a/b@sha256:3', 'quay.io/a/b@sha256:4'];
    await writePins(host(), [one]);
    await writePins(host(), [two, one], 'quay.io/r@sha256:old');
    await writePins(host(), [three, two], 'quay.io/r@sha256:new');
    expect(await writePins(host(), [two], 'quay.io/r@sha256:new')).to.deep.include({ changed: false });
    expect(await readPinnedReleases(host())).to.have.members(['quay.io/r@sha256:old', 'quay.io/r@sha256:new']);
    expect(await unpinReleases(host(), ['quay.io/r@sha256:other'])).to.deep.include({ changed: false });
    expect(await unpinReleases(host(), ['quay.io/r@sha256:new'])).to.deep.include({
      pinned: [one, two],
      changed: true,
    });
    expect(await unpinReleases(host(), ['quay.io/r@sha256:old'])).to.deep.include({ pinned: [one], changed: true });
    await writePins(host(), [four], 'quay.io/r@sha256:old');
    expect(await unpinImages(host(), [four])).to.deep.include({ pinned: [one] });
    expect(await readPinnedReleases(host())).to.deep.equal([]);
  });

  it('holds images in a list that counts last, with the pins of others', async () => {
    const listed = async () =>
      [...(await readFile(join(root, holdFile), 'utf8')).matchAll(/"(.*)"/g)].map(([, x]) => x);
    await write(clusterPinFile, `[crio.image]\npinned_images = ["${two}", "*pause*"]\n`);
    expect(await holdImages(host(), [one])).to.equal(true);
    expect(await listed()).to.deep.equal(['*pause*', one, two]);
    expect((await readdir(dirname(join(root, holdFile)))).sort().at(-1)).to.equal(basename(holdFile));
    expect(await holdImages(host(), [one])).to.equal(false);
    await write(clusterPinFile, `[crio.image]\npinned_images = ["a/new"]\n`);
    expect(await holdImages(host(), [one])).to.equal(true);
    expect(await listed()).to.deep.equal(['a/new', one]);
  });

  it('tells a hold from the pins of the cluster, and ends it', async () => {
    expect(await readHold(host(), [one])).to.deep.equal({ isHeld: false, isPinned: false });
    await holdImages(host(), [one]);
    expect(await readHold(host(), [one])).to.deep.equal({ isHeld: true, isPinned: false });
    await write(clusterPinFile, `[crio.image]\npinned_images = ["${one}"]\n`);
    expect(await readHold(host(), [one])).to.deep.equal({ isHeld: true, isPinned: true });
    expect(await releaseImages(host())).to.equal(true);
    expect(await releaseImages(host())).to.equal(false);
    expect(await readHold(host(), [one, two])).to.deep.equal({ isHeld: false, isPinned: false });
  });

  it('refuses to hold images if a list counts even then', async () => {
    await write('/etc/crio/crio.conf.d/zz/late.conf', `[crio.image]\npinned_images = ["${two}"]\n`);
    expect(await holdImages(host(), [one]), 'a folder before the hold').to.equal(true);
    await releaseImages(host());
    await write('/etc/crio/crio.conf.d/zzz.conf', `[crio.image]\npinned_images = ["${two}"]\n`);
    await failureOf(holdImages(host(), [one]), 'conflict');
    await rm(join(root, '/etc/crio/crio.conf.d'), { recursive: true });
    expect(await holdImages(host(), [one])).to.equal(true);
    expect((await writePins(host(), [two])).pinned, 'a hold is no foreign list').to.deep.equal([two]);
  });

  it('sorts before the list of PinnedImageSets, which therefore wins', () => {
    expect(pinFile < join(dirname(pinFile), '50-pinned-images')).to.equal(true);
  });

  for (const name of [
    'crio.conf',
    'crio.conf.d/00-site',
    'crio.conf.d/50-pinned-images',
    'crio.conf.d/99-late.conf',
    'crio.conf.d/old/00-a',
  ]) {
    it(`refuses to pin images beside a list in ${name}`, async () => {
      const path = `/etc/crio/${name}`;
      await write(path, '[crio]\n[crio.image]\npause_image = "p"\npinned_images = [\n  "quay.io/x/*",\n]\n');
      const error = await failureOf(writePins(host(), [one]), 'conflict');
      expect(error.message).to.contain(path);
      if (name.endsWith('50-pinned-images')) expect(error.hint).to.contain('PinnedImageSets');
      expect(existsSync(join(root, pinFile))).to.equal(false);
    });
  }

  it('ignores a list that is empty, commented out, or in no table', async () => {
    await write(
      '/etc/crio/crio.conf',
      'pinned_images = ["a"]\n[crio.image]\n# pinned_images = ["b"]\npinned_images = []\n',
    );
    expect((await writePins(host(), [one])).pinned).to.deep.equal([one]);
  });

  it('pins the release image and all others of a bundle, as a command', async () => {
    await using made = await makeBundle();
    const call = (...args: string[]) => executeProgram(program, ['pin', ...args, `--root=${root}`]);
    const trust = [`--signature-keyring=${made.keyFile}`, `--trust-fingerprint=${made.key.fingerprint}`];
    const refused = await call(made.path);
    expect([refused.code, existsSync(join(root, pinFile))], refused.stderr).to.deep.equal([1, false]);
    const pinned = await call(made.path, ...trust);
    expect(pinned.code, pinned.stderr).to.equal(0);
    expect(pinned.stdout).to.contain('systemctl reload crio');
    const text = await readFile(join(root, pinFile), 'utf8');
    for (const name of [made.release.pullspec, ...made.result.metadata.images]) expect(text).to.contain(`"${name}"`);
    const { file, changed } = JSON.parse((await call(made.path, ...trust, '-o', 'json')).stdout) as Record<
      string,
      unknown
    >;
    expect({ file, changed }).to.deep.equal({ file: pinFile, changed: false });
    expect((await call(made.path, '--remove')).code).to.equal(1);
    expect(await readFile(join(root, pinFile), 'utf8')).to.equal(text);
    const removed = await call('--remove');
    expect(removed.stdout).to.contain('No images are pinned');
    expect((await call()).code).to.equal(2);
  });
});
