import { execFileSync } from 'node:child_process';
import { cp, open, readdir, readFile, rm, truncate } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import type { BundleMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import { Archive } from '../../../lib/content/archive/archive.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import {
  blobBytes,
  expectFailure,
  listBundles,
  openWorkshop,
  payloadBlobs,
  runProgram,
  startServing,
  type Workshop,
} from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { run } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';
import type { Execution } from '../../support/program/execution.ts';
import { until } from '../../support/until.ts';

const split = { 'volume-size': '400k' };

describe('create --volume-size', () => {
  let workshop: Workshop;
  let reference: string;
  let joined: Buffer;
  before(async () => {
    workshop = await openWorkshop({ release: { components: 4, layers: 1, baseLayers: 1, layerSize: 250_000 } });
    reference = await workshop.make({ ...split, output: join(workshop.folder, 'reference') });
    joined = await joinVolumes(reference);
  });
  after(() => workshop.close());
  beforeEach(() => rm(workshop.output, { recursive: true, force: true }));
  afterEach(() => {
    workshop.killAll();
    workshop.registry.clearFaults();
  });

  const listVolumes = async (path: string): Promise<string[]> => {
    const names = await readdir(join(path, '..'));
    return names.filter((name) => /\.tar\.\d{3}$/.test(name)).sort();
  };
  const joinVolumes = async (path: string): Promise<Buffer> => {
    const names = await listVolumes(path);
    return Buffer.concat(await Promise.all(names.map((name) => readFile(join(path, '..', name)))));
  };
  /** Checks that the .sha256 file matches the existing files, and that there are no other files. */
  const expectClean = async (path: string, count: number): Promise<void> => {
    const volumes = await listVolumes(path);
    expect(volumes).to.have.length(count);
    const files = count === 0 ? [basename(path)] : volumes;
    const all = [...files, `${basename(path)}.sha256`, `${basename(path)}.yaml`];
    expect((await readdir(join(path, '..'))).sort()).to.deep.equal(all.sort());
    const sum = ['--check', '--strict', '--quiet', `${basename(path)}.sha256`];
    expect(execFileSync('sha256sum', sum, { cwd: join(path, '..'), encoding: 'utf8' })).to.equal('');
  };
  const program = (verb: string, bundle: string, ...options: string[]): Promise<Execution> =>
    runProgram(workshop.folder, verb, [
      bundle,
      ...(verb === 'inspect' ? [] : [`--trust-fingerprint=${workshop.key.fingerprint}`]),
      ...options,
    ]);

  it('makes volumes that sha256sum checks, and that cat and tar read', async () => {
    const { code, stdout, stderr } = await workshop.create(split);
    expect(code, stderr).to.equal(0);
    expect(stdout).to.match(/Volumes +4 files of 391 KiB: upgrade-4\.12\.4-x86_64\.tar\.000 to .*\.003/);
    await expectClean(workshop.bundle, 4);
    const script = `cat ${workshop.bundle}.??? | tar -t`;
    expect(execFileSync('sh', ['-c', script], { encoding: 'utf8' })).to.match(/^metadata\.json\nconfig\//);
    expect((await joinVolumes(workshop.bundle)).equals(joined)).to.equal(true);
  });

  it('has, joined, the bytes of a bundle in one file except metadata.json', async () => {
    const whole = await workshop.make();
    const entries = async (path: string): Promise<{ rest: number; metadata: BundleMetadata }> => {
      const archive = await Archive.open(path, makeContext());
      const [, second] = archive.entries.values();
      const metadata = JSON.parse(String(await archive.read('metadata.json'))) as BundleMetadata;
      await archive.close();
      return { rest: (second?.start ?? 0) - 512, metadata };
    };
    const [one, many] = [await entries(whole), await entries(reference)];
    const bytes = await readFile(whole);
    expect(bytes.subarray(one.rest).equals(joined.subarray(many.rest))).to.equal(true);
    const { volumes, size, ...metadata } = many.metadata;
    expect({ ...metadata, size: bytes.length }).to.deep.equal(one.metadata);
    expect(size).to.equal(joined.length);
    expect(volumes).to.have.length(4);
  });

  it('says in JSON which volumes there are, and plans them without writing any', async () => {
    const { stdout } = await workshop.create({ ...split, 'dry-run': true, o: 'json' });
    const { outcome, volumes } = JSON.parse(stdout) as { outcome: string; volumes: { name: string; size: number }[] };
    expect(outcome).to.equal('planned');
    expect(volumes.map(({ name }) => name)).to.deep.equal(await listVolumes(reference));
    expect(volumes[0]?.size).to.equal(400_000);
    expect(await readdir(workshop.output).catch(() => [])).to.deep.equal([]);
  });

  it('leaves a bundle alone that fits into one volume, and one that is there', async () => {
    await workshop.make({ 'volume-size': '1G' });
    await expectClean(workshop.bundle, 0);
    expect((await workshop.create()).stdout).to.match(/^Nothing to do/);
    await workshop.make(split);
    expect((await workshop.create(split)).stdout).to.match(/^Nothing to do/);
  });

  it('replaces the files of an earlier run in another form', async () => {
    const forms = [
      [{}, 0],
      [split, 4],
      [{ 'volume-size': '200k' }, 7],
      [{ 'volume-size': '500k' }, 3],
      [{}, 0],
    ] as const;
    for (const [changes, count] of forms) {
      await workshop.make(changes);
      await expectClean(workshop.bundle, count);
    }
  });

  it('splits a finished bundle without fetching it again, except for a blob that is corrupt', async () => {
    const path = await workshop.make();
    const payload = payloadBlobs(workshop.release);
    const from = workshop.registry.requests.length;
    const { stdout, stderr } = await workshop.create(split);
    expect(stdout)
      .to.match(/Volumes +4 files of 391 KiB/)
      .and.to.match(/Fetched +0 B$/m);
    expect(stderr)
      .to.match(/MiB in \d+ blobs are copied from /)
      .and.to.match(/fetching 0 B in 0 blobs of /);
    expect(blobBytes(workshop.registry, from, payload)).to.equal(0);
    await expectClean(path, 4);
    expect((await joinVolumes(path)).equals(joined)).to.equal(true);
    // The second volume begins in the middle of a layer.
    const volume = await open(`${path}.001`, 'r+');
    await volume.write('corrupt!', 100);
    await volume.close();
    const again = await workshop.create({ 'volume-size': '200k' });
    expect(again.stderr).to.match(/^warning: .*digest.*: fetching it$/m);
    expect(blobBytes(workshop.registry, from, payload)).to.be.within(200_000, 300_000);
    await expectClean(path, 7);
    expect((await program('verify', path)).code).to.equal(0);
  });

  it('removes unfinished files of another form', async () => {
    for (const changes of [{}, { 'volume-size': '200k' }]) {
      workshop.registry.fault(/GET .*\/blobs\//, { bytesPerSecond: 1_000_000 });
      const from = workshop.registry.requests.length;
      const interruption = new AbortController();
      const running = workshop.create(changes, {}, interruption.signal);
      await until(() => blobBytes(workshop.registry, from) > 150_000);
      interruption.abort();
      expect((await running).code).to.equal(130);
      expect(await listBundles(workshop.output)).to.deep.equal([]);
      workshop.registry.clearFaults();
      await workshop.make(split);
      await expectClean(workshop.bundle, 4);
      await rm(workshop.output, { recursive: true });
    }
  });

  it('is recreated if a volume is missing', async () => {
    await workshop.make(split);
    await rm(`${workshop.bundle}.002`);
    const { stderr } = await workshop.create(split);
    expect(stderr).to.match(/the volume .*\.002 is missing; creating it again/);
    await expectClean(workshop.bundle, 4);
  });

  it('names the option that helps if a file system cannot hold a file of that size', async () => {
    const executable = executableOf('oc-adm_upgrade_bundle');
    // 1000 blocks of 1024 bytes, instead of the 4 GiB of FAT32.
    const script = ['-c', 'ulimit -f 1000; exec "$0" "$@"', process.execPath, executable, 'create'];
    const env = { PATH: process.env['PATH'], HOME: workshop.folder };
    const { stderr: failed } = await run('bash', [...script, ...workshop.options()], { env });
    expect(failed).to.match(/^error \([a-z-]+\): .*cannot hold a file that large/m);
    expect(failed).to.match(/^hint: .* volumes of 4G .*\ntry: --volume-size$/m);
  });

  it('refuses an invalid size, and volumes too small to be counted', async () => {
    const output = `${workshop.output}-wrong`;
    const wrong = await workshop.create({ output, 'volume-size': '4g' });
    await expectFailure(wrong, output, [/^error \([a-z-]+\): .*volume-size: “4g” is not a size/m, /^hint: .*3900M/m], {
      exit: 2,
    });
    const tiny = await workshop.create({ output, 'volume-size': '1k' });
    await expectFailure(tiny, output, [/^error \([a-z-]+\): .*more than the limit of 1000/m, /^try: --volume-size/m], {
      exit: 2,
    });
    expect(await readdir(output).catch(() => [])).to.deep.equal([]);
  });

  it('is read by every command, by any of its names', async () => {
    const folder = join(reference, '..');
    for (const name of [reference, `${reference}.000`, `${reference}.002`, folder]) {
      const verified = await program('verify', name, `--sha256=${reference}.sha256`);
      expect(verified.stdout, verified.stderr)
        .to.match(/^Verified: /)
        .and.to.match(/Volumes +4/);
      const inspected = await program('inspect', name);
      expect(inspected.stdout, inspected.stderr).to.match(/Volumes +4 files of /);
    }
  });

  it('is verified without one of its volumes, which is all that is named', async () => {
    const folder = join(workshop.folder, 'short');
    await cp(join(reference, '..'), folder, { recursive: true });
    const lost = join(folder, `${basename(reference)}.002`);
    const cut = join(folder, `${basename(reference)}.001`);
    await rm(lost);
    const missing = await program('verify', folder);
    expect(missing.stdout)
      .to.match(/^Incomplete: /)
      .and.to.include(`\n\n  missing      the volume ${lost} is missing\n`);
    expect(missing.stderr).to.match(
      / is incomplete: copy 1 volume again\nhint: Copy this volume again: .*\.tar\.002\. Then verify the bundle again\.\n/,
    );
    await truncate(cut, 100);
    const { stdout, code } = await program('verify', folder);
    expect(stdout.split('\n\n')[1]?.trimEnd().split('\n')).to.have.length(2);
    expect(code).to.equal(1);
  });

  it('is pushed in place, and served', async () => {
    const { host } = workshop.registry;
    const pushed = await program('push', `${reference}.001`, `--to=${host}/copy/release`, '--insecure', '-o', 'json');
    expect(pushed.code, pushed.stderr).to.equal(0);
    expect(workshop.registry.content.repositories.get('copy/release')?.tags.get(workshop.release.tag)).to.equal(
      workshop.release.digest,
    );
    const trust = `--trust-fingerprint=${workshop.key.fingerprint}`;
    const { address, end } = await startServing(workshop.folder, [reference, trust]);
    const tar = await fetch(`http://${address}/bundle.tar`);
    expect(digestOf(Buffer.from(await tar.arrayBuffer()))).to.equal(digestOf(joined));
    await end();
  });
});
