import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { startChangeProxy } from '../../support/changeProxy.ts';
import { addRelease, openWorkshop, runExecutable, type Workshop } from '../../support/content/creation.ts';
import { useDockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer } from '../../support/peers.ts';
import type { Execution } from '../../support/program/execution.ts';
import { listTags, Mirroring, pullWhole } from '../../support/release/mirroring.ts';
import type { ReleaseOptions, TestRelease } from '../../support/release/release.ts';

describe('oc adm-release-mirror-config prune, while a release is tagged', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  let workshop: Workshop;
  let mirroring: Mirroring;
  let old: TestRelease;
  const site = useDockerRegistry({ inMemory: false });
  let number = 0;
  let repository = '';

  before(async () => {
    const small: ReleaseOptions = { layers: 1, baseLayers: 1, attachments: () => false };
    const release = { ...small, components: ['cli', 'etcd'], common: ['etcd'] };
    workshop = await openWorkshop({ release });
    mirroring = new Mirroring(workshop);
    old = await addRelease(workshop, { ...release, version: '4.12.3', seed: 'old' });
    const kept = await addRelease(workshop, { ...small, components: ['cli'], version: '4.12.9', seed: 'kept' });
    await mirroring.succeed([`--to=${site.host}/kept`], kept.pullspec);
    await mirroring.succeed([`--to=${site.host}/old`], old.pullspec);
  });
  beforeEach(() => (repository = `site${(number += 1)}/release`));
  after(() => workshop.close());

  const to = (host = site.host): string => `--to=${host}/${repository}`;
  const prune = (host = site.host): Promise<Execution> => {
    const all = ['prune', '--insecure', '--keep=4.12.9', '--yes', to(host)];
    return runExecutable('oc-adm_release_mirror_config', workshop.folder, all);
  };
  const hasTag = async (tag: string): Promise<boolean> =>
    (await fetch(`${site.url}/v2/${repository}/manifests/${tag}`, { method: 'HEAD' })).ok;

  /** Mirrors a release, and stops before it is tagged. `tag` returns when the registry has the tag. */
  const beginMirroring = async (
    release: TestRelease,
  ): Promise<{ finish: () => Promise<Execution>; tag: () => Promise<void> }> => {
    const reached = Promise.withResolvers<undefined>();
    const proceed = Promise.withResolvers<undefined>();
    const tagged = Promise.withResolvers<undefined>();
    const isTagging = (method: string, path: string): boolean =>
      method === 'PUT' && path.endsWith(`/manifests/${release.tag}`);
    const proxy = await startChangeProxy(
      site.host,
      async (method, path) => {
        if (!isTagging(method, path)) return;
        reached.resolve(undefined);
        await proceed.promise;
      },
      (method, path) => {
        if (isTagging(method, path)) tagged.resolve(undefined);
      },
    );
    const running = mirroring.run([to(proxy.host)], release.pullspec);
    await reached.promise;
    const tag = async (): Promise<void> => {
      proceed.resolve(undefined);
      await tagged.promise;
    };
    const finish = async (): Promise<Execution> => {
      try {
        return await running;
      } finally {
        await proxy.stop();
      }
    };
    return { tag, finish };
  };

  /** Expects that a release has all its images if it has its tag, and that no run left its record. */
  const expectWhole = async ({ tag, images }: TestRelease): Promise<void> => {
    const names = (await hasTag(tag)) ? [tag, ...[...images.keys()].map((name) => `${tag}-${name}`)] : [];
    for (const name of names) expect(await hasTag(name), name).to.equal(true);
    const left = await listTags(`${site.host}/${repository}`);
    expect(left.filter((name) => name.startsWith('prune-'))).to.deep.equal([]);
  };

  /** The releases to remove and to mirror: one that shares an image with the removed one, or the removed one itself. */
  const cases = [
    { what: 'a release that shares an image', mirrored: (): TestRelease => workshop.release },
    { what: 'the removed release', mirrored: (): TestRelease => old },
  ];
  for (const { what, mirrored } of cases) {
    describe(`if ${what} is mirrored`, () => {
      let run: Awaited<ReturnType<typeof beginMirroring>>;

      beforeEach(async () => {
        await site.addTo(repository, 'kept');
        run = await beginMirroring(mirrored());
        await site.addTo(repository, 'old');
      });

      it('and tagged after the removal: copies the missing content again', async () => {
        const { code, stderr } = await prune();
        expect(code, stderr).to.equal(0);
        expect(await hasTag(old.tag)).to.equal(false);
        await run.tag();
        const outcome = await run.finish();
        expect(outcome.code, outcome.stderr).to.equal(0);
        expect(outcome.stderr).to.match(/does not have it any more: copying it again/);
        await pullWhole(`${site.host}/${repository}:${mirrored().tag}-etcd`, mirroring.path(`copy${number}`));
        await expectWhole(mirrored());
      });

      for (const step of ['its record', 'the first image', 'the last image', 'its record again'] as const) {
        it(`and tagged before the removal ${step === 'its record' ? 'writes' : 'deletes'} ${step}: is whole`, async () => {
          let record: string | undefined;
          const steps: string[] = [];
          const stepOf = (method: string, path: string): string => {
            const written = /\/prune-unfinished-(\w+)$/.exec(path)?.[1];
            record ??= written;
            if (written !== undefined) return 'its record';
            if (method !== 'DELETE' || path.endsWith(digestOf('no image'))) return '';
            if (record !== undefined && path.includes(record)) return 'its record again';
            if (path.endsWith(old.images.get('etcd')?.digest ?? '-')) return 'the last image';
            return path.endsWith(old.digest) ? 'the first image' : '';
          };
          const proxy = await startChangeProxy(site.host, async (method, path) => {
            const now = stepOf(method, path);
            if (steps.includes(now)) return;
            steps.push(now);
            if (now !== step) return;
            await run.tag();
          });
          const pruned = await prune(proxy.host);
          await proxy.stop();
          expect(steps).to.include(step);
          if (pruned.code !== 0) expect(pruned.stderr).to.contain(`the new tag ${mirrored().tag}`);
          const outcome = await run.finish();
          expect(outcome.code, outcome.stderr).to.equal(0);
          await expectWhole(mirrored());
        });
      }
    });
  }
});
