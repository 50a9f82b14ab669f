import { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../lib/bundle/open/open.ts';
import { hexOf } from '../../lib/content/oci/reference.ts';
import { type UnpackedBundle } from '../support/archive/repack.ts';
import { type TestBundle } from '../support/content/bundle.ts';
import { kubernetesObject, managed, useHostileBundles } from '../support/content/hostileBundle.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';

const manifests = 'v2/openshift/release/manifests';

/**
 * Additions to a release that Red Hat signed, by the owner of a USB drive, listed by their effect. Every command must
 * refuse each of them.
 */
describe('a hostile bundle', () => {
  let bundle: TestBundle;
  let other: TestBundle;
  const { made, extra, change, check, verify, inspect, refuse } = useHostileBundles();
  before(() => {
    ({ bundle, other } = made());
  });

  describe('with tags of its own', () => {
    it('is refused when a tag of the release leads to another image', async () => {
      const [first = ''] = bundle.release.images.keys();
      for (const tag of [bundle.release.tag, `${bundle.release.tag}-${first}`]) {
        const hostile = await change(({ files }) => {
          files.set(`${manifests}/${tag}`, [...bundle.release.images.values()].at(-1)?.digest ?? '');
        });
        await refuse(hostile, tag);
      }
    });

    it('moves no tag of another release', async () => {
      for (const tag of ['4.12.9-x86_64', '4.12.9-x86_64-etcd', 'latest']) {
        const hostile = await change(({ files }) => files.set(`${manifests}/${tag}`, bundle.release.digest));
        expect([...(await check(hostile)).tags.keys()]).not.to.include(tag);
        expect((await verify(hostile)).problems.map(({ message }) => message).join('\n')).to.contain(tag);
      }
    });

    it('cannot call a release by another version in a directory without metadata.json', async () => {
      const root = await bundle.unpack();
      await rm(join(root, 'metadata.json'));
      await rm(join(root, manifests, bundle.release.tag));
      await symlink(bundle.release.digest, join(root, manifests, '4.12.9-x86_64'));
      expect([...(await check(root)).tags.keys()])
        .to.include('4.12.4-x86_64')
        .and.not.include('4.12.9-x86_64');
      expect((await verify(root)).problems.map(({ message }) => message).join('\n')).to.contain('4.12.9-x86_64');
    });
  });

  describe('with images that the release signature does not cover', () => {
    it('has them counted, named, and called as create calls them', async () => {
      const { extraImages, tags } = await check(bundle.path);
      expect(extraImages).to.deep.equal([extra.pullspec]);
      expect((await verify(bundle.path)).extraImages).to.deep.equal([extra.pullspec]);
      const [tag] = [...tags].find(([, digest]) => extra.pullspec.endsWith(digest)) ?? [];
      expect(tag).to.match(/^4\.12\.4-x86_64-extra-/);
    });

    it('is refused if only signed images are wanted', async () => {
      const { message } = await failureOf(check(bundle.path, { requireSignedImages: true }), 'unsigned');
      expect(message).to.contain('1 image not covered by the release signature').and.contain(extra.pullspec);
      const { problems } = await verify(bundle.path, { requireSignedImages: true });
      expect(problems.map(({ kind, what }) => [kind, what])).to.deep.equal([['unsigned', extra.pullspec]]);
      expect((await check(other.path, { requireSignedImages: true })).extraImages).to.deep.equal([]);
    });
  });

  describe('with more than can be read', () => {
    const floods: Record<string, (files: UnpackedBundle['files']) => void> = {
      'thousands of files': (files) => {
        for (let index = 0; index < 3000; index += 1) {
          files.set(`config/${index}.yaml`, Buffer.alloc(0));
        }
      },
      'megabytes of YAML': (files) => files.set('config/x.yaml', Buffer.from('- a: b\n'.repeat(500_000))),
      'a megabyte of documents': (files) => files.set('config/x.yaml', Buffer.from('---\n'.repeat(250_000))),
      'many files of many brackets': (files) => {
        for (let index = 0; index < 100; index += 1) {
          files.set(`config/${index}.yaml`, Buffer.from('['.repeat(2000) + ']'.repeat(2000)));
        }
      },
      'deep nesting': (files) => files.set('config/x.yaml', Buffer.from('['.repeat(100_000))),
      'aliases that multiply': (files) => {
        const levels = Array.from({ length: 9 }, (_, level) => {
          const above = `*a${level}`;
          return `a${level + 1}: &a${level + 1} [${Array<string>(9).fill(above).join()}]`;
        });
        files.set('config/x.yaml', Buffer.from(['a0: &a0 [x]', ...levels].join('\n')));
      },
      'aliases without end': (files) => files.set('config/x.yaml', Buffer.from(`a: &a 1\n${'- *a\n'.repeat(150_000)}`)),
      'more signatures than any release has': (files) => {
        const name = `sha256-${hexOf(bundle.release.digest)}`;
        const binaryData = Object.fromEntries(
          Array.from({ length: 5000 }, (_, index) => [
            `${name}-${index + 2}`,
            Buffer.from([index % 256, index >> 8]).toString('base64'),
          ]),
        );
        const labels = { 'release.openshift.io/verification-signatures': '' };
        files.set('config/x.json', Buffer.from(kubernetesObject('ConfigMap', { ...managed, labels }, { binaryData })));
      },
    };
    for (const [what, flood] of Object.entries(floods)) {
      it(`refuses ${what}`, async () => {
        const hostile = await change(({ files }) => flood(files));
        await refuse(hostile, 'config');
        expect((await inspect(hostile)).join('\n')).to.contain('config');
      });
    }

    it('reports that metadata.json is malformed, for any content', async () => {
      for (const value of [
        '['.repeat(3_000_000),
        `{"formatVersion": ${'['.repeat(1_500_000)}${']'.repeat(1_500_000)}}`,
      ]) {
        const text = Buffer.from(value);
        const hostile = join(bundle.folder, `metadata-${value.length}`);
        await mkdir(join(hostile, 'v2/openshift/release/manifests'), { recursive: true });
        await writeFile(join(hostile, 'metadata.json'), text);
        await failureOf(openBundle(hostile, makeContext()), 'invalid-bundle');
      }
    });
  });
});
