import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import type { PluginError } from '../../../lib/errors.ts';
import { HostStorage } from '../../../lib/node/images/hostStorage.ts';
import type { DamagedImage } from '../../../lib/node/images/layerCheck.ts';
import {
  removalHint,
  removeBrokenImages,
  removeDamagedImages,
  removeImages,
} from '../../../lib/node/images/storeRepair.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { StoreHost } from '../../support/program/storeHost.ts';

const nameOf = (label: string): string => `quay.io/a/${label}@${digestOf(label)}`;

/** The image of a layer of its own, whose content is damaged. */
const damagedImage = (label: string, layer = label): DamagedImage => ({
  name: nameOf(label),
  digest: digestOf(label),
  layer,
  fault: `its layer ${layer} is damaged`,
});

describe('the repair of an image store', () => {
  let host: StoreHost;
  /** The layer of each image, by its name. */
  let images: Record<string, string>;

  const writeIndex = (path = 'main/vfs-images/images.json', listed = images): Promise<void> =>
    host.writeJson(
      path,
      Object.entries(listed).map(([name, layer]) => ({ id: `id of ${name}`, names: [name], layer })),
    );
  /** Adds a podman that removes images. Its store has `kept` afterwards; undefined if it refuses to remove any. */
  const addPodman = async (kept: Record<string, string> | undefined): Promise<void> => {
    if (kept) await writeIndex('kept.json', kept);
    const { folder } = host;
    await host.addProgram(
      'podman',
      // Its other call asks for its store.
      `case "$*" in *rmi*) ;; *) echo ${folder}/main; exit;; esac`,
      `[ -e ${folder}/kept.json ] || { echo 'image is in use' >&2; exit 2; }`,
      `echo "$*" >>${folder}/calls`,
      `cp ${folder}/kept.json ${folder}/copy && mv ${folder}/copy ${folder}/main/vfs-images/images.json`,
    );
  };
  /** Lists the arguments with which podman removed images. */
  const listRemovals = async (): Promise<string[]> =>
    (await readFile(join(host.folder, 'calls'), 'utf8').catch(() => '')).split('\n').filter((call) => call !== '');
  const loseLayer = (layer: string): Promise<void> => rm(join(host.folder, 'main/vfs/dir', layer), { recursive: true });

  beforeEach(async () => {
    host = await StoreHost.make();
    images = { [nameOf('a')]: 'a', [nameOf('b')]: 'b', [nameOf('c')]: 'c' };
    await writeIndex();
    const layers = ['a', 'b', 'c'];
    await host.writeJson(
      'main/vfs-layers/layers.json',
      layers.map((id) => ({ id })),
    );
    for (const layer of layers) await mkdir(join(host.folder, 'main/vfs/dir', layer), { recursive: true });
  });
  afterEach(() => host[Symbol.asyncDispose]());

  describe('removeBrokenImages', () => {
    it('removes each image whose layer cannot be mounted, and no other', async () => {
      await addPodman({ [nameOf('a')]: 'a' });
      const context = makeContext();
      await removeBrokenImages(await host.open(), context);
      expect(await listRemovals()).to.deep.equal([]);
      await loseLayer('b');
      await loseLayer('c');
      await removeBrokenImages(await host.open(), context);
      expect(await listRemovals()).to.deep.equal([`rmi ${nameOf('b')}`, `rmi ${nameOf('c')}`]);
      const [warning] = context.lines.filter((line) => line.startsWith('warn'));
      expect(warning).to.contain(
        `2 images in ${host.folder}/main cannot be mounted, such as ${nameOf('b')}: its folder`,
      );
    });

    it('refuses a store with such an image that podman keeps, and says why', async () => {
      await loseLayer('b');
      await addPodman(undefined);
      const { message, hint } = await failureOf(removeBrokenImages(await host.open(), makeContext()), 'incomplete');
      expect(message).to.match(/^quay\.io\/a\/b@.* cannot be mounted: its folder .*; nor removed: image is in use$/);
      expect(hint).to.equal(removalHint([nameOf('b')]));
      // It says that it has removed them, and has not.
      await addPodman(images);
      await failureOf(removeBrokenImages(await host.open(), makeContext()), 'incomplete');
    });
  });

  describe('removeDamagedImages', () => {
    const remove = async (...damaged: DamagedImage[]): Promise<PluginError | undefined> =>
      removeDamagedImages(await host.open(), damaged, makeContext());

    it('removes all images with a damaged layer', async () => {
      await addPodman({});
      expect(await remove(damagedImage('a'), damagedImage('b'))).to.equal(undefined);
      expect(await listRemovals()).to.deep.equal([`rmi ${nameOf('a')}`, `rmi ${nameOf('b')}`]);
    });

    for (const list of ['containers.json', 'volatile-containers.json']) {
      it(`keeps an image with a container in ${list}, and removes the others`, async () => {
        await addPodman({});
        await host.writeJson(`main/vfs-containers/${list}`, [{ id: 'x', image: `id of ${nameOf('a')}` }]);
        const stays = await remove(damagedImage('a'), damagedImage('b'));
        expect(stays?.code).to.equal('incomplete');
        expect(stays?.message).to.equal(
          `${nameOf('a')} in ${host.folder}/main cannot be used: its layer a is damaged. It stays: containers use ` +
            nameOf('a'),
        );
        expect(stays?.hint).to.equal(removalHint([nameOf('a')]));
        expect(await listRemovals()).to.deep.equal([`rmi ${nameOf('b')}`]);
      });
    }

    it('keeps images whose damaged layer an image of no bundle has too, and names that one to be removed', async () => {
      images = { [nameOf('a')]: 'a', [nameOf('b')]: 'a', 'site.example/own:1': 'a' };
      await writeIndex();
      await addPodman({});
      const stays = await remove(damagedImage('a'), damagedImage('b', 'a'));
      expect(stays?.message).to.contain(
        'its layer a is damaged (and 1 more images). It stays: site.example/own:1 of no',
      );
      expect(stays?.hint).to.equal(removalHint([nameOf('a'), nameOf('b'), 'site.example/own:1']));
      expect(await listRemovals()).to.deep.equal([]);
    });

    it('gives the reason of podman for an image that it keeps, or that podman is missing', async () => {
      await addPodman(undefined);
      expect((await remove(damagedImage('a')))?.message).to.match(/It stays: image is in use$/);
      // Below this root is no program.
      const environment = { CONTAINERS_STORAGE_CONF: '/storage.conf' };
      const without = await HostStorage.open({ root: host.folder, environment });
      expect(await removeImages(without, [nameOf('a')], makeContext())).to.equal('podman is missing');
    });
  });

  it('helps with the names of a few images as words of a shell, and with all images if there are many', async () => {
    expect(removalHint(['a b', 'c'])).to.contain(`podman rmi --force 'a b' c. Load`);
    const hintOf = async (count: number): Promise<string | undefined> => {
      const damaged = Array.from({ length: count }, (_, index) => damagedImage(`image-${index}`, 'a'));
      images = Object.fromEntries(damaged.map(({ name }) => [name, 'a']));
      await writeIndex();
      await host.writeJson('main/vfs-containers/containers.json', [{ image: `id of ${nameOf('image-0')}` }]);
      return (await removeDamagedImages(await host.open(), damaged, makeContext()))?.hint;
    };
    expect(await hintOf(10)).to.equal(removalHint(Object.keys(images)));
    expect(await hintOf(11)).to.equal(removalHint('all'));
  });
});
