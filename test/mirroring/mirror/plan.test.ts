import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { type Digest, parseReference } from '../../../lib/content/oci/reference.ts';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { MirrorSets } from '../../../lib/content/registry/mirrors.ts';
import { Registries } from '../../../lib/content/registry/registries.ts';
import { Directory } from '../../../lib/content/store/directory.ts';
import type { ContentSource, ContentStore } from '../../../lib/content/store/store.ts';
import { parseDestination, type Place, type MirrorImage } from '../../../lib/mirroring/mirror/destination.ts';
import { measureMirror } from '../../../lib/mirroring/mirror/measure.ts';
import { planMirror, runMirror } from '../../../lib/mirroring/mirror/plan.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { buildRelease, type ReleaseOptions, type TestRelease } from '../../support/release/release.ts';

const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };

describe('planMirror and runMirror', () => {
  let source: TestRegistry;
  let site: TestRegistry;
  let folder: string;
  let registries: Registries;
  let context: TestContext;
  let release: TestRelease;

  const open = async (options: ReleaseOptions = {}): Promise<void> => {
    [source, site, folder] = await Promise.all([startRegistry(), startRegistry(), makeFolder()]);
    release = buildRelease({ components: 4, layers: 1, baseLayers: 1, registry: source.host, ...options });
    release.addTo(source.content);
    context = makeContext();
    const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
    registries = new Registries({ settings, credentials, mirrors: new MirrorSets() }, context);
  };
  afterEach(async () => {
    await registries[Symbol.asyncDispose]();
    await Promise.all([source.stop(), site.stop(), removeFolder(folder)]);
  });

  const openStore = (place: Place): ContentStore =>
    place.kind === 'registry' ? registries.repository(place) : new Directory(place.root, place.repository, {}, context);
  const listImages = (to: string): MirrorImage[] => {
    const destination = parseDestination({ to, toDir: folder });
    const sources = new Map<string, ContentSource>();
    const named = [
      ['release', release.pullspec] as const,
      ...[...release.images].map(([name, { pullspec }]) => [name, pullspec] as const),
    ];
    return named.map(([name, pullspec]) => {
      const reference = parseReference(pullspec);
      const content = sources.get(reference.repository) ?? registries.sourceOf(reference);
      sources.set(reference.repository, content);
      const target = destination(name, { version: release.version, arch: 'x86_64' });
      return { name, digest: reference.digest!, source: content, reference, target, isRelease: name === 'release' };
    });
  };
  const mirror = async (to: string) => {
    const groups = await planMirror(listImages(to), context);
    const download = registries.download.bind(registries);
    return runMirror(groups, { concurrency: 4, openStore, download }, context);
  };
  const blobCount = (): number => release.blobs.size;

  for (const kind of ['registry', 'directory'] as const) {
    const to = (): string => (kind === 'registry' ? `${site.host}/site/release` : 'file://openshift/release');

    it(`mirrors a release into a ${kind}, and logs its steps`, async () => {
      await open();
      const result = await mirror(to());
      const total = [...release.blobs.values()].reduce((sum, { size }) => sum + size, 0);
      expect(result).to.deep.include({ attachments: 4, hasLists: false, bytes: total });
      expect(result.blobs).to.deep.equal({ copied: blobCount(), mounted: 0, skipped: 0 });
      expect(context.events.find(({ kind: event }) => event === 'plan')).to.deep.equal({
        kind: 'plan',
        images: 5,
        blobs: blobCount(),
        bytes: total,
        present: 0,
      });
      const names = context.events.flatMap((event) => (event.kind === 'image' ? [event.name] : []));
      expect(names).to.have.members(['release', ...release.images.keys()]);
    });

    it(`skips the content of a ${kind}, and plans it before`, async () => {
      await open();
      const measure = async () => measureMirror(await planMirror(listImages(to()), context), openStore);
      const nothing = await measure();
      expect(nothing.present.size).to.equal(0);
      expect(nothing.missing).to.deep.equal(nothing.total);
      await mirror(to());
      const everything = await measure();
      expect(everything.present.size).to.equal(5);
      expect(everything).to.deep.include({ total: nothing.total, missing: { blobs: 0, bytes: 0 } });
      const { blobs, bytes } = await mirror(to());
      expect({ blobs, bytes }).to.deep.equal({ blobs: { copied: 0, mounted: 0, skipped: blobCount() }, bytes: 0 });
      const plan = context.events.findLast((event) => event.kind === 'plan');
      expect(plan?.present).to.equal(plan?.bytes);
    });

    it(`names corrupt content at the source of a ${kind}, and copies the rest`, async () => {
      await open();
      const manifest = release.content.repositories
        .get(release.componentRepository)
        ?.manifests.get(release.images.get('rhel-coreos-8')?.digest ?? '');
      const { layers } = JSON.parse(String(manifest?.bytes)) as { layers: { digest: Digest; size: number }[] };
      const { digest = '', size = 0 } = layers.at(-1) ?? {};
      source.content.blobs.set(digest, Buffer.alloc(size));
      const error = await failureOf(mirror(to()), 'digest-mismatch');
      expect(error.message)
        .to.match(/^rhel-coreos-8: source\b/)
        .and.contain(digest);
      const store = openStore(
        kind === 'registry'
          ? { kind, registry: site.host, repository: 'site/release' }
          : { kind, root: folder, repository: 'openshift/release' },
      );
      // Three components with their signatures. Clients would expect all four with the release image.
      expect(await store.tags()).to.have.length(3 + 4);
      expect(await store.tags()).not.to.include(release.tag);
    });

    it(`reports that a ${kind} refuses a write`, async () => {
      await open();
      if (kind === 'registry') {
        site.fault(/^POST .*\/blobs\/uploads/, { answer: { status: 403, body: '{"errors":[{"code":"DENIED"}]}' } });
        expect((await failureOf(mirror(to()), 'denied')).message)
          .to.contain('destination')
          .and.contain(site.host);
      } else {
        await writeFile(join(folder, 'v2'), '');
        expect((await failureOf(mirror(to()), 'not-writable')).message)
          .to.contain('destination')
          .and.contain(folder);
      }
    });
  }

  for (const [status, code] of [
    [403, 'denied'],
    [405, 'denied'],
    [413, 'too-large'],
    [415, 'unsupported'],
    [507, 'disk-full'],
  ] as const) {
    for (const from of status === 403 ? ['a registry', 'a directory'] : ['a registry']) {
      it(`names the destination once if it answers ${status} to content from ${from}`, async () => {
        await open();
        await mirror('file://openshift/release');
        const local = new Directory(folder, 'openshift/release', {}, context);
        const remote = listImages(`${site.host}/site/release`);
        const images =
          from === 'a directory' ? remote.map(({ reference: _, ...image }) => ({ ...image, source: local })) : remote;
        site.fault(/^(?:POST|PATCH|PUT) /, { answer: { status, body: '' } });
        const download = registries.download.bind(registries);
        const groups = await planMirror(images, context);
        const error = await failureOf(runMirror(groups, { concurrency: 4, openStore, download }, context), code);
        expect(error.message.split('\n')).to.have.length(1);
        expect(error.message)
          .to.match(/: destination\b/)
          .and.contain(`${site.host}/site/release`);
        expect(error.hint).to.be.a('string');
      });
    }
  }

  it('names the destination if it refuses to be read', async () => {
    await open();
    site.fault(/^HEAD /, { answer: { status: 403, body: '' } });
    expect((await failureOf(mirror(`${site.host}/site/release`), 'denied')).message).to.match(/^destination\b/);
  });

  it('moves shared content of several repositories once', async () => {
    await open();
    const result = await mirror(`${site.host}/site/\${component}`);
    expect(result.blobs.copied).to.equal(blobCount());
    expect(result.blobs.mounted).to.be.greaterThan(0);
    const tags = site.content.repositories.get('site/release')?.tags;
    expect([...(tags?.keys() ?? [])]).to.have.members([release.tag, attachmentTag(release.digest)]);
  });

  it('tags the release after everything else, in whichever repository it is', async () => {
    await open();
    for (const to of [`${site.host}/site/release`, `${site.host}/other/\${component}`]) {
      const from = site.requests.length;
      await mirror(to);
      const written = site.requests
        .slice(from)
        .filter(({ method, path }) => method === 'PUT' && path.includes('/manifests/'));
      const tags = written.map(({ path }) => path.slice(path.lastIndexOf('/') + 1)).filter((tag) => !tag.includes(':'));
      expect(tags).to.have.length.greaterThan(4);
      expect(written.at(-1)?.path).to.match(/\/release\/manifests\/4\.12\.4-x86_64$/);
    }
  });

  it('tells once that the source is gone', async () => {
    await open();
    const images = listImages('file://openshift/release');
    await source.stop();
    const error = await failureOf(planMirror(images, context), 'unreachable');
    expect(error.message.split('\n')).to.have.length(1);
  });
});
