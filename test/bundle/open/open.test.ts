import { execFile } from 'node:child_process';
import { copyFile, mkdir, readdir, rename, symlink, unlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { openLocalProvider } from '../../../lib/bundle/create/releaseProvider.ts';
import { metadataPath } from '../../../lib/bundle/metadata/metadata.ts';
import type { BundlePart } from '../../../lib/bundle/open/bundle.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { hexOf, digestOf, isDigest } from '../../../lib/content/oci/reference.ts';
import { messageOf } from '../../../lib/errors.ts';
import { repack } from '../../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { localAccess } from '../../support/content/provider.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('a mirror directory with links in it', () => {
  let made: TestBundle;
  let root: string;
  const repository = 'v2/openshift/release';

  before(async () => {
    made = await makeBundle();
  });
  after(() => made.remove());
  beforeEach(async () => {
    root = await made.unpack();
  });

  /** Moves a file away, and replaces it with a link to it. */
  const divert = async (path: string): Promise<void> => {
    const away = join(made.folder, `away-${basename(root)}-${basename(path)}`);
    await rename(join(root, path), away);
    await symlink(away, join(root, path));
  };

  for (const path of ['v2', 'v2/openshift', repository, `${repository}/manifests`, `${repository}/blobs`])
    it(`does not follow one in place of the folder ${path}`, async () => {
      await divert(path);
      const read = async (): Promise<unknown> => {
        const bundle = await openBundle(root, makeContext());
        await bundle.content.resolve(made.release.tag);
        return bundle.content.exists({ mediaType: '', ...made.result.metadata.blobs[0]! });
      };
      expect((await failureOf(read(), 'not-readable')).message).to.equal(
        `${join(root, path)} is a symbolic link, which is not followed`,
      );
    });

  it('does not follow one in place of metadata.json, config, or a file in it', async () => {
    const config = (await readdir(join(root, 'config'), { recursive: true })).find((name) => name.endsWith('.yaml'));
    for (const path of ['metadata.json', `config/${config ?? ''}`]) {
      await divert(path);
      const bundle = await openBundle(root, makeContext()).catch((error: unknown) => messageOf(error));
      if (typeof bundle === 'string') expect(bundle).to.match(/no release|symbolic link/);
      else expect(messageOf(await failureOf(bundle.read(path), 'not-readable'))).to.match(/is a symbolic link/);
    }
    await divert('config');
    const { message } = await failureOf(openLocalProvider(root, localAccess, makeContext()), 'not-readable');
    expect(message).to.equal(`${join(root, 'config')} is a symbolic link, which is not followed`);
  });

  it('does not follow one in place of a blob, and lists it as a link', async () => {
    const [blob] = made.result.metadata.blobs;
    const path = `${repository}/blobs/${blob!.digest}`;
    const bundle = await openBundle(root, makeContext());
    await divert(path);
    const descriptor = { mediaType: '', ...blob! };
    await failureOf(bundle.content.exists(descriptor), 'not-readable');
    await failureOf(bundle.content.fetch(descriptor).then(buffer), 'not-readable');
    const again = await openBundle(root, makeContext());
    expect(again.files.find((file) => file.path === path))
      .to.include({ size: 0 })
      .and.to.have.property('target');
  });

  it('follows the links of tags, to manifests beside them only', async () => {
    const bundle = await openBundle(root, makeContext());
    expect((await bundle.content.resolve(made.release.tag)).digest).to.equal(made.release.digest);
    const tag = join(root, repository, 'manifests', made.release.tag);
    const outside = join(made.folder, `sha256:${hexOf(made.release.digest)}`);
    await copyFile(join(dirname(tag), made.release.digest), outside);
    await unlink(tag);
    await symlink(outside, tag);
    const { message } = await failureOf(bundle.content.resolve(made.release.tag), 'incomplete');
    expect(message).to.match(/points to none of its manifests/);
  });

  it('is left when a folder of it is replaced while it is open, by a link or by another one', async () => {
    const bundle = await openBundle(root, makeContext());
    await rename(join(root, 'v2'), join(made.folder, 'v2'));
    await symlink(join(made.folder, 'v2'), join(root, 'v2'));
    await failureOf(bundle.content.resolve(made.release.tag), 'not-readable');
    await rename(root, `${root}-before`);
    await mkdir(root);
    await writeFile(join(root, 'metadata.json'), '{}');
    expect((await failureOf(bundle.read('metadata.json'), 'not-readable')).message).to.match(/was replaced/);
  });
});

const run = promisify(execFile);

describe('openBundle', () => {
  let bundle: TestBundle;
  const at = (name: string): string => join(bundle.folder, name);
  before(async () => {
    bundle = await makeBundle();
  });
  after(() => bundle.remove());

  it('opens a bundle in a tar', async () => {
    await using opened = await openBundle(bundle.path, makeContext());
    expect(opened).to.deep.include({ form: 'tar', described: true, trailing: 0, size: bundle.result.metadata.size });
    expect(opened.metadata).to.deep.equal(bundle.result.metadata);
    expect((await opened.content.resolve(bundle.release.tag)).digest).to.equal(bundle.release.digest);
    expect(String(await opened.read(metadataPath))).to.include('4.12.4');
  });

  it('opens an unpacked bundle, and a mirror directory without metadata.json', async () => {
    const root = await bundle.unpack();
    const unpacked = await openBundle(root, makeContext());
    expect(unpacked).to.deep.include({ form: 'directory', described: true, metadata: bundle.result.metadata });
    await unpacked[Symbol.asyncDispose]();
    await unlink(join(root, metadataPath));
    await using bare = await openBundle(root, makeContext());
    expect(bare.described).to.equal(false);
    const { version, arch, release, components, previous, osImages } = bundle.result.metadata;
    expect(bare.metadata).to.deep.include({ version, arch, release, components, previous, osImages });
    expect(new Set(bare.metadata.blobs.map(({ digest }) => digest))).to.deep.equal(
      new Set(bundle.result.metadata.blobs.map(({ digest }) => digest)),
    );
  });

  for (const form of ['tar', 'directory'] as const) {
    it(`gives every byte of a ${form} once, each to its file`, async () => {
      const path = form === 'tar' ? bundle.path : await bundle.unpack();
      const opened = await openBundle(path, makeContext());
      const contents = new Map<BundlePart, Buffer[]>();
      let total = 0;
      await opened.scan((part, chunk) => {
        total += chunk.length;
        contents.set(part, [...(contents.get(part) ?? []), Buffer.from(chunk)]);
      });
      await opened[Symbol.asyncDispose]();
      expect(total).to.equal(opened.size);
      const files = opened.files.filter(({ target }) => target === undefined);
      for (const file of files) {
        const content = Buffer.concat(contents.get(file) ?? []);
        const name = file.path.split('/').at(-1) ?? '';
        expect(content, file.path).to.have.length(file.size);
        if (isDigest(name)) expect(digestOf(content)).to.equal(name);
      }
      expect(Buffer.concat(contents.get('padding') ?? []).every((byte) => byte === 0)).to.equal(true);
    });

    it(`tells of an empty file in a ${form}`, async () => {
      const tar = await repack(bundle.path, at('with-empty.tar'), ({ files }) => files.set('empty', Buffer.alloc(0)));
      const path = form === 'tar' ? tar : at('with-empty');
      if (form === 'directory') {
        await mkdir(path);
        await run('tar', ['-xf', tar, '-C', path]);
      }
      const opened = await openBundle(path, makeContext());
      const seen = new Set<string>();
      await opened.scan((part) => seen.add(typeof part === 'object' ? part.path : part));
      await opened[Symbol.asyncDispose]();
      expect([...seen]).to.include('empty');
    });
  }

  it('refuses a file that is not a bundle, and names its kind', async () => {
    await writeFile(at('empty'), '');
    await writeFile(at('noise'), Buffer.alloc(5000, 'x'));
    await mkdir(at('etc'), { recursive: true });
    await writeFile(at('etc/motd'), 'hello');
    await run('tar', ['-cf', at('other.tar'), '-C', at('etc'), 'motd']);
    const refusal = async (path: string): Promise<string> =>
      (await failureOf(openBundle(path, makeContext(), { tolerant: true }), 'invalid-bundle')).message;
    expect(await refusal(at('empty'))).to.include('is an empty file');
    expect(await refusal(at('noise'))).to.include('is not a tar');
    expect(await refusal(at('other.tar'))).to.include('not an upgrade bundle');
    await failureOf(openBundle(at('nowhere'), makeContext()), 'not-found');
    await run('mkfifo', [at('pipe')]);
    await failureOf(openBundle(at('pipe'), makeContext()), 'not-readable');
  });

  it('opens the only tar in a folder', async () => {
    const folder = at('one');
    await mkdir(folder);
    await copyFile(bundle.path, join(folder, 'only.tar'));
    await using opened = await openBundle(folder, makeContext());
    expect(opened).to.deep.include({ form: 'tar', path: join(folder, 'only.tar') });
  });

  it('says that a device is missing', async () => {
    const { message, hint } = await failureOf(openBundle('/dev/sdzz', makeContext()), 'not-readable');
    expect(message).to.equal('/dev/sdzz: no such device');
    expect(hint).to.contain('lsblk');
  });

  it('refuses a directory that is no mirror, and points to the bundles in it', async () => {
    await mkdir(at('bare'), { recursive: true });
    expect((await failureOf(openBundle(at('bare'), makeContext()), 'not-found')).message).to.include('v2/openshift');
    await mkdir(at('several'));
    for (const name of ['upgrade-4.12.4-x86_64.tar', 'other.tar']) await writeFile(at(`several/${name}`), '');
    const { hint } = await failureOf(openBundle(at('several'), makeContext()), 'not-found');
    expect(hint).to.include('upgrade-4.12.4-x86_64.tar');
    await mkdir(at('bare/v2/openshift/release/manifests'), { recursive: true });
    expect((await failureOf(openBundle(at('bare'), makeContext()), 'not-found')).message).to.include('no release');
  });

  it('refuses an invalid metadata.json', async () => {
    const path = await repack(bundle.path, at('odd.tar'), (unpacked) => {
      Object.assign(unpacked.metadata, { formatVersion: 3 });
    });
    expect((await failureOf(openBundle(path, makeContext()), 'invalid-bundle')).message).to.include('formatVersion 3');
  });
});
