import { readdirSync } from 'node:fs';
import { link, mkdir, readFile, rename, rm, symlink, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import { expect } from 'chai';
import { RootFolder } from '../../../lib/content/files/rootFolder.ts';
import { messageOf } from '../../../lib/errors.ts';
import { makeContext } from '../../support/context.ts';
import { skipLoudly } from '../../support/loopDevice.ts';
import { run, runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const secret = 'the secret of another';

describe('RootFolder', () => {
  const { signal } = makeContext();
  let outside: string;
  let root: string;
  let folder: RootFolder;
  const at = (path: string): string => join(root, path);

  beforeEach(async () => {
    outside = await makeFolder();
    root = join(outside, 'root');
    await mkdir(join(root, 'a/b'), { recursive: true });
    await writeFile(at('a/b/file'), 'content');
    await writeFile(join(outside, 'secret'), secret);
    folder = new RootFolder(root);
  });
  afterEach(() => removeFolder(outside));

  /**
   * Returns the message of a refused read. Fails if the read succeeds, or if the message has content of the secret
   * file.
   */
  const refusalOf = async (path: string): Promise<string> => {
    const { message, hint } = await failureOf(folder.read(path, 1000), 'not-readable');
    await failureOf(buffer(folder.stream(path, signal)), 'not-readable');
    await failureOf(folder.chunks(path, 0, 10, signal).next(), 'not-readable');
    expect(message + String(hint)).not.to.include(secret);
    return message;
  };

  it('reads regular files at every depth, whole and in parts', async () => {
    expect(String(await folder.read('a/b/file', 7))).to.equal('content');
    expect(await folder.sizeOf('a/b/file')).to.equal(7);
    expect(String(await buffer(folder.stream('a/b/file', signal, 3)))).to.equal('tent');
    for await (const chunk of folder.chunks('a/b/file', 1, 2, signal)) expect(String(chunk)).to.equal('on');
    await failureOf(folder.read('a/b/file', 6), 'too-large');
    await failureOf(folder.read('a/none', 6), 'not-found');
    expect(await folder.sizeOf('a/b/file/none')).to.equal(undefined);
  });

  it('follows no link to a file, and none to a folder', async () => {
    await symlink(join(outside, 'secret'), at('link'));
    await symlink('b/file', at('a/inside'));
    await symlink(outside, at('a/out'));
    expect(await refusalOf('link')).to.equal(`${at('link')} is a symbolic link, which is not followed`);
    expect(await refusalOf('a/inside')).to.match(/inside is a symbolic link/);
    expect(await refusalOf('a/out/secret')).to.equal(`${at('a/out')} is a symbolic link, which is not followed`);
    for (const path of ['link', 'a/out/secret']) await failureOf(folder.sizeOf(path), 'not-readable');
    await failureOf(folder.list('a/out'), 'not-readable');
    expect(await folder.readLink('a/inside')).to.equal('b/file');
  });

  it('finds a file by another name too, which may also be that of something else', async () => {
    const find = (path: string): ReturnType<RootFolder['findFile']> => folder.findFile(path, 'other');
    expect(await find('a/b/file')).to.deep.equal({ path: 'a/b/file', size: 7 });
    expect(await find('a/none')).to.equal(undefined);
    expect(await find('none/none')).to.equal(undefined);
    await symlink('file', at('a/b/other'));
    expect(await find('a/b/none')).to.equal(undefined);
    await failureOf(find('a/b/other'), 'not-readable');
    await rename(at('a/b/file'), at('a/b/other'));
    expect(await find('a/b/file')).to.deep.equal({ path: 'a/b/other', size: 7 });
    await failureOf(find('a/../../secret'), 'not-readable');
  });

  it('may itself be named by a link', async () => {
    await symlink('root', join(outside, 'named'));
    expect(String(await new RootFolder(join(outside, 'named')).read('a/b/file', 7))).to.equal('content');
  });

  it('waits for no pipe and opens no device', async function () {
    await runSuccessfully('mkfifo', [at('pipe')]);
    expect(await refusalOf('pipe')).to.match(/pipe is not a regular file/);
    expect(await refusalOf('a')).to.match(/a is not a regular file/);
    if ((await run('mknod', [at('device'), 'c', '1', '5'])).code !== 0) skipLoudly(this, 'only root can make a device');
    expect(await refusalOf('device')).to.match(/device is not a regular file/);
  });

  it('goes no way up', async () => {
    for (const path of ['../secret', 'a/../../secret', '/etc/hostname', 'a//b', './a', 'a/b/file\0'])
      expect(await refusalOf(path), path).to.match(/is outside of/);
  });

  it('reads a hard link, which is a file like any other of the same file system', async () => {
    await link(join(outside, 'secret'), at('hard'));
    expect(String(await folder.read('hard', 100))).to.equal(secret);
  });

  it('reads nothing on another file system below it', async function () {
    await mkdir(at('mounted'));
    const { code } = await run('mount', ['-t', 'tmpfs', 'tmpfs', at('mounted')]);
    if (code !== 0) skipLoudly(this, 'nothing can be mounted here');
    try {
      await writeFile(at('mounted/file'), secret);
      expect(await refusalOf('mounted/file')).to.match(/mounted is on another file system/);
      await failureOf(folder.tree(signal), 'not-readable');
    } finally {
      await runSuccessfully('umount', [at('mounted')]);
    }
  });

  it('notices when the folder itself is replaced', async () => {
    await folder.read('a/b/file', 7);
    await rename(root, join(outside, 'before'));
    await mkdir(join(outside, 'other/a/b'), { recursive: true });
    await writeFile(join(outside, 'other/a/b/file'), secret);
    await symlink('other', root);
    expect(await refusalOf('a/b/file')).to.match(/was replaced by another folder/);
  });

  it('follows no link that replaces a folder after a file in it was read', async () => {
    await mkdir(join(outside, 'other'));
    await writeFile(join(outside, 'other/file'), secret);
    expect(await folder.sizeOf('a/b/file')).to.equal(7);
    await rename(at('a/b'), at('kept'));
    await symlink(join(outside, 'other'), at('a/b'));
    expect(await refusalOf('a/b/file')).to.equal(`${at('a/b')} is a symbolic link, which is not followed`);
    await unlink(at('a/b'));
    expect(await folder.sizeOf('a/b/file')).to.equal(undefined);
    await rename(at('kept'), at('a/b'));
    expect(await folder.sizeOf('a/b/file')).to.equal(7);
  });

  it('never reads the target of a link, however often file and link take turns', async () => {
    await symlink(join(outside, 'secret'), at('link'));
    await symlink(outside, at('out'));
    await writeFile(at('a/b/secret'), 'content');
    let isOver = false;
    const swap = async (): Promise<void> => {
      while (!isOver) {
        for (const name of ['link', 'a/b/file']) await rename(at(name), at('a/b/now'));
        await rename(at('a/b/now'), at('a/b/file'));
        await symlink(join(outside, 'secret'), at('link'));
        await rename(at('a/b'), at('kept'));
        await symlink(outside, at('a/b'));
        await unlink(at('a/b'));
        await rename(at('kept'), at('a/b'));
      }
    };
    const swapping = swap();
    const seen = new Set<string>();
    for (let time = 0; time < 400; time += 1)
      for (const path of ['a/b/file', 'a/b/now', 'a/b/secret'])
        seen.add(await folder.read(path, 100).then(String, (error: unknown) => messageOf(error)));
    isOver = true;
    await swapping;
    expect([...seen].filter((each) => each.includes(secret))).to.deep.equal([]);
    expect(seen).to.include('content');
  });

  it('lists a folder in the order of its paths, not of the file system', async () => {
    const names = Array.from({ length: 20 }, (_, index) => `a/b/${String((index * 7) % 20).padStart(2, '0')}`);
    for (const name of names) await writeFile(at(name), '');
    const listed = (await folder.list('a/b')).map(({ path }) => path);
    expect(listed).to.deep.equal([...names, 'a/b/file'].sort());
  });

  it('lists files and links, and no more than the limit', async () => {
    await symlink(outside, at('out'));
    await symlink('file', at('a/b/tag'));
    const found = (await folder.tree(signal)).map(({ path, target }) => [path, target]);
    expect(found).to.deep.equal([
      ['a/b/file', undefined],
      ['a/b/tag', 'file'],
      ['out', outside],
    ]);
    expect((await folder.list('a/b', (name) => name !== 'tag')).map(({ path }) => path)).to.deep.equal(['a/b/file']);
    expect(await folder.list('none')).to.deep.equal([]);
    await failureOf(folder.list('a/b', undefined, 1), 'too-large');
    await failureOf(folder.tree(signal, '', { depth: 1, entries: 100 }), 'too-large');
    await failureOf(folder.tree(signal, '', { depth: 9, entries: 3 }), 'too-large');
    await rm(root, { recursive: true });
    expect(await readFile(join(outside, 'secret'), 'utf8')).to.equal(secret);
  });

  it('has few files open at a time, however many are read', async function () {
    if (process.platform !== 'linux') return skipLoudly(this, 'there is no /proc');
    const countOpen = (): number => readdirSync('/proc/self/fd').length;
    const before = countOpen();
    const reading = Promise.all(Array.from({ length: 2000 }, () => folder.read('a/b/file', 1000)));
    const counts: number[] = [];
    const isOver = reading.then(() => true);
    while (!(await Promise.race([isOver, turn(false)]))) counts.push(countOpen());
    expect(new Set((await reading).map(String))).to.deep.equal(new Set(['content']));
    expect(Math.max(...counts) - before).to.be.lessThan(500);
  });
});
