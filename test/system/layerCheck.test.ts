import { existsSync } from 'node:fs';
import { readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf, hexOf } from '../../lib/content/oci/reference.ts';
import { HostStorage } from '../../lib/node/images/hostStorage.ts';
import type { ImageStore } from '../../lib/node/images/imageStore.ts';
import { findDamagedImages } from '../../lib/node/images/layerCheck.ts';
import { storeImagesOf } from '../../lib/node/images/loadPlan.ts';
import { pathOnHost, loadFolder } from '../../lib/node/machine/host.ts';
import { AgentImages } from '../../lib/update/agent/agentImages.ts';
import type { BundleFacts } from '../../lib/update/record/bundleFacts.ts';
import { upgradeBundleKind, type Phase, type UpgradeBundle } from '../../lib/update/record/upgradeBundle.ts';
import type { TestBundle } from '../support/content/bundle.ts';
import { makeContext } from '../support/context.ts';
import { openLoadSites, type LoadSite } from '../support/loadSite.ts';
import { requirePeer, run } from '../support/peers.ts';
import { failureOf } from '../support/program/failure.ts';

describe('the check of layers in a store of skopeo', function () {
  requirePeer(this, 'skopeo', 'podman');
  const siteOf = openLoadSites();
  let made: TestBundle;
  let site: LoadSite;
  let store: ImageStore;

  beforeEach(async () => {
    site = siteOf();
    ({ made } = site);
    await site.load();
    store = (await HostStorage.open(site.host)).main;
  });

  const find = async (content: boolean) => {
    const index = await (await HostStorage.open(site.host)).readIndex();
    const images = storeImagesOf({ metadata: made.result.metadata, path: '' });
    expect(images.flatMap((image) => index.layersOf(image)).length).to.be.greaterThan(0);
    return await findDamagedImages(site.host, index, images, { content }, makeContext());
  };
  /** Returns a file of a layer that has content. */
  const fileOf = async (): Promise<string> => {
    const root = join(store.graphRoot, 'overlay');
    for (const name of await readdir(root, { recursive: true })) {
      const found = await stat(join(root, name)).catch(() => undefined);
      if (name.includes('/diff/') && found?.isFile() && found.size > 0) return join(root, name);
    }
    throw new Error(`${root} has no file`);
  };

  it('finds nothing in whole layers, by their sizes and by their digests', async () => {
    expect(await find(false)).to.deep.equal([]);
    expect(await find(true)).to.deep.equal([]);
    expect(await site.load({ verify: true })).to.deep.include({ loaded: 0 });
  });

  it('finds a file that was truncated, which skopeo and podman do not notice, and a load with verify loads the image again', async () => {
    const file = await fileOf();
    const { size } = await stat(file);
    await truncate(file, 0);
    const [damaged, ...others] = await find(false);
    expect(damaged?.fault).to.match(
      new RegExp(`^its layer sha256:[0-9a-f]{64} is damaged: .* has 0 of ${size} bytes$`),
    );
    // The layers of the other images are their own.
    expect(others).to.deep.equal([]);
    expect(await site.load()).to.deep.include({ loaded: 0 });
    expect(await site.load({ verify: true })).to.deep.include({ loaded: 1 });
    expect(await find(true)).to.deep.equal([]);
  });

  it('names the command that helps if an image cannot be removed', async () => {
    await truncate(await fileOf(), 0);
    const [damaged] = await find(false);
    await run('podman', ['create', '--name=user', damaged?.name ?? '', 'x'], { env: site.host.environment });
    const failure = await failureOf(site.load({ verify: true }), 'incomplete');
    expect(failure.message).to.contain(damaged?.name).and.to.contain('cannot be used');
    expect(failure.hint).to.contain(`podman rmi --force ${damaged?.name ?? ''}`);
    await run('podman', ['rmi', '--force', damaged?.name ?? ''], { env: site.host.environment });
    expect(await site.load({ verify: true })).to.deep.include({ loaded: 1 });
  });

  /** What a power failure leaves of the layers of a store, and which image is loaded again. */
  const remains: [
    what: string,
    damage: (overlay: string, layers: readonly { id: string; parent?: string }[]) => Promise<void>,
  ][] = [
    ['the folder of a layer', (overlay, [first]) => rm(join(overlay, first?.id ?? ''), { recursive: true })],
    ['the files of a layer', (overlay, [first]) => rm(join(overlay, first?.id ?? '', 'diff'), { recursive: true })],
    ['the name of a layer for others', (overlay, [first]) => writeFile(join(overlay, first?.id ?? '', 'link'), '')],
    [
      'the layers below one',
      (overlay, layers) => rm(join(overlay, layers.find(({ parent }) => parent)?.id ?? '', 'lower')),
    ],
    ['the index of layers', (overlay) => writeFile(`${overlay}-layers/layers.json`, '')],
    [
      'a layer in the index',
      (overlay, [, ...others]) => writeFile(`${overlay}-layers/layers.json`, JSON.stringify(others)),
    ],
  ];
  for (const [what, damage] of remains)
    it(`reloads an image that lost ${what}, and is still in the index`, async () => {
      const overlay = join(store.graphRoot, 'overlay');
      const layers = JSON.parse(await readFile(`${overlay}-layers/layers.json`, 'utf8')) as {
        id: string;
        parent?: string;
      }[];
      await damage(overlay, layers);
      expect((await site.load({ verify: true })).loaded).to.be.greaterThan(0);
      const index = await (await HostStorage.open(site.host)).readIndex();
      expect((await index.findBroken()).size).to.equal(0);
      expect(await site.load({ verify: true })).to.deep.include({ loaded: 0 });
    });

  it('loads an image whose layer a power failure broke', async () => {
    const overlay = join(store.graphRoot, 'overlay');
    const file = `${overlay}-images/images.json`;
    const images = JSON.parse(await readFile(file, 'utf8')) as { layer: string }[];
    const layers = JSON.parse(await readFile(`${overlay}-layers/layers.json`, 'utf8')) as { parent?: string }[];
    // The release builds on the top layer of another image. skopeo lists the images in any order.
    const lost = images.find(({ layer }) => !layers.some(({ parent }) => parent === layer));
    await writeFile(file, JSON.stringify(images.filter((image) => image !== lost)));
    await writeFile(join(overlay, lost?.layer ?? '', 'link'), '');
    expect(await site.load()).to.deep.include({ loaded: 1 });
    expect(await site.load({ verify: true })).to.deep.include({ loaded: 0 });
  });

  it('finds changed content of the same size by the digest only', async () => {
    const file = await fileOf();
    const content = await readFile(file);
    content[0] = (content[0] ?? 0) ^ 1;
    await writeFile(file, content);
    expect(await find(false)).to.deep.equal([]);
    expect((await find(true))[0]?.fault).to.contain('its files have the digest sha256:');
  });

  it('reads all layers after a load that a restart of the machine ended, until a load has made the store durable', async () => {
    const file = await fileOf();
    const [whole, changed] = [await readFile(file), await readFile(file)];
    changed[0] = (changed[0] ?? 0) ^ 1;
    const marker = `${loadFolder}-${hexOf(digestOf(store.graphRoot)).slice(0, 8)}.unsynced`;
    const place = pathOnHost(site.host, marker);
    await writeFile(file, changed);
    await writeFile(place, (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim());
    expect(await site.load()).to.deep.include({ loaded: 0 });
    expect(existsSync(place)).to.equal(false);
    await writeFile(place, 'an earlier boot');
    const context = makeContext();
    const log = (_: string, text: string): void => {
      if (text.includes('all layers are read')) context.interrupt();
    };
    await failureOf(site.load({}, { ...context, log }), 'interrupted');
    expect(await site.load()).to.deep.include({ loaded: 1 });
    expect(await readFile(file)).to.deep.equal(whole);
    expect(existsSync(place)).to.equal(false);
  });

  const count = (phase: Phase, images: AgentImages) => {
    const facts = { metadata: made.result.metadata, digest: made.result.digest } as BundleFacts;
    const bundle: UpgradeBundle = {
      ...upgradeBundleKind,
      metadata: { name: 'x' },
      spec: { bundle: {}, hold: false },
      status: { phase, version: '4.19.4' },
    };
    return images.count(facts, bundle, makeContext());
  };

  it('removes damaged images before the update begins, so that the node loads them again', async () => {
    await truncate(await fileOf(), 0);
    const images = new AgentImages(site.host, 0);
    const { total, loaded, damage } = await count('Loaded', images);
    expect(loaded).to.equal(total - 1);
    expect(damage).to.equal(undefined);
    // Back in Loading, it stays so.
    expect(await count('Loading', images)).to.deep.include({ total, loaded });
  });

  for (const phase of ['Upgrading', 'Completed'] as const)
    it(`removes images that a power failure damaged in phase ${phase}, after a restart of the agent`, async () => {
      const file = await fileOf();
      const whole = new AgentImages(site.host, 0);
      const { total } = await count(phase, whole);
      expect(await count(phase, whole)).to.deep.equal({ total, loaded: total });
      await truncate(file, 0);
      const images = new AgentImages(site.host, 0);
      expect(await count(phase, images)).to.deep.equal({ total, loaded: total - 1 });
      expect(await count(phase, images)).to.deep.include({ total, loaded: total - 1 });
      await site.load();
      expect(await count(phase, images)).to.deep.equal({ total, loaded: total });
      expect(await find(true)).to.deep.equal([]);
    });

  it('keeps each image with a damaged layer while a container uses one of them, and says so until it is gone', async () => {
    const read = async (path: string) => JSON.parse(await readFile(join(store.graphRoot, path), 'utf8')) as unknown;
    const tops = ((await read('overlay-images/images.json')) as { layer: string }[]).map(({ layer }) => layer);
    const layers = (await read('overlay-layers/layers.json')) as { parent?: string }[];
    // The release has the layers of another image below its own.
    const shared = layers.find(({ parent }) => tops.includes(parent ?? ''))?.parent ?? '';
    const root = join(store.graphRoot, 'overlay', shared, 'diff');
    const names = await readdir(root, { recursive: true, withFileTypes: true });
    const path = names.filter((each) => each.isFile()).map((each) => join(each.parentPath, each.name))[0] ?? '';
    await truncate(path, 1);
    const damaged = await find(false);
    expect(damaged).to.have.length(2);
    const used = damaged[0]?.name ?? '';
    await run('podman', ['create', '--name=user', used, 'x'], { env: site.host.environment });
    const images = new AgentImages(site.host, 0);
    const { total, loaded, damage } = await count('Completed', images);
    expect(loaded).to.equal(total - 2);
    expect(damage).to.contain(`It stays: containers use ${used}`);
    expect(await find(false)).to.have.length(2);
    expect((await failureOf(site.load({ verify: true }), 'incomplete')).message).to.contain(`containers use ${used}`);
    await run('podman', ['rm', 'user'], { env: site.host.environment });
    expect(await count('Completed', images)).to.deep.equal({ total, loaded: total - 2 });
    expect(await site.load({ verify: true })).to.deep.include({ loaded: 2 });
    expect(await count('Completed', images)).to.deep.equal({ total, loaded: total });
  });

  it('keeps an image that only a container of CRI-O uses, which earlier versions of podman do not see', async () => {
    await truncate(await fileOf(), 0);
    const [damaged] = await find(false);
    const index = await (await HostStorage.open(site.host)).readIndex();
    const list = join(store.graphRoot, 'overlay-containers/volatile-containers.json');
    await writeFile(list, JSON.stringify([{ id: 'x', image: damaged && index.idOf(damaged) }]));
    const { damage = '' } = await count('Completed', new AgentImages(site.host, 0));
    expect(damage).to.contain(`containers use ${damaged?.name ?? ''}. Drain the node`);
    expect(await find(false)).to.have.length(1);
  });

  it('keeps a damaged layer that an image of no bundle has too, because each load would reuse it', async () => {
    const file = await fileOf();
    await truncate(file, 0);
    const [damaged] = await find(false);
    const path = join(store.graphRoot, 'overlay-images/images.json');
    const listed = JSON.parse(await readFile(path, 'utf8')) as { id: string; names?: string[] }[];
    const own = listed.find(({ names }) => names?.includes(damaged?.name ?? ''));
    await writeFile(path, JSON.stringify([...listed, { ...own, id: '0'.repeat(64), names: ['site.example/own:1'] }]));
    const { total, loaded, damage } = await count('Completed', new AgentImages(site.host, 0));
    expect([loaded, damage?.includes('site.example/own:1 of no bundle has it too')]).to.deep.equal([total - 1, true]);
  });
});
