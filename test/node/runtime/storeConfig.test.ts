import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { readStorageConfig } from '../../../lib/node/runtime/storageConfig.ts';
import {
  configureStore,
  describeStorage,
  removeStoreConfig,
  writeMarker,
} from '../../../lib/node/runtime/storeConfig.ts';
import { failureOf } from '../../support/program/failure.ts';
import { storageFile } from '../../../lib/machine/paths.ts';

const store = '/var/lib/shared/x/store';

describe('configureStore', () => {
  let root: string;
  const host = () => ({ root, environment: {} });
  const write = async (path: string, text: string): Promise<void> => {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  };
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'storage-'));
  });
  afterEach(() => rm(root, { recursive: true }));

  it('creates the file with the folder of the store, and removes it again', async () => {
    await write('/usr/share/containers/storage.conf', '[storage]\ngraphroot = "/g"\n[storage.options]\nx = "y"\n');
    expect(await configureStore(host(), store)).to.equal(true);
    expect(await readStorageConfig(host())).to.deep.include({ graphRoot: '/g', additionalStores: [store] });
    expect(existsSync(join(root, store, '.managed'))).to.equal(true);
    expect(await configureStore(host(), store)).to.equal(false);
    expect(await configureStore(host(), `${store}2`)).to.equal(true);
    expect((await readStorageConfig(host())).additionalStores).to.deep.equal([store, `${store}2`]);
    expect(await removeStoreConfig(host())).to.equal(true);
    expect((await readStorageConfig(host())).additionalStores).to.deep.equal([]);
    expect(existsSync(join(root, store, '.managed'))).to.equal(true);
  });

  it('leaves the mark of a store alone, because the machine config operator checks it at each event', async () => {
    await writeMarker(host(), store);
    const { ino } = await stat(join(root, store, '.managed'));
    await writeMarker(host(), store);
    expect((await stat(join(root, store, '.managed'))).ino).to.equal(ino);
  });

  it('keeps the file of another program, and prints the content that it needs', async () => {
    const text =
      '[storage]\ndriver = "overlay"\n[storage.options]\n# none\nadditionalimagestores = [\n  "/a",\n]\nz = 1\n';
    await write(storageFile, text);
    await failureOf(configureStore(host(), store), 'conflict');
    expect(await readFile(join(root, storageFile), 'utf8')).to.equal(text);
    expect(await removeStoreConfig(host())).to.equal(false);
    expect(existsSync(join(root, store))).to.equal(false);
    const shown = await describeStorage(host(), store);
    expect(shown).to.equal(text.replace('[\n  "/a",\n]', `["/a", "${store}"]`));
  });

  it('adds the table if the file lacks it', async () => {
    await write(storageFile, '[storage]\ndriver = "overlay"\n');
    expect(await describeStorage(host(), store)).to.equal(
      `[storage]\ndriver = "overlay"\n\n[storage.options]\nadditionalimagestores = ["${store}"]\n`,
    );
  });
});
