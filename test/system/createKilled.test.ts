import { execFileSync } from 'node:child_process';
import { readdir, readFile, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { TestRegistry } from '../fakes/registry/registry.ts';
import {
  digestOfFile,
  openWorkshop,
  startExecutable,
  type Running,
  type Workshop,
} from '../support/content/creation.ts';
import { TestContent } from '../support/content/image.ts';
import { putImage } from '../support/content/smallImage.ts';
import { copyAtEachStep } from '../support/program/crashStates.ts';
import { extraImage } from '../support/release/extraImage.ts';

describe('create, killed at each rename and removal', () => {
  let workshop: Workshop;
  before(async () => {
    workshop = await openWorkshop();
  });
  after(() => workshop.close());

  it('never leaves the digest of another tar, and tidies up in the next run', async () => {
    const image = extraImage({ registry: workshop.registry.host });
    image.addTo(workshop.registry.content);
    const extra = { 'extra-image': image.pullspec };
    // Another bundle already has the name.
    await workshop.make();
    const start = (env: NodeJS.ProcessEnv): Running => workshop.start(extra, env);
    const states = await copyAtEachStep(start, workshop.output, join(workshop.folder, 'states'));
    // Four renames and four removals.
    expect(states).to.have.length.of.at.least(8);
    for (const [at, state] of states.entries()) {
      await rm(workshop.output, { recursive: true });
      await rename(state, workshop.output);
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
  });

  it('never leaves the digest of another bundle of a mirror registry', async () => {
    const { folder } = workshop;
    const { content } = new TestContent();
    await using images = new TestRegistry({ content });
    await images.start();
    const names = { quay: 'quay/quay-rhel8', redis: 'rhel8/redis-6', pause: 'ubi8/pause' };
    const put = (tag: string): void => Object.values(names).forEach((name) => void putImage(content, name, tag));
    const output = join(folder, 'registry');
    const path = join(output, 'mirror-registry-2.0.11-x86_64.tar');
    const args = (tag: string): string[] => [
      'bundle',
      'create',
      '--version=2.0.11',
      '--insecure',
      `--output=${output}`,
      ...Object.entries(names).map(([key, name]) => `--target-${key}=${images.host}/${name}:${tag}`),
    ];
    const start = (tag: string, env: NodeJS.ProcessEnv = {}): Running =>
      startExecutable('oc-adm_mirror_registry', folder, args(tag), env);
    put('1-1');
    put('1-2');
    expect((await start('1-1').outcome).code).to.equal(0);
    const states = await copyAtEachStep((env) => start('1-2', env), output, join(folder, 'states'));
    expect(states).to.have.length.of.at.least(5);
    for (const [at, state] of states.entries()) {
      const noted = await readFile(join(state, `${basename(path)}.sha256`), 'utf8').catch(() => '');
      if (noted !== '')
        expect(noted, String(at)).to.include((await digestOfFile(join(state, basename(path)))).slice(7));
    }
    expect((await readdir(output)).sort()).to.deep.equal(['', '.sha256'].map((suffix) => basename(path) + suffix));
  });
});

describe('create --volume-size, killed at renames and removals', () => {
  const split = { 'volume-size': '4M' };
  let workshop: Workshop;
  before(async () => {
    workshop = await openWorkshop({ release: { components: 4, layers: 1, baseLayers: 1, layerSize: 2_500_000 } });
  });
  after(() => workshop.close());

  /** Returns the bytes of the volumes, and checks that nothing else is there. */
  const joinVolumes = async (): Promise<Buffer> => {
    const volumes = [0, 1, 2, 3].map((index) => `${basename(workshop.bundle)}.00${index}`);
    const others = ['.sha256', '.yaml'].map((suffix) => basename(workshop.bundle) + suffix);
    expect((await readdir(workshop.output)).sort()).to.deep.equal([...volumes, ...others].sort());
    return Buffer.concat(await Promise.all(volumes.map((name) => readFile(join(workshop.output, name)))));
  };
  const checkDigests = (): void => {
    const sum = ['--check', '--strict', '--quiet', `${workshop.bundle}.sha256`];
    execFileSync('sha256sum', sum, { cwd: workshop.output });
  };

  it('never mixes two forms', async () => {
    await workshop.make(split);
    const joined = await joinVolumes();
    for (const [first, former] of [{}, { 'volume-size': '5M' }].entries()) {
      await rm(workshop.output, { recursive: true });
      await workshop.make(former);
      const start = (env: NodeJS.ProcessEnv): Running => workshop.start(split, env);
      const states = await copyAtEachStep(start, workshop.output, join(workshop.folder, 'states'));
      for (const [at, state] of states.entries()) {
        if (at % 3 !== first) continue;
        await rm(workshop.output, { recursive: true });
        await rename(state, workshop.output);
        if ((await readdir(workshop.output)).includes(`${basename(workshop.bundle)}.sha256`)) checkDigests();
        await workshop.make(split);
        checkDigests();
        expect((await joinVolumes()).equals(joined), String(at)).to.equal(true);
      }
    }
  });
});
