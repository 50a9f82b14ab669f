import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { StoreIndex, type ImageStore } from '../../../lib/node/images/imageStore.ts';
import { failureOf } from '../../support/program/failure.ts';

const host = { root: '/', environment: {} };
const config = JSON.stringify({ rootfs: { diff_ids: [digestOf('below'), digestOf('above')] } });
const manifest = JSON.stringify({ config: { digest: digestOf(config) } });
const image = { name: `quay.io/a/b@${digestOf(manifest)}`, digest: digestOf(manifest) };

describe('StoreIndex', () => {
  let store: ImageStore;
  let root: string;
  const write = async (path: string, value: unknown): Promise<void> => {
    const file = join(root, path);
    await mkdir(join(file, '..'), { recursive: true });
    await writeFile(file, typeof value === 'string' ? value : JSON.stringify(value));
  };
  const base64 = (key: string): string => `overlay-images/1/=${Buffer.from(key).toString('base64')}`;
  const layers = [
    { id: 'l1', 'diff-digest': digestOf('below') },
    { id: 'l2', parent: 'l1', 'diff-digest': digestOf('above') },
  ];
  const lack = async (): Promise<string | undefined> => (await StoreIndex.read(host, store)).check(image);

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'store-'));
    store = { driver: 'overlay', graphRoot: root, runRoot: '/run/none' };
    await write('overlay-images/images.json', [{ id: '1', names: [image.name], layer: 'l2' }]);
    await write('overlay-layers/layers.json', layers);
    await write(base64(`manifest-${image.digest}`), manifest);
    await write(base64(digestOf(config)), config);
    for (const { id, parent } of layers) {
      await mkdir(join(root, 'overlay', id, 'diff'), { recursive: true });
      await write(`overlay/${id}/link`, `LINK-${id}`);
      if (parent !== undefined) await write(`overlay/${id}/lower`, `l/LINK-${parent}`);
    }
  });
  afterEach(() => rm(root, { recursive: true }));

  it('finds an image that is whole', async () => {
    expect(await lack()).to.equal(undefined);
  });

  it('finds nothing without a store', async () => {
    await rm(join(root, 'overlay-images'), { recursive: true });
    await rm(join(root, 'overlay-layers'), { recursive: true });
    expect((await StoreIndex.read(host, store)).isEmpty).to.equal(true);
    expect(await lack()).to.equal('the store does not have it');
  });

  it('wants the full name: the same digest in another repository is another image', async () => {
    const index = await StoreIndex.read(host, store);
    expect(await index.check({ ...image, name: `quay.io/a/c@${image.digest}` })).to.equal('the store does not have it');
  });

  const damages: readonly (readonly [string, () => Promise<void>, RegExp])[] = [
    ['a manifest', () => write(base64(`manifest-${image.digest}`), `${manifest} `), /no manifest with the digest/],
    ['a configuration', () => write(base64(digestOf(config)), '{}'), /configuration .* missing or corrupt/],
    ['the files of a layer', () => rm(join(root, 'overlay/l1'), { recursive: true }), /its folder .*l1 is missing/],
    ['the content of a layer', () => rm(join(root, 'overlay/l1/diff'), { recursive: true }), /diff is missing/],
    ['the name of a layer', () => write('overlay/l1/link', ''), /link is missing or empty/],
    ['what is below a layer', () => rm(join(root, 'overlay/l2/lower')), /lower is missing or empty/],
    ['the layer below another', () => write('overlay/l2/lower', 'l/OTHER'), /names l\/OTHER, which no layer has/],
    ['a layer', () => write('overlay-layers/layers.json', layers.slice(1)), /layer .* is missing/],
    [
      'the end of a layer',
      () => write('overlay-layers/layers.json', [{ ...layers[0], flags: { incomplete: true } }, layers[1]]),
      /layer .* is incomplete/,
    ],
    [
      'the right layer',
      () => write('overlay-layers/layers.json', [{ ...layers[0], 'diff-digest': digestOf('other') }, layers[1]]),
      /layer .* has another digest/,
    ],
    [
      'no layer but has one too many',
      async () => {
        await write('overlay-layers/layers.json', [{ ...layers[0], parent: 'l0' }, layers[1]]);
        await write('overlay/l1/lower', 'l/LINK-l0');
      },
      /more layers/,
    ],
  ];
  for (const [what, damage, words] of damages) {
    it(`says of an image that it lacks ${what}`, async () => {
      await damage();
      expect(await lack()).to.match(words);
    });
  }

  for (const text of ['[{"id":', '{}', 'null', '[null]', '[{"id":7}]', '[{"id":"1","names":7}]']) {
    it(`refuses an index that reads ${text}`, async () => {
      await write('overlay-images/images.json', text);
      const error = await failureOf(StoreIndex.read(host, store), 'incomplete');
      expect(error.message).to.contain(join(root, 'overlay-images/images.json'));
    });
  }
});
