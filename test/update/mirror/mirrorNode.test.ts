import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { digestOf, type Digest } from '../../../lib/content/oci/digest.ts';
import { digestIn } from '../../../lib/content/oci/reference.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { keepMirror } from '../../../lib/update/mirror/mirrorKeeper.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

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
    ...{ keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false },
    fetchFile: () => Promise.resolve(undefined),
  });

  it('keeps a verified copy of the bundle on a medium, and finds it by its release', async () => {
    const context = makeContext();
    const cache = new BundleCache(folder, trust());
    const verified = await cache.verify({ path: made.path, device: made.folder }, digest, context);
    const copy = await cache.keep(verified, context);
    expect(digestOf(await readFile(copy?.bundle.path ?? ''))).to.equal(digest);
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

  it('is started, restarted and removed as the Secret says', async () => {
    const root = join(folder, 'host');
    const secrets = join(folder, 'secrets');
    await mkdir(secrets, { recursive: true });
    for (const each of ['usr/bin', 'etc/systemd/system', state]) await mkdir(join(root, each), { recursive: true });
    const log = join(folder, 'systemctl.log');
    const bin = join(folder, 'bin');
    await mkdir(bin);
    await writeFile(join(bin, 'systemctl'), `#!/bin/sh\necho "$@" >> ${log}\n`, { mode: 0o755 });
    // The host’s file system is this machine’s, below a folder: chroot runs the stand-in of the same path.
    await writeFile(join(bin, 'chroot'), `#!/bin/sh\nshift\nshift\nexec ${join(bin, 'systemctl')} "$@"\n`, {
      mode: 0o755,
    });
    await writeFile(join(root, 'usr/bin/systemctl'), '', { mode: 0o755 });
    for (const [name, text] of Object.entries({
      'tls.crt': 'C',
      'tls.key': 'K',
      'ca.crt': 'A',
      port: '9690',
      quota: '5',
    }))
      await writeFile(join(secrets, name), text);
    const { PATH } = process.env;
    process.env['PATH'] = `${bin}:${PATH ?? ''}`;
    try {
      const options = { host: { root, environment: process.env }, secrets, executable: 'ab', interval: 10 };
      const done = keepMirror(options, { ...makeContext(), signal: end.signal });
      const until = async (holds: (calls: string) => boolean): Promise<string> => {
        for (;;) {
          const calls = await readFile(log, 'utf8').catch(() => '');
          if (holds(calls)) return calls;
          await sleep(10);
        }
      };
      await until((calls) => calls.includes('restart oc-upgrade-bundle-mirror.service'));
      expect(await readFile(join(root, unit), 'utf8')).to.include('mirror-serve --listen=[::]:9690');
      expect(await readFile(join(root, state, 'mirror/tls.key'), 'utf8')).to.equal('K');
      expect(await readFile(join(root, state, 'mirror/quota'), 'utf8')).to.equal('5');
      await rm(join(secrets, 'tls.crt'));
      await until(() => !existsSync(join(root, state, 'mirror')));
      end.abort();
      await done;
      const name = 'oc-upgrade-bundle-mirror.service';
      expect((await readFile(log, 'utf8')).trim().split('\n')).to.deep.equal([
        ...['daemon-reload', `enable ${name}`, `restart ${name}`, `disable --now ${name}`, 'daemon-reload'],
      ]);
      expect(await readFile(join(root, unit), 'utf8').catch(() => 'gone')).to.equal('gone');
    } finally {
      process.env['PATH'] = PATH;
    }
  });
});
