import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { expect } from 'chai';
import type { Host } from '../../../lib/machine/host.ts';
import { checkStorePath, openAdditionalStore } from '../../../lib/node/images/additionalStore.ts';
import { HostStorage } from '../../../lib/node/images/hostStorage.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('openAdditionalStore', () => {
  let folder: string;
  beforeEach(async () => (folder = await makeFolder()));
  afterEach(() => removeFolder(folder));

  /** Returns a host whose `sync` notes its arguments, and when it begins and ends. */
  const hostWith = async (sync: string): Promise<Host> => {
    const programs = join(folder, 'programs');
    await mkdir(programs);
    await writeFile(join(programs, 'sync'), `#!/bin/sh\n${sync}\n`, { mode: 0o755 });
    await writeFile(
      join(folder, 'storage.conf'),
      `[storage]\ndriver = "vfs"\ngraphroot = "${folder}/main"\nrunroot = "${folder}/run"\n`,
    );
    const path = `${programs}${delimiter}${process.env['PATH'] ?? ''}`;
    return { root: '/', environment: { PATH: path, CONTAINERS_STORAGE_CONF: join(folder, 'storage.conf') } };
  };

  it('syncs each file and folder of a new store once, several at a time', async () => {
    const log = join(folder, 'log');
    // Each waits for another one.
    const host = await hostWith(
      `echo begin >>${log}; for each; do echo "$each" >>${log}; done; ` +
        `for i in $(seq 200); do [ "$(grep -c '^begin$' ${log})" -gt 1 ] && break; sleep 0.1; done; echo end >>${log}`,
    );
    const context = makeContext();
    const additional = await openAdditionalStore(await HostStorage.open(host), join(folder, 'store'), context);
    const names = Array.from({ length: 150 }, (_, index) => `file ${index}`);
    await mkdir(join(additional.store.graphRoot, 'deep'));
    for (const name of names) await writeFile(join(additional.store.graphRoot, 'deep', name), '');
    await additional.finish(context);
    const lines = (await readFile(log, 'utf8')).trim().split('\n');
    const synced = lines.filter((line) => line.startsWith(additional.store.graphRoot));
    expect(synced).to.have.length(new Set(synced).size);
    expect(synced).to.include.members([
      additional.store.graphRoot,
      ...names.map((name) => join(additional.store.graphRoot, 'deep', name)),
    ]);
    expect(lines.slice(0, lines.indexOf('end')).filter((line) => line === 'begin')).to.have.length.greaterThan(1);
  });

  it('replaces the rest of a store, and no folder with other content', async () => {
    const host = await hostWith('exit 0');
    const path = join(folder, 'store');
    await mkdir(join(path, 'vfs-images'), { recursive: true });
    await openAdditionalStore(await HostStorage.open(host), path, makeContext());
    await writeFile(join(path, 'letters.txt'), '');
    const error = await failureOf(openAdditionalStore(await HostStorage.open(host), path, makeContext()), 'usage');
    expect(error.message).to.contain('letters.txt');
  });

  it('warns if the store cannot be synced, and continues', async () => {
    const host = await hostWith('echo "Input/output error" >&2; exit 1');
    const context = makeContext();
    const additional = await openAdditionalStore(await HostStorage.open(host), join(folder, 'store'), context);
    expect((await additional.finish(context)).graphRoot).to.equal(join(folder, 'store'));
    expect(context.lines.join('\n')).to.match(/warn: cannot sync .*store.partial: .*Input\/output error/);
  });
});

describe('checkStorePath', () => {
  const main = '/var/lib/containers/storage';

  it('accepts an absolute path beside the main store', () => {
    checkStorePath('/var/lib/upgrade-bundle/store', main);
    checkStorePath('/var/lib/containers/storage-2', main);
  });

  it('refuses what container runtimes refuse, and the main store', async () => {
    for (const path of [
      'store',
      '/var/../etc',
      '/a b',
      '/a:b',
      '/',
      '/a/',
      `/${'a'.repeat(256)}`,
      main,
      `${main}/a`,
      '/var/lib',
    ])
      await failureOf(
        Promise.resolve().then(() => checkStorePath(path, main)),
        'usage',
      );
  });
});
