import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Digest } from '../../lib/content/oci/reference.ts';
import { openWorkshop, type Outcome } from '../support/content/creation.ts';
import { TestContent } from '../support/content/image.ts';
import type { TestLayer } from '../support/content/layers.ts';
import { requirePeer, runSuccessfully } from '../support/peers.ts';

const mebibyte = 1024 ** 2;

/**
 * Returns layers of `size` bytes, each a little shorter than the one before. One buffer, read and hashed once, is
 * enough for all.
 */
function makeLayers(count: number, size: number): TestLayer[] {
  const bytes = Buffer.alloc(size, createHash('sha512').update('large').digest());
  const shortest = size - (count - 1) * 512;
  const hash = createHash('sha256').update(bytes.subarray(0, shortest));
  return Array.from({ length: count }, (_, index): TestLayer => {
    const end = shortest + index * 512;
    if (index > 0) hash.update(bytes.subarray(end - 512, end));
    const digest: Digest = `sha256:${hash.copy().digest('hex')}`;
    return { digest, diffId: digest, size: end, read: () => bytes.subarray(0, end) };
  });
}

describe('the memory of create', () => {
  it('stays below 250 MB for a bundle of 600 MB, from a registry and from a directory', async function () {
    requirePeer(this, 'tar');
    if (!existsSync('/proc/self/status')) {
      console.error('SKIPPED “the memory of create”: this system does not tell how much memory a process has');
      this.skip();
    }
    await using workshop = await openWorkshop();
    const contents = new TestContent();
    const { digest } = contents.addImage('site/large', {
      architecture: 'amd64',
      layers: makeLayers(12, 50 * mebibyte),
    });
    contents.addTo(workshop.registry.content);
    const changes = { 'extra-image': `${workshop.registry.host}/site/large@${digest}` };
    const check = ({ code, stderr, peakMemory }: Outcome): void => {
      expect(code, stderr).to.equal(0);
      expect(peakMemory).to.be.within(1, 250 * 1e6);
    };
    check(await workshop.start(changes).outcome);
    const folder = join(workshop.folder, 'unpacked');
    await mkdir(folder);
    await runSuccessfully('tar', ['-xf', workshop.bundle, '-C', folder]);
    const again = { ...changes, 'from-dir': folder, output: join(workshop.folder, 'again') };
    check(await workshop.start(again).outcome);
  });
});
