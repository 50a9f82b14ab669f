import { execFileSync } from 'node:child_process';
import { copyFile, mkdir, readdir, readFile, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import type { Inspection } from '../../../lib/bundle/inspect/inspect.ts';
import type { BundleMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import type { VerifyReport } from '../../../lib/bundle/verify.ts';
import { planUpdate } from '../../../lib/bundle/verify/updatePlan.ts';
import { Archive } from '../../../lib/content/archive/archive.ts';
import { releaseRepository } from '../../../lib/content/store/directory.ts';
import { rewrite } from '../../support/archive/repack.ts';
import { requireRoot, storageIn } from '../../support/archive/storeReader.ts';
import {
  addRelease,
  blobBytes,
  digestOfFile,
  expectFailure,
  openWorkshop,
  payloadBlobs,
  type ProgramOptions,
  runProgram,
  startServing,
  type Workshop,
} from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { requirePeer } from '../../support/peers.ts';
import type { Execution } from '../../support/program/execution.ts';
import type { TestRelease } from '../../support/release/release.ts';

describe('a delta', () => {
  let workshop: Workshop;
  let old: TestRelease;
  let full: string;
  let base: string;
  let delta: string;
  let metadata: BundleMetadata;
  const at = (...names: string[]): string => join(workshop.folder, ...names);

  before(async () => {
    const sizes = (grown: string, size: number) => (name: string) => (name === grown ? size : 30_000);
    const components = ['cluster-version-operator', 'etcd', 'machine-config-operator', 'machine-os-content'];
    workshop = await openWorkshop({ release: { components, layerSize: sizes('etcd', 31_000) } });
    old = await addRelease(workshop, { version: '4.12.3', layerSize: sizes('none', 0), components });
    full = await workshop.make({ output: at('full') });
    base = await workshop.make({ output: at('base'), version: old.version });
    delta = await workshop.make({ output: at('delta'), base });
    metadata = await readMetadata(delta);
    await mkdir(at('unpacked'));
    execFileSync('tar', ['-xf', base, '-C', at('unpacked')]);
    await workshop.make({ output: at('base-in-volumes'), version: old.version, 'volume-size': '100k' });
  });
  after(() => workshop.close());
  beforeEach(() => rm(workshop.output, { recursive: true, force: true }));

  const readMetadata = async (path: string): Promise<BundleMetadata> => {
    const bundle = await openBundle(path, makeContext());
    await bundle[Symbol.asyncDispose]();
    return bundle.metadata;
  };
  const program = (verb: string, bundle: string, ...options: string[]): Promise<Execution> => {
    const trust = verb === 'inspect' ? [] : [`--trust-fingerprint=${workshop.key.fingerprint}`];
    return runProgram(workshop.folder, verb, [bundle, ...trust, ...options]);
  };
  const load = async (store: string, bundle: string, ...options: string[]): Promise<Execution> => {
    const args = [bundle, `--trust-fingerprint=${workshop.key.fingerprint}`, ...options, '-o', 'json'];
    return runProgram(workshop.folder, 'load', args, await storageIn(at(store)));
  };
  const expectGood = async (bundle: string, ...options: string[]): Promise<void> => {
    const { code, stdout, stderr } = await program('verify', bundle, ...options);
    expect(stdout + stderr, stdout).to.match(/^Verified: /m);
    expect(code).to.equal(0);
  };

  it('has a name of its own, and leaves out the content of the base', async () => {
    expect(basename(delta)).to.equal('upgrade-4.12.4-x86_64-from-4.12.3.tar');
    const complete = await readMetadata(full);
    expect(metadata.base).to.include({ version: '4.12.3', arch: 'x86_64', release: old.pullspec });
    const left = metadata.base?.blobs ?? [];
    expect(left.length).to.be.above(3);
    expect(new Set([...left, ...metadata.blobs].map(({ digest }) => digest))).to.deep.equal(
      new Set(complete.blobs.map(({ digest }) => digest)),
    );
    expect(metadata.size).to.be.below(complete.size / 2);
    const { entries, close } = await Archive.open(delta, makeContext()).then((archive) => ({
      entries: archive.entries,
      close: () => archive.close(),
    }));
    for (const { digest } of left) expect(entries.has(`v2/${releaseRepository}/blobs/${digest}`)).to.equal(false);
    await close();
    expect(await readFile(`${delta}.sha256`, 'utf8')).to.include((await digestOfFile(delta)).slice(7));
  });

  it('has the same bytes whether the base is a version, a bundle, its volumes or a directory', async () => {
    for (const each of ['4.12.3', at('base-in-volumes'), at('unpacked')]) {
      const path = await workshop.make({ base: each });
      expect(await digestOfFile(path), each).to.equal(await digestOfFile(delta));
      await rm(workshop.output, { recursive: true });
    }
  });

  it('fetches no blob that it leaves out', async () => {
    const from = workshop.registry.requests.length;
    await workshop.make({ base });
    const paths = workshop.registry.requests.slice(from).map(({ path }) => path);
    for (const { digest } of metadata.base?.blobs ?? [])
      if (!payloadBlobs(workshop.release).includes(digest))
        expect(paths.filter((path) => path.endsWith(`/blobs/${digest}`))).to.deep.equal([]);
    const bytes = metadata.blobs.reduce((sum, { size }) => sum + size, 0);
    const payload = payloadBlobs(workshop.release);
    expect(blobBytes(workshop.registry, from, payload)).to.be.at.most(bytes);
  });

  it('is kept if it exists, and recreated for another base', async () => {
    await workshop.make({ base });
    for (const each of [base, '4.12.3']) {
      const { stdout } = await workshop.create({ base: each });
      expect(stdout)
        .to.match(/^Nothing to do/)
        .and.to.match(/Left out +\d+ KiB in \d+ blobs that 4\.12\.3 has/);
    }
    const checked = await workshop.create({ base, 'verify-existing': true });
    expect(checked.stdout, checked.stderr).to.match(/^Nothing to do/);
    // The same release with less content.
    const poor = await workshop.make({ output: at('poor'), version: old.version });
    await rename(poor, at('poor', 'whole.tar'));
    const folder = at('poor', 'folder');
    await mkdir(folder);
    execFileSync('tar', ['-xf', at('poor', 'whole.tar'), '-C', folder]);
    await rm(join(folder, 'v2', releaseRepository, 'blobs', metadata.base?.blobs[0]?.digest ?? ''));
    const again = await workshop.create({ base: folder });
    expect(again.stderr).to.match(/lacks blobs that the base does not have: it is replaced/);
    expect(again.stdout).to.match(/^Created/);
  });

  it('refuses a base that is the release itself, or is not there', async () => {
    const refused: readonly (readonly [ProgramOptions, RegExp, number])[] = [
      [{ base: '4.12.4' }, /^error \([a-z-]+\): the base is 4\.12\.4, a release of the delta/m, 2],
      [{ base: full }, /^error \([a-z-]+\): the base is 4\.12\.4, a release of the delta/m, 2],
      [{ base: at('nowhere.tar') }, /^error \([a-z-]+\): there is no .*nowhere\.tar/m, 1],
      [{ base: '4.12.2' }, /^error \([a-z-]+\): .*no release 4\.12\.2/m, 1],
    ];
    for (const [changes, message, exit] of refused) {
      await expectFailure(await workshop.create(changes), workshop.output, [message, /^hint: /m], { exit });
    }
  });

  it('shows the number of bytes that it saved', async () => {
    const words = await program('inspect', delta);
    expect(words.stdout, words.stderr).to.match(
      /Left out +\d+ KiB in \d+ blobs that 4\.12\.3 has: a delta, \d\d% smaller/,
    );
    expect(words.stdout).not.to.match(/missing|incomplete/);
    const inspection = JSON.parse((await program('inspect', delta, '-o', 'json')).stdout) as Inspection;
    expect(inspection.base).to.deep.include({ version: '4.12.3', blobs: metadata.base?.blobs.length });
    expect(inspection.images.every(({ complete }) => complete)).to.equal(true);
  });

  it('is not good without its base, and says of each blob who has it', async () => {
    const { code, stdout, stderr } = await program('verify', delta, '-o', 'json');
    expect(code).to.equal(1);
    const { problems, signatures } = JSON.parse(stdout) as VerifyReport;
    expect(problems.map(({ kind, subject, what }) => [kind, subject, what])).to.have.deep.members(
      (metadata.base?.blobs ?? []).map(({ digest }) => ['missing', 'blob', digest]),
    );
    expect(problems[0]?.message).to.match(/is missing in the base 4\.12\.3$/);
    expect(signatures).to.have.length(1);
    expect(stderr).to.match(/^error \([a-z-]+\): .* is incomplete: needs base 4\.12\.3$/m);
    expect(stderr).to.match(/^hint: Name the bundle of its base release 4\.12\.3, or copy it into the same folder/m);
    const words = await program('verify', delta);
    expect(words.stdout)
      .to.match(/^Incomplete: /)
      .and.to.match(/missing +\d+ blobs of the base 4\.12\.3$/m);
  });

  it('is good with its base: a bundle, one in volumes, a directory, or one beside it', async () => {
    for (const each of [base, at('base-in-volumes'), at('unpacked')]) await expectGood(delta, `--base=${each}`);
    const together = at('together');
    await mkdir(together);
    await copyFile(delta, join(together, basename(delta)));
    await copyFile(base, join(together, basename(base)));
    await expectGood(join(together, basename(delta)));
    await rename(join(together, basename(base)), join(together, 'other.tar'));
    await expectGood(join(together, basename(delta)));
  });

  it('is not good with a base in which a byte has flipped, and says which blob it is', async () => {
    const { digest = '' } = metadata.base?.blobs.at(-1) ?? {};
    const archive = await Archive.open(base, makeContext());
    const start = archive.entries.get(`v2/${releaseRepository}/blobs/${digest}`)?.start ?? 0;
    await archive.close();
    const corrupt = await rewrite(base, at('corrupt.tar'), (bytes) => {
      bytes.writeUInt8(bytes.readUInt8(start) ^ 1, start);
      return bytes;
    });
    const { code, stdout } = await program('verify', delta, `--base=${corrupt}`);
    expect(code).to.equal(1);
    expect(stdout).to.include(`the blob ${digest} is corrupt in the base 4.12.3`);
  });

  it('is neither pushed, served, loaded nor put in the place of registries without its base, and the blobs are listed', async () => {
    const to = `--to=${workshop.registry.host}/alone`;
    for (const [verb, ...options] of [['push', to, '--insecure'], ['serve'], ['load'], ['mirror']] as const) {
      const { code, stderr } = await program(verb, delta, ...options);
      expect(code).to.equal(1);
      expect(stderr).to.match(
        /^error \([a-z-]+\): .* is a delta bundle for .*@sha256:[0-9a-f]{64} \(4\.12\.3\), and \d+ blobs of it are missing:$/m,
      );
      for (const { digest, size } of metadata.base?.blobs ?? [])
        expect(stderr).to.include(`  ${digest} of ${size} bytes\n`);
      expect(stderr).to.match(/^try: --base$/m);
    }
    expect(workshop.registry.content.repositories.has('alone')).to.equal(false);
  });

  it('names the requirements of the update without its base', async () => {
    await using bundle = await openBundle(delta, makeContext());
    const fingerprints = [workshop.key.fingerprint];
    const trust = { keyrings: [], fingerprints, allowUnsigned: false, fetchFile: () => Promise.resolve(undefined) };
    const plan = await planUpdate(bundle, trust, makeContext());
    expect(plan).to.include({ version: '4.12.4' });
  });

  it('is pushed with its base', async () => {
    const to = `${workshop.registry.host}/with-base`;
    const { code, stderr } = await program('push', delta, `--to=${to}`, '--insecure', `--base=${base}`);
    expect(code, stderr).to.equal(0);
    const pushed = workshop.registry.content.repositories.get('with-base');
    expect(pushed?.tags.get(workshop.release.tag)).to.equal(workshop.release.digest);
    for (const { digest } of workshop.release.images.values()) expect(pushed?.manifests.has(digest)).to.equal(true);
  });

  it('is served with its base', async () => {
    const trust = [`--trust-fingerprint=${workshop.key.fingerprint}`, `--base=${base}`];
    const { address, end } = await startServing(workshop.folder, [delta, ...trust]);
    for (const { digest, size } of [...(metadata.base?.blobs ?? []), ...metadata.blobs]) {
      const answer = await fetch(`http://${address}/v2/${releaseRepository}/blobs/${digest}`);
      expect((await answer.arrayBuffer()).byteLength).to.equal(size);
    }
    await end();
  });

  it('is loaded with its base, with no network', async function () {
    requirePeer(this, 'skopeo');
    await requireRoot(this);
    const { code, stdout, stderr } = await load('empty', delta, `--base=${base}`);
    expect(code, stderr).to.equal(0);
    expect(JSON.parse(stdout)).to.include({ loaded: workshop.release.images.size + 1, skipped: 0 });
  });

  it('is loaded without its base into a store that has the images of the base', async function () {
    requirePeer(this, 'skopeo');
    await requireRoot(this);
    expect((await load('used', base)).code).to.equal(0);
    const { code, stdout, stderr } = await load('used', delta);
    expect(code, stderr).to.equal(0);
    expect(JSON.parse(stdout)).to.include({ loaded: workshop.release.images.size + 1, skipped: 0 });
  });

  it('makes a mirror directory whole when it is unpacked over that of its base', async () => {
    const folder = at('unpacked-over');
    await mkdir(folder);
    execFileSync('tar', ['-xf', base, '-C', folder]);
    execFileSync('tar', ['-xf', delta, '-C', folder]);
    await expectGood(folder);
  });

  it('makes the whole bundle again with its base beside it', async () => {
    const folder = at('both');
    await mkdir(folder);
    for (const path of [delta, base]) await copyFile(path, join(folder, basename(path)));
    const again = await workshop.make({ 'from-dir': join(folder, basename(delta)) });
    expect(await digestOfFile(again)).to.equal(await digestOfFile(full));
    await rm(join(folder, basename(base)));
    await expectFailure(await workshop.create({ 'from-dir': delta, output: at('none') }), at('none'), [
      /blobs of it are missing/,
      /--base/,
    ]);
  });

  it('may have a delta for its base, and be in volumes', async () => {
    const components = [...workshop.release.images.keys()];
    const layerSize = (name: string) => (name === 'etcd' ? 32_000 : 30_000);
    await addRelease(workshop, { version: '4.12.5', layerSize, components });
    const next = await workshop.make({ version: '4.12.5', base: delta, 'volume-size': '60k' });
    expect(basename(next)).to.equal('upgrade-4.12.5-x86_64-from-4.12.4.tar');
    const volumes = (await readdir(workshop.output)).filter((name) => /\.\d{3}$/.test(name));
    expect(volumes).to.have.length.above(1);
    await expectGood(next, `--base=${delta}`, `--base=${base}`);
    const without = await program('verify', next, `--base=${delta}`);
    expect(without.code).to.equal(1);
    for (const path of [delta, base]) await copyFile(path, join(workshop.output, basename(path)));
    await expectGood(`${next}.000`);
  });
});
