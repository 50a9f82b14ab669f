import { cp, mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { makeOnce } from '../.config/executables.ts';

describe('makeOnce', () => {
  let top: string;
  let cache: string;
  let count: number;
  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'executables-'));
    cache = join(top, 'cache');
    count = 0;
    for (const path of paths) await write(path, 'at first');
  });
  afterEach(() => rm(top, { recursive: true }));

  const paths = [
    'cmd/x.ts',
    'lib/a/b.ts',
    'docs/troubleshooting.md',
    'package.json',
    'node_modules/.package-lock.json',
  ];
  const write = async (path: string, text: string): Promise<void> => {
    await mkdir(dirname(join(top, path)), { recursive: true });
    await writeFile(join(top, path), text);
  };
  /** Copies the sources, as a build does. */
  const copy = async (folder: string): Promise<void> => {
    count += 1;
    for (const path of paths) await cp(join(top, path), join(folder, path), { recursive: true });
  };
  const make = (commit = 'c', build = copy): Promise<string> => makeOnce({ top, commit: () => commit, cache }, build);

  it('makes the same sources once', async () => {
    expect(await make()).to.equal(await make());
    await write('test/x.test.ts', 'no source');
    await make();
    expect(count).to.equal(1);
  });

  it('gives nothing that an earlier state of a source, or another commit, made', async () => {
    await make();
    for (const path of paths) {
      await write(path, 'changed');
      expect(await readFile(join(await make(), path), 'utf8'), path).to.equal('changed');
    }
    await rm(join(top, 'lib/a/b.ts'));
    const build = async (folder: string): Promise<void> => writeFile(join(folder, 'b'), '');
    expect(await readdir(await make('c', build))).to.deep.equal(['b']);
    expect(await readdir(await make('d', build))).to.deep.equal(['b']);
    expect(await readdir(cache)).to.have.length(paths.length + 3);
  });

  it('makes it again if a source changes while it is made', async () => {
    const folder = await make('c', async (into) => {
      await copy(into);
      if (count === 1) await write('cmd/x.ts', 'changed meanwhile');
    });
    expect(await readFile(join(folder, 'cmd/x.ts'), 'utf8')).to.equal('changed meanwhile');
    expect(await readdir(cache)).to.have.length(1);
  });

  it('gives all of several runs at once a complete folder', async () => {
    const both = Promise.withResolvers<undefined>();
    const build = async (folder: string): Promise<void> => {
      await copy(folder);
      if (count === 2) both.resolve(undefined);
      await both.promise;
    };
    const folders = await Promise.all([make('c', build), make('c', build)]);
    expect(new Set(folders).size).to.equal(1);
    expect(await readdir(cache)).to.have.length(1);
    expect(await readFile(join(folders[0], 'cmd/x.ts'), 'utf8')).to.equal('at first');
  });

  it('leaves nothing of a failure, and makes it the next time', async () => {
    const fail = async (folder: string): Promise<void> => {
      await copy(folder);
      throw new Error('no space');
    };
    const failure: unknown = await make('c', fail).catch((error: unknown) => error);
    expect(failure).to.include({ message: 'no space' });
    expect(await readdir(cache)).to.deep.equal([]);
    expect(await readFile(join(await make(), 'cmd/x.ts'), 'utf8')).to.equal('at first');
  });

  it('removes folders that were not used for a day', async () => {
    const [old, used] = [await make('old'), await make('used')];
    const before = new Date(Date.now() - 25 * 3_600_000);
    for (const folder of [old, used]) await utimes(folder, before, before);
    await make('used');
    const made = await make('new');
    expect((await readdir(cache)).map((name) => join(cache, name))).to.have.members([used, made]);
  });
});
