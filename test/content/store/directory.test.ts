import { execFileSync } from 'node:child_process';
import {
  copyFile,
  link,
  mkdir,
  readdir,
  readFile,
  readlink,
  stat,
  symlink,
  truncate,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import { partialName } from '../../../lib/content/files/atomicWrite.ts';
import { Directory, type DirectoryOptions, listRepositories } from '../../../lib/content/store/directory.ts';
import { readContent } from '../../../lib/content/store/store.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { layOutAsOc, makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { contentOf, describeStore, makeSample, type Sample } from './contract.ts';

describeStore('Directory', async (content, repository, context) => {
  const root = await makeFolder();
  await layOutAsOc(root, content);
  return {
    store: new Directory(root, repository, {}, context),
    damage: async (digest, change) => {
      const path = join(root, 'v2', repository, 'blobs', digest);
      await writeFile(path, change(await readFile(path)));
    },
    remove: () => removeFolder(root),
  };
});

describe('Directory', () => {
  const repository = 'openshift/release';
  let root: string;
  let sample: Sample;
  let context: TestContext;
  const at = (...names: string[]): string => join(root, 'v2', repository, ...names);
  const openDirectory = (options: DirectoryOptions = {}): Directory =>
    new Directory(root, repository, options, context);
  const pushAll = async (directory: Directory): Promise<void> => {
    for (const { descriptor, bytes } of await contentOf(sample)) {
      await directory.push(descriptor, () => Promise.resolve(Readable.from([bytes])));
    }
    await directory.tag(sample.image, '1.0-x86_64');
    await directory.tag(sample.list, '1.0-multi');
    await directory.close();
  };

  beforeEach(async () => {
    root = await makeFolder();
    sample = makeSample();
    context = makeContext();
  });
  afterEach(() => removeFolder(root));

  it('writes exactly the names that oc writes', async () => {
    const other = await makeFolder();
    await layOutAsOc(other, sample.content);
    await pushAll(openDirectory());
    for (const folder of ['blobs', 'manifests']) {
      const names = await readdir(at(folder));
      expect(names).to.have.members(await readdir(join(other, 'v2', repository, folder)));
    }
    await removeFolder(other);
  });

  it('links each manifest into manifests/ and each tag, relatively, to its manifest', async () => {
    await pushAll(openDirectory());
    const { digest } = sample.image;
    const [blob, manifest] = await Promise.all([stat(at('blobs', digest)), stat(at('manifests', digest))]);
    expect(manifest.ino).to.equal(blob.ino);
    expect(await readlink(at('manifests', '1.0-x86_64'))).to.equal(digest);
  });

  it('writes world-readable files', async () => {
    await pushAll(openDirectory());
    await writeFile(join(root, 'file'), '', { mode: 0o644 });
    await mkdir(join(root, 'folder'), { mode: 0o755 });
    const modeOf = async (path: string): Promise<number> => (await stat(path)).mode;
    expect(await modeOf(at('blobs', sample.layer.digest))).to.equal(await modeOf(join(root, 'file')));
    expect(await modeOf(at('blobs'))).to.equal(await modeOf(join(root, 'folder')));
  });

  it('reads a directory that oc wrote on Windows', async () => {
    await layOutAsOc(root, sample.content, '-');
    const directory = openDirectory();
    expect((await directory.resolve('1.0-x86_64')).digest).to.equal(sample.image.digest);
    expect(await directory.exists(sample.list)).to.equal(true);
    expect(await directory.tags()).to.have.members(['1.0-x86_64', '1.0-multi']);
    expect(await readContent(directory, sample.layer, 1e6)).to.have.length(sample.layer.size);
  });

  it('resumes in a directory where oc crashed between a link and its rename', async () => {
    await layOutAsOc(root, sample.content);
    await unlink(at('manifests', '1.0-x86_64'));
    await symlink(sample.image.digest, at('manifests', '1.0-x86_64.download'));
    await link(at('blobs', sample.list.digest), at('manifests', `${sample.list.digest}.download`));
    await writeFile(at('blobs', `${sample.layer.digest}.download`), 'half');
    const directory = openDirectory();
    expect(await directory.tags()).to.deep.equal(['1.0-multi']);
    await failureOf(directory.resolve('1.0-x86_64.download'), 'not-found');
    await pushAll(directory);
    expect(await directory.tags()).to.have.members(['1.0-x86_64', '1.0-multi']);
  });

  it('finds a blob cut short under its final name, and replaces it', async () => {
    await layOutAsOc(root, sample.content);
    await truncate(at('blobs', sample.layer.digest), 1000);
    const directory = openDirectory();
    expect(await directory.exists(sample.layer)).to.equal(false);
    expect(await directory.exists(sample.image), 'the image above it').to.equal(false);
    expect(await directory.exists(sample.list), 'the list above that').to.equal(false);
    await pushAll(directory);
    expect(await directory.exists(sample.list)).to.equal(true);
    expect(await readContent(directory, sample.layer, 1e6)).to.have.length(sample.layer.size);
  });

  it('finds and replaces either copy of a manifest that is no hard link any more, with verifyExisting', async () => {
    await layOutAsOc(root, sample.content);
    const directory = openDirectory({ verifyExisting: true });
    for (const folder of ['blobs', 'manifests'] as const) {
      const path = at(folder, sample.list.digest);
      const bytes = await readFile(path);
      await unlink(path);
      await writeFile(path, Buffer.from(bytes).fill(0x20, 5, 10));
      expect(await directory.exists(sample.list), folder).to.equal(false);
      await pushAll(directory);
      expect(await readFile(path), folder).to.deep.equal(bytes);
      expect(await directory.exists(sample.list)).to.equal(true);
    }
  });

  it('finds and replaces an corrupt blob of the right size with verifyExisting, and only then', async () => {
    await layOutAsOc(root, sample.content);
    await writeFile(at('blobs', sample.layer.digest), Buffer.alloc(sample.layer.size));
    expect(await openDirectory().exists(sample.image)).to.equal(true);
    const directory = openDirectory({ verifyExisting: true });
    expect(await directory.exists(sample.image)).to.equal(false);
    await pushAll(directory);
    expect(await directory.exists(sample.image)).to.equal(true);
    expect(await readContent(directory, sample.layer, 1e6)).to.have.length(sample.layer.size);
  });

  it('finds and replaces an corrupt manifest', async () => {
    await layOutAsOc(root, sample.content);
    await writeFile(at('manifests', sample.image.digest), Buffer.alloc(sample.image.size, ' '));
    const directory = openDirectory();
    await failureOf(directory.resolve('1.0-x86_64'), 'digest-mismatch');
    expect(await directory.exists(sample.image)).to.equal(false);
    await pushAll(directory);
    expect((await directory.resolve('1.0-x86_64')).digest).to.equal(sample.image.digest);
  });

  it('reads a tag that is a copy, from a file system without symbolic links', async () => {
    await layOutAsOc(root, sample.content);
    await unlink(at('manifests', '1.0-x86_64'));
    await copyFile(at('manifests', sample.image.digest), at('manifests', '1.0-x86_64'));
    const directory = openDirectory();
    expect((await directory.resolve('1.0-x86_64')).digest).to.equal(sample.image.digest);
    expect(await directory.tags()).to.have.members(['1.0-x86_64', '1.0-multi']);
  });

  it('refuses a tag that leads out of manifests/', async () => {
    await layOutAsOc(root, sample.content);
    const outside = join(root, sample.image.digest);
    await copyFile(at('manifests', sample.image.digest), outside);
    for (const target of [outside, `../../../../${sample.image.digest}`, '/etc/passwd', '../blobs', '.']) {
      await unlink(at('manifests', '1.0-x86_64'));
      await symlink(target, at('manifests', '1.0-x86_64'));
      await failureOf(openDirectory().resolve('1.0-x86_64'), 'incomplete');
    }
  });

  it('refuses names that are no repository or no tag', async () => {
    for (const name of ['..', 'a/../b', '/etc', 'a//b', 'A', 'a/', '']) {
      expect(() => new Directory(root, name, {}, context), name).to.throw('cannot be a repository');
    }
    await pushAll(openDirectory());
    for (const tag of ['../x', '.x', 'a/b', '', 'x.download', 'x.partial', 'x'.repeat(129)]) {
      await failureOf(openDirectory().tag(sample.image, tag), 'invalid-reference');
      await failureOf(openDirectory().resolve(tag), 'not-found');
    }
  });

  it('refuses to tag a manifest that is not there', async () => {
    await failureOf(openDirectory().tag(sample.image, 'latest'), 'not-found');
  });

  it('leaves nothing unfinished behind when a push fails', async () => {
    const content = (): Promise<Readable> => Promise.resolve(Readable.from([Buffer.from('half')]));
    await failureOf(openDirectory().push(sample.layer, content), 'size-mismatch');
    expect(await readdir(at('blobs'))).to.deep.equal([]);
  });

  it('removes files of an ended writer, and none of a running one', async () => {
    await mkdir(at('blobs'), { recursive: true });
    const mine = partialName('mine');
    const gone = mine.replace('mine', 'gone').replace(`-${process.pid}-`, '-999999999-');
    for (const name of [mine, gone, 'unrelated.partial']) await writeFile(at('blobs', name), 'half');
    await pushAll(openDirectory());
    const names = await readdir(at('blobs'));
    expect(names).to.include.members([mine, 'unrelated.partial']).and.not.include(gone);
    expect(context.lines.join()).to.include(gone);
  });

  it('keeps every piece whole when two writers bring the same at the same time', async () => {
    const writers = [openDirectory(), openDirectory(), openDirectory()];
    await Promise.all(writers.map(pushAll));
    expect(await openDirectory({ verifyExisting: true }).exists(sample.list)).to.equal(true);
    expect((await readdir(at('blobs'))).filter((name) => name.startsWith('.'))).to.deep.equal([]);
  });

  it('stops in the middle of a blob when it is interrupted, and leaves nothing', async () => {
    const endless = (): Promise<Readable> =>
      Promise.resolve(
        new Readable({
          read() {
            this.push(Buffer.alloc(1024));
            context.interrupt();
          },
        }),
      );
    await failureOf(openDirectory().push({ ...sample.layer, size: 1e12 }, endless), 'interrupted');
    expect(await readdir(at('blobs'))).to.deep.equal([]);
  });

  it('takes a blob over from another repository as a hard link', async () => {
    await pushAll(openDirectory());
    const other = new Directory(root, 'other/place', {}, context);
    expect(await other.mount(sample.layer, repository)).to.equal(true);
    expect(await other.mount({ ...sample.layer, size: 1 }, repository)).to.equal(false);
    const [here, there] = await Promise.all([
      stat(at('blobs', sample.layer.digest)),
      stat(join(other.name, 'blobs', sample.layer.digest)),
    ]);
    expect(here.ino).to.equal(there.ino);
  });

  it('fails with not-writable if a folder cannot be created', async () => {
    await writeFile(join(root, 'v2'), 'a file');
    const error = await failureOf(pushAll(openDirectory()), 'not-writable');
    expect(error.message).to.include(root);
  });

  it('says disk-full when the disk is, and leaves nothing', function () {
    const code = `
      import { readdirSync } from 'node:fs';
      import { Readable } from 'node:stream';
      import { Directory } from ${JSON.stringify(new URL('../../../lib/content/store/directory.ts', import.meta.url).href)};
      const context = { signal: new AbortController().signal, log() {}, onEvent() {} };
      const digest = 'sha256:' + '0'.repeat(64);
      const zeroes = () => Promise.resolve(Readable.from((function* () { for (let i = 0; i < 64; i++) yield Buffer.alloc(65536); })()));
      const error = await new Directory(${JSON.stringify(root)}, 'a', {}, context)
        .push({ mediaType: 'x', digest, size: 4194304 }, zeroes).catch((error) => error);
      console.log(error.code, error.message, readdirSync(${JSON.stringify(root)} + '/v2/a/blobs').length);`;
    let output: string;
    try {
      // A disk of one megabyte, only for this process.
      execFileSync('unshare', ['-Urm', 'mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', root], { stdio: 'ignore' });
      const script = `mount -t tmpfs -o size=1m tmpfs "$0" && exec "$1" --input-type=module -e "$2"`;
      output = execFileSync('unshare', ['-Urm', 'sh', '-c', script, root, process.execPath, code], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
      });
    } catch {
      console.warn('      skipped: a small disk cannot be mounted here');
      return this.skip();
    }
    expect(output)
      .to.match(/^disk-full .* 0\n$/)
      .and.include(root);
  });
});

describe('listRepositories', () => {
  it('finds the repositories of a mirror directory at every depth', async () => {
    const root = await makeFolder();
    expect(await listRepositories(root)).to.deep.equal([]);
    for (const name of ['openshift/release', 'a', 'a/b/c']) await layOutAsOc(root, makeSample(name).content);
    expect(await listRepositories(root)).to.deep.equal(['a', 'a/b/c', 'openshift/release']);
    await removeFolder(root);
  });
});
