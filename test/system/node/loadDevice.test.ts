import { execFileSync } from 'node:child_process';
import { copyFile, mkdir, truncate, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { createContainers } from '../../support/archive/storeReader.ts';
import type { TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { openLoadSites, type LoadSite } from '../../support/loadSite.ts';
import { requireLoopDevices, skipLoudly } from '../../support/loopDevice.ts';
import { requirePeer, run, runSuccessfully } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('loadBundle from a device', function () {
  requirePeer(this, 'skopeo', 'podman');
  const siteOf = openLoadSites();
  let made: TestBundle;
  let site: LoadSite;
  let names: readonly string[];

  beforeEach(() => {
    site = siteOf();
    ({ made, names } = site);
  });

  it('reads a raw device and a mirror directory just as well', async function () {
    const device = await run('losetup', ['--find', '--show', '--read-only', made.path]);
    if (device.code !== 0) {
      console.error(`SKIPPED, no loop device can be made here: ${device.stderr}`);
      this.skip();
    }
    try {
      const context = makeContext();
      expect((await site.load({ images: ['release'] }, context, device.stdout.trim())).loaded).to.equal(1);
    } finally {
      await run('losetup', ['--detach', device.stdout.trim()]);
    }
    const result = await site.load({}, makeContext(), await made.unpack());
    expect(result).to.deep.include({ loaded: names.length - 1, skipped: 1 });
  });

  it('reports a USB drive that was removed in the middle, and resumes when it is back', async function () {
    await requireLoopDevices(this);
    if ((await run('xfs_io', ['-V'])).code !== 0) skipLoudly(this, 'there is no xfs_io');
    const image = join(site.folder, 'drive.img');
    const place = join(site.folder, 'drive');
    await mkdir(place);
    await writeFile(image, '');
    await truncate(image, 16 * 1024 ** 2);
    execFileSync('mkfs.ext4', ['-q', image]);
    const path = join(place, basename(made.path));
    execFileSync('mount', ['-o', 'loop', image, place]);
    try {
      await copyFile(made.path, path);
      execFileSync('sync', ['-f', place]);
      const context = makeContext(({ kind }) => {
        // From here on, its file system returns an error for every request, as without its device.
        if (kind === 'image') execFileSync('xfs_io', ['-x', '-c', 'shutdown', place]);
      });
      const error = await failureOf(site.load({ limits: { concurrency: 1 } }, context, path), 'not-readable');
      expect(error.message).to.contain(`cannot read ${path}: `);
      expect(error.hint).to.contain('insert it').and.to.contain('loaded images are skipped');
    } finally {
      execFileSync('umount', [place]);
    }
    // A mount namespace of another program may still have the first one, whose file system would be mounted again.
    const copy = `${image}.copy`;
    await copyFile(image, copy);
    execFileSync('mount', ['-o', 'loop', copy, place]);
    try {
      const { loaded, skipped } = await site.load({}, makeContext(), path);
      expect(skipped).to.be.greaterThan(0);
      expect(loaded + skipped).to.equal(names.length);
    } finally {
      execFileSync('umount', [place]);
    }
    await createContainers(site.store, join(site.folder, 'reader'), names);
  });

  it('loads from a raw device without any network', async function () {
    await requireLoopDevices(this);
    const path = (await runSuccessfully('losetup', ['--find', '--show', '--read-only', made.path])).trim();
    try {
      const trust = [`--signature-keyring=${made.keyFile}`, `--trust-fingerprint=${made.key.fingerprint}`];
      const own = [process.execPath, executableOf('oc-adm_upgrade_bundle'), 'load', path, ...trust];
      // The interfaces of a new namespace are down, also loopback.
      const script = 'ip link set lo up && ip -brief address >&2 && exec "$@"';
      const { code, stdout, stderr } = await run('unshare', ['-n', 'sh', '-c', script, 'sh', ...own], {
        env: site.host.environment,
      });
      expect(code, stderr).to.equal(0);
      const interfaces = [...stderr.matchAll(/^(\S+) +(?:UP|DOWN|UNKNOWN)\b/gm)].map(([, name]) => name);
      expect(interfaces).to.deep.equal(['lo']);
      expect(stdout).to.contain(`${names.length} loaded`);
    } finally {
      await run('losetup', ['--detach', path]);
    }
    await createContainers(site.store, join(site.folder, 'reader'), names);
  });
});
