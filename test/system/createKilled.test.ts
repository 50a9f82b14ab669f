import { cp, readdir, readFile, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { digestOfFile, openWorkshop, type Workshop } from '../support/content/creation.ts';

const killAt = fileURLToPath(new URL('../support/program/killAt.ts', import.meta.url));

describe('create, killed wherever a file gets or loses its name', () => {
  let workshop: Workshop;
  before(async () => {
    workshop = await openWorkshop();
  });
  after(() => workshop.close());

  it('never leaves the digest of another tar, and tidies up in the next run', async function () {
    this.timeout(300_000);
    const extra = { 'extra-image': workshop.release.pullspec };
    // Another bundle has the name before.
    await workshop.make();
    const other = join(workshop.folder, 'other');
    await rename(workshop.output, other);
    let kills = 0;
    for (let at = 0, killed = true; killed; at += 1) {
      await rm(workshop.output, { recursive: true, force: true });
      await cp(other, workshop.output, { recursive: true, preserveTimestamps: true });
      const { code } = await workshop.start(extra, { KILL_AT: String(at), NODE_OPTIONS: `--import=${killAt}` }).outcome;
      killed = code === null;
      if (killed) kills += 1;
      const names = await readdir(workshop.output);
      const noted = await readFile(`${workshop.bundle}.sha256`, 'utf8').catch(() => '');
      if (noted !== '')
        expect(noted).to.include((await digestOfFile(workshop.bundle)).slice(7), `${at}: ${names.join()}`);

      const path = await workshop.make(extra);
      expect((await readdir(workshop.output)).sort(), String(at)).to.deep.equal(
        ['', '.sha256', '.yaml'].map((suffix) => basename(path) + suffix),
      );
      expect(await readFile(`${path}.sha256`, 'utf8')).to.include((await digestOfFile(path)).slice(7));
    }
    // Of four names that are given, and four that are taken away, each before and after.
    expect(kills).to.be.at.least(12);
  });
});
