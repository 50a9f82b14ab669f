import { chmod, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import type { CopySteps } from '../../../lib/node/images/copyQueue.ts';
import { HostStorage } from '../../../lib/node/images/hostStorage.ts';
import type { PlannedImage } from '../../../lib/node/images/loadPlan.ts';
import { StoreChecks } from '../../../lib/node/images/storeChecks.ts';
import { makeContext } from '../../support/context.ts';

const config = JSON.stringify({ rootfs: { diff_ids: [digestOf('base')] } });
const manifest = JSON.stringify({ config: { digest: digestOf(config) } });
const digest = digestOf(manifest);
const imageOf = (label: string): PlannedImage => ({
  label,
  digest,
  name: `quay.io/a/${label}@${digest}`,
  blobs: new Map(),
});

describe('StoreChecks', () => {
  let folder: string;
  let storage: HostStorage;
  let reads: number;
  let names: string[];

  const write = async (path: string, text: string): Promise<void> => {
    const file = join(folder, path);
    await mkdir(join(file, '..'), { recursive: true });
    await writeFile(`${file}.new`, text);
    await rename(`${file}.new`, file);
  };
  const writeImages = (): Promise<void> =>
    write('main/vfs-images/images.json', JSON.stringify(names.map((name) => ({ id: 'i', names: [name], layer: 'l' }))));
  const writeLayers = (count: number): Promise<void> => {
    const others = Array.from({ length: count - 1 }, (_, index) => ({ id: `other-${index}` }));
    return write(
      'main/vfs-layers/layers.json',
      JSON.stringify([{ id: 'l', 'diff-digest': digestOf('base') }, ...others]),
    );
  };
  const repairLayer = (): Promise<unknown> => mkdir(join(folder, 'main/vfs/dir/l'), { recursive: true });
  /** What a program that copies writes into the index. */
  const copy: CopySteps['copy'] = async ({ name }) => {
    names.push(name);
    await writeImages();
  };
  const checksFor = (size: number, finish: (label: string) => void = () => undefined, copyAgain = copy): StoreChecks =>
    new StoreChecks({ storage, program: 'skopeo' }, size, copyAgain, ({ label }) => {
      finish(label);
    });
  /** Copies images, and returns how often the index was read. */
  const countReads = async (images: number, layers: number): Promise<number> => {
    [reads, names] = [0, []];
    await writeLayers(layers);
    const checks = checksFor(layers);
    let copied: PlannedImage[] = [];
    for (let index = 0; index < images; index++) {
      const image = imageOf(`image-${index}`);
      await copy(image, makeContext());
      copied.push(image);
      if (!checks.isDue(copied.length)) continue;
      expect(await checks.check(copied, makeContext())).to.have.property('size', 0);
      copied = [];
    }
    return reads;
  };

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'checks-'));
    const roots = [`graphroot = "${folder}/main"`, `runroot = "${folder}/run"`, 'driver = "vfs"'];
    await write('storage.conf', ['[storage]', ...roots, ''].join('\n'));
    const environment = { PATH: `${folder}:/usr/bin:/bin`, CONTAINERS_STORAGE_CONF: join(folder, 'storage.conf') };
    storage = await HostStorage.open({ root: '/', environment });
    const readIndex = storage.readIndex.bind(storage);
    storage.readIndex = () => {
      reads += 1;
      return readIndex();
    };
    [reads, names] = [0, []];
    await repairLayer();
    const keyOf = (key: string): string => `main/vfs-images/i/=${Buffer.from(key).toString('base64')}`;
    await write(keyOf(`manifest-${digest}`), manifest);
    await write(keyOf(digestOf(config)), config);
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('reads the index after each image in a small store, and less often the larger the store is', async () => {
    expect(await countReads(40, 100)).to.equal(40);
    expect(await countReads(40, 4000)).to.equal(8);
    expect(await countReads(40, 40_000)).to.equal(1);
  });

  it('removes all images with a broken layer, and only then copies them again', async () => {
    const script = [
      '#!/bin/sh',
      `case "$*" in *rmi*) for name; do :; done; echo "$name" >>${folder}/removed;; esac`,
      '',
    ];
    await writeFile(join(folder, 'podman'), script.join('\n'));
    await chmod(join(folder, 'podman'), 0o755);
    await writeLayers(1);
    names = ['a', 'b', 'c'].map((label) => imageOf(label).name);
    await writeImages();
    await rm(join(folder, 'main/vfs/dir/l'), { recursive: true });
    const removedBefore: string[][] = [];
    const finished: string[] = [];
    const copyAgain: CopySteps['copy'] = async () => {
      removedBefore.push((await readFile(join(folder, 'removed'), 'utf8')).trim().split('\n'));
      await repairLayer();
    };
    const images = ['a', 'b'].map(imageOf);
    const context = makeContext();
    const checks = checksFor(4, (label) => finished.push(label), copyAgain);
    expect(await checks.check(images, context)).to.have.property('size', 0);
    const both = images.map(({ name }) => name);
    expect(removedBefore).to.deep.equal([both, both]);
    expect(finished).to.deep.equal(['a', 'b']);
  });

  it('names the images that stay broken, and finishes the others', async () => {
    await writeLayers(1);
    await copy(imageOf('a'), makeContext());
    const finished: string[] = [];
    const checks = checksFor(2, (label) => finished.push(label));
    const failures = await checks.check([imageOf('a'), imageOf('lost')], makeContext());
    expect([...failures].map(([{ label }, { code, message }]) => [label, code, message])).to.deep.equal([
      ['lost', 'incomplete', 'skopeo reports it as loaded, but the store does not have it'],
    ]);
    expect(finished).to.deep.equal(['a']);
  });
});
