import { execFileSync } from 'node:child_process';
import { cp, mkdir, open as openFile, readFile, readdir, rm, rmdir, stat, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { Archive } from '../../../lib/content/archive/archive.ts';
import { releaseRepository } from '../../../lib/content/store/directory.ts';
import { repack } from '../../support/archive/repack.ts';
import {
  blobBytes,
  digestOfFile,
  expectFailure,
  listBundles,
  openWorkshop,
  payloadBlobs,
  type Workshop,
} from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { extraImage } from '../../support/release/extraImage.ts';
import { until } from '../../support/until.ts';

const suffixes = { partial: '.partial', journal: '.partial.journal', lock: '.lock' };

describe('create, again', () => {
  let workshop: Workshop;
  let reference: string;

  // Layers above a megabyte, so that some are partly present.
  before(async () => {
    workshop = await openWorkshop({ release: { components: 4, layers: 1, baseLayers: 1, layerSize: 2_500_000 } });
    reference = await workshop.make({ output: join(workshop.folder, 'reference') });
  });
  after(() => workshop.close());
  beforeEach(() => rm(workshop.output, { recursive: true, force: true }));
  afterEach(() => {
    workshop.killAll();
    workshop.registry.clearFaults();
  });

  const slowly = (bytesPerSecond = 2_000_000): void => {
    workshop.registry.fault(/GET .*\/blobs\//, { bytesPerSecond });
  };
  const expectReference = async (path = workshop.bundle): Promise<void> => {
    expect(await digestOfFile(path)).to.equal(await digestOfFile(reference));
    expect((await readdir(workshop.output)).sort()).to.deep.equal(
      ['', '.sha256', '.yaml'].map((suffix) => `upgrade-4.12.4-x86_64.tar${suffix}`),
    );
  };
  const metadata = async (): Promise<{ blobs: { digest: string; size: number }[] }> => {
    const archive = await Archive.open(reference, makeContext());
    try {
      return JSON.parse((await archive.read('metadata.json', 1e7)).toString()) as never;
    } finally {
      await archive.close();
    }
  };
  const placeOf = async (digest: string): Promise<{ start: number; size: number }> => {
    const archive = await Archive.open(reference, makeContext());
    const place = archive.entries.get(`v2/${releaseRepository}/blobs/${digest}`);
    await archive.close();
    if (!place) throw new Error(`there is no ${digest}`);
    return place;
  };
  /** Returns the large blobs of the release. */
  const layers = (): string[] => {
    return [...workshop.release.blobs].filter(([, { size }]) => size > 2_000_000).map(([digest]) => digest);
  };
  /**
   * Returns the bytes that are missing according to the journal, without the payload’s own blobs, which are read each
   * time.
   */
  const missingBytes = async (): Promise<number> => {
    const lines = (await readFile(workshop.bundle + suffixes.journal, 'utf8')).split('\n').slice(1, -1);
    const present = new Map<string, number>();
    const sizes = new Map((await metadata()).blobs.map(({ digest, size }) => [digest, size]));
    for (const line of lines) {
      const [digest = '', bytes] = line.split(' ');
      present.set(digest, bytes === undefined ? (sizes.get(digest) ?? 0) : Number(bytes));
    }
    return [...sizes]
      .filter(([digest]) => !payloadBlobs(workshop.release).includes(digest))
      .reduce((sum, [digest, size]) => sum + size - (present.get(digest) ?? 0), 0);
  };
  const journal = (): Promise<string> => readFile(workshop.bundle + suffixes.journal, 'utf8').catch(() => '');
  /** Returns the large blobs that are complete according to the journal. */
  const finished = (text: string): string[] => layers().filter((digest) => text.includes(`\n${digest}\n`));
  /** Kills a run as soon as it has done something. */
  const killWhen = async (isDone: () => unknown): Promise<void> => {
    const { child, outcome } = workshop.start();
    await until(async () => child.exitCode !== null || (await isDone()));
    child.kill('SIGKILL');
    expect((await outcome).code).to.equal(null);
    expect(await listBundles(workshop.output)).to.deep.equal([]);
  };

  describe('after it was killed', () => {
    let killed: string;

    /** Keeps the state of a run that was killed twice, with complete blobs and a begun one. */
    before(async () => {
      await rm(workshop.output, { recursive: true, force: true });
      slowly();
      const from = workshop.registry.requests.length;
      await killWhen(() => blobBytes(workshop.registry, from) >= 600_000);
      workshop.registry.clearFaults();
      const [held = ''] = layers();
      const part = { bytesPerSecond: 2_000_000, cut: { after: 1_500_000, how: 'stall' } } as const;
      workshop.registry.fault(({ path }) => path.endsWith(held), part);
      await killWhen(async () => finished(await journal()).length > 1 && / [1-9]\d*\n/.test(await journal()));
      workshop.registry.clearFaults();
      killed = join(workshop.folder, 'killed');
      await cp(workshop.output, killed, { recursive: true });
    });
    beforeEach(() => cp(killed, workshop.output, { recursive: true }));

    it('fetches only missing blobs, and gives the same file', async () => {
      const missing = await missingBytes();
      const all = (await metadata()).blobs.reduce((sum, { size }) => sum + size, 0);
      expect(missing).to.be.below(all);
      const before = workshop.registry.requests.length;
      const { code, stderr } = await workshop.create();
      expect(code, stderr).to.equal(0);
      expect(stderr).to.match(/resuming .*\.partial/);
      expect(blobBytes(workshop.registry, before, payloadBlobs(workshop.release))).to.equal(missing);
      await expectReference();
    });

    /** Overwrites a few bytes at the beginning of blobs in the unfinished file. */
    const alter = async (digests: readonly string[]): Promise<void> => {
      await using file = await openFile(workshop.bundle + suffixes.partial, 'r+');
      for (const digest of digests) await file.write(Buffer.from('corrupt'), 0, 7, (await placeOf(digest)).start + 10);
    };

    it('fetches only a complete blob that is corrupt again', async () => {
      const [corrupt = ''] = finished(await journal());
      await alter([corrupt]);
      const missing = await missingBytes();
      const before = workshop.registry.requests.length;
      const { code, stderr } = await workshop.create();
      expect(code, stderr).to.equal(0);
      expect(stderr).to.match(new RegExp(`^warning: .*${corrupt} is corrupt`, 'm'));
      expect(blobBytes(workshop.registry, before, payloadBlobs(workshop.release))).to.equal(
        missing + (await placeOf(corrupt)).size,
      );
      await expectReference();
    });

    it('fetches a begun blob again whose beginning is corrupt', async () => {
      await alter([...(await journal()).matchAll(/^(\S+) [1-9]/gm)].map(([, digest = '']) => digest));
      await workshop.make();
      await expectReference();
    });
  });

  it('resumes after an interruption, which leaves no file with a final name', async () => {
    slowly();
    const interruption = new AbortController();
    const from = workshop.registry.requests.length;
    const running = workshop.create({}, {}, interruption.signal);
    await until(() => blobBytes(workshop.registry, from) >= 3_000_000);
    interruption.abort();
    await expectFailure(
      await running,
      workshop.output,
      [
        /^error \([a-z-]+\): Interrupted\./m,
        /^hint: [\d.]+\/[\d.]+ .iB is kept. To resume: oc adm-upgrade-bundle create /m,
      ],
      { exit: 130 },
    );
    expect((await readdir(workshop.output)).sort()).to.deep.equal([
      'upgrade-4.12.4-x86_64.tar.partial',
      'upgrade-4.12.4-x86_64.tar.partial.journal',
    ]);
    workshop.registry.clearFaults();
    const missing = await missingBytes();
    const before = workshop.registry.requests.length;
    await workshop.make();
    expect(blobBytes(workshop.registry, before, payloadBlobs(workshop.release))).to.equal(missing);
    await expectReference();
  });

  describe('on a finished bundle', () => {
    /** Leaves the state of a finished run, without a run. */
    const putFinished = async (): Promise<string> => {
      await cp(dirname(reference), workshop.output, { recursive: true, preserveTimestamps: true });
      return workshop.bundle;
    };

    it('says so and fetches no blob', async () => {
      const path = await putFinished();
      const { mtimeMs } = await stat(path);
      const before = workshop.registry.requests.length;
      const { code, stdout } = await workshop.create();
      expect(code).to.equal(0);
      expect(stdout).to.match(/^Nothing to do/);
      expect(stdout).to.include((await digestOfFile(path)).slice(7));
      expect(blobBytes(workshop.registry, before)).to.equal(0);
      expect((await stat(path)).mtimeMs).to.equal(mtimeMs);
    });

    it('writes a missing checksum again', async () => {
      const path = await putFinished();
      await rm(`${path}.sha256`);
      expect((await workshop.create()).stdout).to.match(/^Nothing to do/);
      await expectReference();
    });

    it('writes the files beside it again if one is missing and that is allowed', async () => {
      const path = await putFinished();
      const texts = await Promise.all(['yaml', 'sha256'].map((suffix) => readFile(`${path}.${suffix}`, 'utf8')));
      await rm(`${path}.yaml`);
      await mkdir(`${path}.yaml.partial`);
      const { code, stdout, stderr } = await workshop.create();
      expect(stdout).to.match(/^Nothing to do/);
      expect(stderr).to.match(/^warning: the files beside .*\.tar cannot be written: /m);
      expect(code).to.equal(0);
      await rmdir(`${path}.yaml.partial`);
      expect((await workshop.create()).stdout).to.match(/^Nothing to do/);
      const again = await Promise.all(['yaml', 'sha256'].map((suffix) => readFile(`${path}.${suffix}`, 'utf8')));
      expect(again).to.deep.equal(texts);
    });

    it('warns of a folder with the name of a temporary file', async () => {
      const path = await putFinished();
      await mkdir(`${path}.sha256.partial`);
      const { code, stdout, stderr } = await workshop.create();
      expect(code).to.equal(0);
      expect(stdout).to.match(/^Nothing to do/);
      expect(stderr).to.match(/^warning: the files beside .*\.tar cannot be written: /m);
      await rmdir(`${path}.sha256.partial`);
    });

    it('reads one whole that was written to after its checksum', async () => {
      const path = await putFinished();
      const file = await openFile(path, 'r+');
      await file.write(Buffer.from('corrupt'), 0, 7, 2_000_000);
      await file.close();
      const { stdout, stderr } = await workshop.create();
      expect(stderr).to.match(/^warning: .*corrupt.*creating it again/m);
      expect(stdout).to.match(/^Created/);
      await expectReference();
    });

    it('recreates a truncated bundle', async () => {
      const path = await putFinished();
      const file = await openFile(path, 'r+');
      await file.truncate(1_000_000);
      await file.close();
      const { code, stderr } = await workshop.create();
      expect(code, stderr).to.equal(0);
      expect(stderr).to.match(/^warning: .*creating it again/m);
      await expectReference();
    });

    it('recreates a corrupt bundle with --verify-existing', async () => {
      const path = await putFinished();
      const file = await openFile(path, 'r+');
      await file.write(Buffer.from('corrupt'), 0, 7, 2_000_000);
      await file.close();
      // As if it had never been written.
      await utimes(path, 1, 1);
      const unread = await workshop.create();
      expect(unread.stdout).to.match(/^Nothing to do: the bundle exists, and was not read again\n/);
      const digest = await digestOfFile(reference);
      expect(unread.stdout).to.match(
        new RegExp(`^ *Digest +${digest} \\(from upgrade-4.12.4-x86_64.tar.sha256\\)$`, 'm'),
      );
      expect(unread.stdout).to.include(
        `\nVerify every byte of it\n  oc adm-upgrade-bundle verify ${path} --trust-fingerprint=`,
      );
      const asJson = async (more = {}): Promise<unknown> =>
        (JSON.parse((await workshop.create({ format: 'json', ...more })).stdout) as { isRead: boolean }).isRead;
      expect(await asJson()).to.equal(false);
      const { code, stdout, stderr } = await workshop.create({ 'verify-existing': true });
      expect(code, stderr).to.equal(0);
      expect(stderr).to.match(/^warning: .*corrupt.*creating it again/m);
      expect(stdout).to.match(/^Created/);
      await expectReference();
      const again = await workshop.create({ 'verify-existing': true });
      expect(again.stdout).to.match(/^Nothing to do: the bundle exists, and was read and verified\n/);
      expect(again.stdout).not.to.include('Verify every byte');
      expect(await asJson({ 'verify-existing': true })).to.equal(true);
    });

    it('prints the signer that it verified, and not the one in metadata.json', async () => {
      const path = await putFinished();
      await repack(reference, path, (bundle) => {
        const signatures = { [workshop.release.digest]: [{ fingerprint: 'F00D', signer: 'Nobody' }] };
        bundle.metadata = { ...bundle.metadata, signatures };
      });
      await utimes(path, 1, 1);
      const { stdout } = await workshop.create();
      expect(stdout).to.match(/^Nothing to do/);
      expect(stdout).to.include(workshop.key.fingerprint).and.not.include('Nobody');
    });

    it('recreates a bundle that must have another image', async () => {
      await putFinished();
      const image = extraImage({ registry: workshop.registry.host });
      image.addTo(workshop.registry.content);
      const other = await workshop.create({ 'extra-image': image.pullspec });
      expect(other.stdout).to.match(/^Created/);
      expect(other.stderr).to.match(/^warning: .*\.tar lacks \S+@sha256:[0-9a-f]{64}: it is replaced$/m);
      const { stdout, stderr } = await workshop.create();
      expect(stdout).to.match(/^Created/);
      expect(stderr).to.match(/^warning: .*\.tar has \S+@sha256:[0-9a-f]{64} in addition: it is replaced$/m);
      await expectReference();
    });
  });

  describe('while another run is at it', () => {
    it('refuses with advice, and leaves the other run alone', async () => {
      slowly();
      const first = workshop.create();
      await until(() => stat(workshop.bundle + suffixes.lock).catch(() => undefined));
      await expectFailure(await workshop.create({ 'signature-store': 'http://127.0.0.1:9' }), workshop.output, [
        /^error \([a-z-]+\): another run is writing .*upgrade-4\.12\.4-x86_64\.tar$/m,
        /^hint: Wait for it to end/m,
      ]);
      const { code, stderr } = await first;
      expect(code, stderr).to.equal(0);
      await expectReference();
    });
  });

  describe('where it cannot be written', () => {
    const mount = function (this: Mocha.Context, options: string): string | undefined {
      const folder = join(workshop.folder, 'mounted');
      try {
        execFileSync('mkdir', ['-p', folder]);
        execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', folder], { stdio: 'ignore' });
        return folder;
      } catch {
        console.error(`SKIPPED “${this.test?.fullTitle() ?? ''}”: only root can mount a small file system`);
        return this.skip();
      }
    };
    afterEach(() => {
      try {
        execFileSync('umount', [join(workshop.folder, 'mounted')], { stdio: 'ignore' });
      } catch {
        // Nothing was mounted.
      }
    });

    it('says before it fetches anything that the disk is too small', async function () {
      const folder = mount.call(this, 'size=8m') ?? '';
      const before = workshop.registry.requests.length;
      await expectFailure(await workshop.create({ output: folder }), folder, [
        /^error \([a-z-]+\): .* needs \d+\.\d MiB more, and .* has \d+\.\d MiB free/m,
        /^hint: Choose another folder/m,
      ]);
      expect(blobBytes(workshop.registry, before, payloadBlobs(workshop.release))).to.equal(0);
      expect(await readdir(folder)).to.deep.equal([]);
    });

    it('reports a full disk in the middle, and resumes if there is space', async function () {
      const folder = mount.call(this, 'size=30m') ?? '';
      slowly(3_000_000);
      const before = workshop.registry.requests.length;
      const running = workshop.create({ output: folder });
      await until(() => blobBytes(workshop.registry, before) > 2_000_000);
      await writeFile(join(folder, 'other'), Buffer.alloc(24 * 1024 ** 2)).catch(() => undefined);
      await expectFailure(await running, folder, [
        /^error \([a-z-]+\): the disk is full: .*upgrade-4\.12\.4-x86_64\.tar/m,
        /^hint: Free some space, then run the same command again/m,
      ]);
      await rm(join(folder, 'other'));
      workshop.registry.clearFaults();
      const path = await workshop.make({ output: folder });
      expect(await digestOfFile(path)).to.equal(await digestOfFile(reference));
    });

    it('says that a file system is read-only', async function () {
      const folder = mount.call(this, 'size=1m,ro') ?? '';
      await expectFailure(await workshop.create({ output: folder }), folder, [
        /^error \([a-z-]+\): .*cannot be written: .*read-only/im,
        /^hint: /m,
      ]);
      const before = workshop.registry.requests.length;
      // Before any request for signatures.
      const changes = { output: join(folder, 'new', 'below'), 'signature-store': 'http://127.0.0.1:9' };
      await expectFailure(await workshop.create(changes), folder, [
        /^error \([a-z-]+\): .*read-only/im,
        /^hint: Choose another folder/m,
      ]);
      expect(blobBytes(workshop.registry, before)).to.equal(0);
    });

    it('says that the output is a file, before anything is asked for', async () => {
      const before = workshop.registry.requests.length;
      const file = await workshop.write('file', '');
      await expectFailure(await workshop.create({ output: file }), workshop.output, [
        /^error \([a-z-]+\): .*file is not a folder/m,
        /^hint: .*output folder/m,
      ]);
      expect(workshop.registry.requests.length).to.equal(before);
      await expectFailure(await workshop.create({ output: join(file, 'below') }), workshop.output, [
        /^error \([a-z-]+\): /m,
      ]);
    });
  });
});
