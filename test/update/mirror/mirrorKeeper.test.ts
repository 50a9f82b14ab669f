import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf, type Digest, digestIn } from '../../../lib/content/oci/reference.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { keepMirror, copyToFile } from '../../../lib/update/mirror/mirrorKeeper.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { until } from '../../support/until.ts';

const unit = 'etc/systemd/system/oc-upgrade-bundle-mirror.service';
const state = 'var/lib/oc-upgrade-bundle';

describe('the mirror of a control plane node', () => {
  let made: TestBundle;
  let digest: Digest;
  let folder: string;
  let end: AbortController;

  before(async () => {
    made = await makeBundle();
    digest = digestOf(await readFile(made.path));
  });
  after(async () => {
    await made.remove();
  });
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'mirror-'));
    end = new AbortController();
  });
  afterEach(async () => {
    end.abort();
    await rm(folder, { recursive: true, force: true });
  });
  const trust = () => ({
    keyrings: [made.keyFile],
    fingerprints: [made.key.fingerprint],
    allowUnsigned: false,
    fetchFile: () => Promise.resolve(undefined),
  });

  it('keeps a verified copy of the bundle on a medium, and finds it by its release', async () => {
    const context = makeContext();
    const cache = new BundleCache(folder, trust());
    const verified = await cache.verify({ path: made.path, device: made.folder }, digest, context);
    const copy = await cache.keep(verified, context);
    expect(digestOf(await readFile(copy?.bundle.path ?? ''))).to.equal(digest);
    expect((await stat(copy?.bundle.path ?? '')).mode & 0o777).to.equal(0o600);
    const release = digestIn(verified.facts.metadata.release);
    expect((await cache.chooseCopies([release], 0, context)).digests).to.deep.equal([digest]);
    expect((await cache.chooseCopies([digestOf('another')], 0, context)).digests).to.deep.equal([]);
    for (const each of [verified, copy]) await each?.bundle[Symbol.asyncDispose]();
  });

  it('keeps no copy of a medium that changed after its verification', async () => {
    const context = makeContext();
    const cache = new BundleCache(folder, trust());
    await using changed = await makeBundle({ seed: 'another' });
    const own = digestOf(await readFile(changed.path));
    const verified = await cache.verify({ path: changed.path, device: changed.folder }, own, context);
    await changed.damage(changed.release.digest);
    await failureOf(cache.keep(verified, context), 'digest-mismatch');
    expect(await cache.openCopy(own, context)).to.equal(undefined);
    await verified.bundle[Symbol.asyncDispose]();
  });

  it('keeps nothing of a copy that is interrupted', async () => {
    const context = makeContext();
    await using chunks = (async function* (): AsyncGenerator<Buffer> {
      yield Buffer.from('one');
      context.interrupt();
      yield Buffer.from('two');
    })();
    await failureOf(copyToFile(chunks, join(folder, 'copy.tar'), undefined, context), 'interrupted');
    expect(await readdir(folder)).to.deep.equal([]);
  });

  describe('follows the Secret:', () => {
    const name = 'oc-upgrade-bundle-mirror.service';
    const started = ['daemon-reload', `enable ${name}`, `restart ${name}`];
    const { PATH } = process.env;
    let root: string;
    let secrets: string;
    let context: TestContext;
    let done: Promise<void>;

    beforeEach(async () => {
      [root, secrets] = [join(folder, 'host'), join(folder, 'secrets')];
      const bin = join(folder, 'bin');
      for (const each of [secrets, bin, ...['usr/bin', 'etc/systemd/system', state].map((path) => join(root, path))])
        await mkdir(each, { recursive: true });
      const script = `#!/bin/sh\necho "$@" >> ${folder}/calls\ntest "$SYSTEMCTL_FORCE_BUS" || exit 1\ntest ! -e ${folder}/broken\n`;
      await writeFile(join(bin, 'systemctl'), script, { mode: 0o755 });
      // The host’s file system is this machine’s, below a folder: chroot runs the stand-in of the same path.
      await writeFile(join(bin, 'chroot'), `#!/bin/sh\nshift\nshift\nexec ${join(bin, 'systemctl')} "$@"\n`, {
        mode: 0o755,
      });
      await writeFile(join(root, 'usr/bin/systemctl'), '', { mode: 0o755 });
      process.env['PATH'] = `${bin}:${PATH ?? ''}`;
      context = { ...makeContext(), signal: end.signal };
      done = keepMirror({ host: { root, environment: process.env }, secrets, executable: 'ab', interval: 10 }, context);
    });
    afterEach(async () => {
      end.abort();
      await done;
      process.env['PATH'] = PATH;
    });
    const put = async (files: Readonly<Record<string, string>>): Promise<void> => {
      for (const [file, text] of Object.entries(files)) await writeFile(join(secrets, file), text);
    };
    const secret = { 'tls.crt': 'C', 'tls.key': 'K', 'ca.crt': 'A', quota: '5', port: '9690' };
    const calls = async (): Promise<string[]> =>
      (await readFile(join(folder, 'calls'), 'utf8').catch(() => '')).split('\n').filter((line) => line !== '');
    const untilCalled = async (times: number): Promise<string[]> => {
      await until(async () => (await calls()).length >= times);
      return await calls();
    };

    it('starts with one, and restarts for another port, but not for another certificate', async () => {
      await put(secret);
      expect(await untilCalled(3)).to.deep.equal(started);
      expect(await readFile(join(root, unit), 'utf8')).to.include('mirror-serve --listen=[::]:9690');
      const key = join(root, state, 'mirror/tls.key');
      expect([await readFile(key, 'utf8'), (await stat(key)).mode & 0o777]).to.deep.equal(['K', 0o600]);
      expect(await readFile(join(root, state, 'mirror/quota'), 'utf8')).to.equal('5');
      await put({ 'tls.key': 'L' });
      await until(async () => (await readFile(key, 'utf8')) === 'L');
      await put({ port: '9700' });
      expect(await untilCalled(6)).to.deep.equal([...started, ...started]);
      expect(await readFile(join(root, unit), 'utf8')).to.include(':9700');
    });

    it('starts a unit that a killed agent has only written', async () => {
      await put(secret);
      await untilCalled(3);
      await until(() => existsSync(join(root, state, 'mirror/started.service')));
      await rm(join(root, state, 'mirror/started.service'));
      expect((await untilCalled(6)).slice(3)).to.deep.equal(started);
    });

    it('is removed with a part of it', async () => {
      await put(secret);
      await untilCalled(3);
      await rm(join(secrets, 'tls.crt'));
      await until(() => !existsSync(join(root, state, 'mirror')));
      expect(await calls()).to.deep.equal([...started, `disable --now ${name}`, 'daemon-reload']);
      expect(existsSync(join(root, unit))).to.equal(false);
    });

    it('tries again until systemd starts it, and logs the failure once', async () => {
      await writeFile(join(folder, 'broken'), '');
      await put(secret);
      await untilCalled(3);
      await rm(join(folder, 'broken'));
      await until(async () => (await calls()).at(-1) === started.at(-1));
      expect((await calls()).slice(0, 3)).to.deep.equal(Array(3).fill('daemon-reload'));
      expect(context.lines.filter((line) => line.startsWith('warn'))).to.have.length(1);
    });
  });
});
