import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import type { CopySteps } from '../../../lib/node/images/copyQueue.ts';
import type { HostStorage } from '../../../lib/node/images/hostStorage.ts';
import type { PlannedImage } from '../../../lib/node/images/loadPlan.ts';
import { StoreChecks } from '../../../lib/node/images/storeChecks.ts';
import { makeContext } from '../../support/context.ts';
import { StoreHost } from '../../support/program/storeHost.ts';

const config = { rootfs: { diff_ids: [digestOf('base')] } };
const configDigest = digestOf(JSON.stringify(config));
const manifest = { config: { digest: configDigest } };
const digest = digestOf(JSON.stringify(manifest));
const imageOf = (label: string): PlannedImage => ({
  label,
  digest,
  name: `quay.io/a/${label}@${digest}`,
  blobs: new Map(),
});

describe('StoreChecks', () => {
  let host: StoreHost;
  let folder: string;
  let storage: HostStorage;
  let reads: number;
  let names: string[];

  const writeImages = (): Promise<void> =>
    host.writeJson(
      'main/vfs-images/images.json',
      names.map((name) => ({ id: 'i', names: [name], layer: 'l' })),
    );
  const writeLayers = (count: number): Promise<void> => {
    const others = Array.from({ length: count - 1 }, (_, index) => ({ id: `other-${index}` }));
    return host.writeJson('main/vfs-layers/layers.json', [{ id: 'l', 'diff-digest': digestOf('base') }, ...others]);
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
    host = await StoreHost.make();
    ({ folder } = host);
    storage = await host.open();
    const readIndex = storage.readIndex.bind(storage);
    storage.readIndex = () => {
      reads += 1;
      return readIndex();
    };
    [reads, names] = [0, []];
    await repairLayer();
    const keyOf = (key: string): string => `main/vfs-images/i/=${Buffer.from(key).toString('base64')}`;
    await host.writeJson(keyOf(`manifest-${digest}`), manifest);
    await host.writeJson(keyOf(configDigest), config);
  });
  afterEach(() => host[Symbol.asyncDispose]());

  it('reads the index after each image in a small store, and less often the larger the store is', async () => {
    expect(await countReads(40, 100)).to.equal(40);
    expect(await countReads(40, 4000)).to.equal(8);
    expect(await countReads(40, 40_000)).to.equal(1);
  });

  it('removes all images with a broken layer, and only then copies them again', async () => {
    await host.addProgram(
      'podman',
      `case "$*" in *rmi*) for name; do :; done; echo "$name" >>${folder}/removed;; esac`,
    );
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
