import { copyFile, mkdir, readdir, rename, symlink, unlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { openBundle } from '../../lib/bundle/open/open.ts';
import { openLocalOrigin } from '../../lib/bundle/create/localOrigin.ts';
import { messageOf } from '../../lib/errors.ts';
import { hexOf } from '../../lib/content/oci/digest.ts';
import { Credentials } from '../../lib/content/registry/auth/credentials.ts';
import { MirrorSets } from '../../lib/content/registry/mirrors.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';

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
    const access = {
      settings: { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' },
      credentials: new Credentials({ environment: {}, home: root }),
      mirrors: new MirrorSets([]),
    };
    const { message } = await failureOf(openLocalOrigin(root, access, makeContext()), 'not-readable');
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
