import { readdir, readFile, writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { digestOf } from '../../lib/content/oci/reference.ts';
import { startRegistry } from '../fakes/registry/registry.ts';
import { startChangeProxy } from '../support/changeProxy.ts';
import { addRelease, openWorkshop, runExecutable, type Workshop } from '../support/content/creation.ts';
import { useDockerRegistry } from '../support/dockerRegistry.ts';
import { requirePeer } from '../support/peers.ts';
import { attachmentTag } from '../support/release/attachments.ts';
import { extraImage } from '../support/release/extraImage.ts';
import { makeArchive, soundFiles } from '../support/release/graphArchive.ts';
import { Mirroring, pullWhole, readTagLinks } from '../support/release/mirroring.ts';
import type { ReleaseOptions, TestRelease } from '../support/release/release.ts';

/** A run of `prune` as JSON. */
interface Pruned {
  readonly repositories: { manifests: string[]; undeleted?: string[] }[];
  readonly bytes: number;
}

describe('pruneTarget', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  let workshop: Workshop;
  let mirroring: Mirroring;
  let old: TestRelease;
  const site = useDockerRegistry();

  afterEach(() => workshop.close());

  const unsigned = () => false;
  const small: ReleaseOptions = { components: ['cli', 'etcd'], layers: 1, baseLayers: 1, attachments: unsigned };
  const open = async (options: ReleaseOptions = {}): Promise<void> => {
    workshop = await openWorkshop({ release: { ...small, ...options } });
    mirroring = new Mirroring(workshop);
    old = await publish('4.12.3', options);
  };
  const publish = (version: string, options: ReleaseOptions = {}): Promise<TestRelease> =>
    addRelease(workshop, { ...small, ...options, version, seed: version });
  const both = (): string => `${old.pullspec},${workshop.release.pullspec}`;
  const prune = async (...args: string[]): Promise<string> => {
    const all = ['prune', '--insecure', '--yes', ...args];
    const { code, stdout, stderr } = await runExecutable('oc-adm_release_mirror_config', workshop.folder, all);
    expect(code, stderr).to.equal(0);
    return stdout;
  };
  /** Returns the tags of each tagged repository of the registry below a path. */
  const tagsBelow = async (path: string): Promise<Record<string, string[]>> => {
    const reply = await fetch(`${site.url}/v2/_catalog?n=1000`);
    const { repositories } = (await reply.json()) as { repositories: string[] };
    const lists = repositories.map(async (name) => {
      const { tags } = (await (await fetch(`${site.url}/v2/${name}/tags/list`)).json()) as { tags: string[] | null };
      return [name.slice(path.length), (tags ?? []).sort()] as const;
    });
    const own = repositories.map((name) => name.startsWith(path));
    const found = (await Promise.all(lists)).filter(([, tags], index) => own[index] === true && tags.length > 0);
    return Object.fromEntries(found);
  };
  const filesOf = async (folder: string): Promise<string[]> =>
    (await readdir(mirroring.path(folder), { recursive: true })).sort();
  /** Mirrors both releases, removes one, and expects what mirroring the other one alone leaves. */
  const expectAlone = async (template: string): Promise<void> => {
    await mirroring.succeed([`--to=${site.host}/all/${template}`], both());
    await mirroring.succeed([`--to=${site.host}/one/${template}`]);
    await prune(`--to=${site.host}/all/${template}`, '--keep=4.12.4');
    expect(await tagsBelow('all/')).to.deep.equal(await tagsBelow('one/'));
    await expectAloneInFolder(template);
  };
  const expectAloneInFolder = async (template: string): Promise<void> => {
    const inFolder = [`--to=file://${template}`, '--to-dir=all'];
    await mirroring.succeed(inFolder, both());
    await mirroring.succeed([`--to=file://${template}`, '--to-dir=one']);
    await prune(...inFolder, '--keep=4.12.4');
    expect(await filesOf('all')).to.deep.equal(await filesOf('one'));
  };

  it('removes a multi-arch release with the images and signatures of each architecture', async () => {
    await open({ arch: 'multi', components: ['etcd'], listOfOne: 'etcd', attachments: () => true });
    await expectAlone('multi/release');
    expect(old.children.concat(old.digest).map(attachmentTag)).not.to.include.members(
      (await tagsBelow('all/'))['multi/release'] ?? [],
    );
    await pullWhole(`${site.host}/all/multi/release:4.12.4-multi`, mirroring.path('copy'));
  });

  for (const deletes of ['lists first', 'tags only'] as const) {
    it(`removes a multi-arch release from a registry that deletes ${deletes}`, async () => {
      await open({ arch: 'multi', listOfOne: 'etcd', supplements: true });
      await using own = await startRegistry({ deletes });
      await mirroring.succeed([`--to=${own.host}/all`], both());
      await mirroring.succeed([`--to=${own.host}/one`]);
      await prune(`--to=${own.host}/all`, '--keep=4.12.4');
      const [all, one] = ['all', 'one'].map((name) => own.content.repositories.get(name));
      expect(all?.tags).to.deep.equal(one?.tags);
      if (deletes === 'lists first') expect(all?.manifests).to.have.keys([...(one?.manifests.keys() ?? [])]);
    });
  }

  it('tells of referrers that a registry does not delete, and of images that it keeps for them', async () => {
    const layerSize = 20_000;
    await open({ supplements: true, attachments: () => true, layerSize });
    const freed = async (deletes: 'with tags' | 'tags only'): Promise<Pruned> => {
      await using own = await startRegistry({ deletes });
      const to = `--to=${own.host}/site/release`;
      await mirroring.succeed([to], both());
      const { repositories, bytes } = JSON.parse(await prune(to, '--keep=4.12.4', '-o', 'json')) as Pruned;
      const stored = own.content.repositories.get('site/release')?.manifests;
      for (const digest of repositories[0]?.undeleted ?? []) expect(stored?.has(digest)).to.equal(true);
      return { repositories, bytes };
    };
    const [deleted, kept] = [await freed('with tags'), await freed('tags only')];
    expect(deleted.repositories[0]).not.to.have.property('undeleted');
    const [release] = kept.repositories;
    expect(release?.undeleted).to.have.length(1 + old.images.size);
    expect(release?.manifests).to.include.members(release?.undeleted ?? []);
    // Each image has a layer of its own.
    expect(deleted.bytes - kept.bytes).to.be.greaterThan(layerSize * (1 + old.images.size));
    expect(kept.bytes).to.be.greaterThan(0);
  });

  it('says how many attachments a registry did not delete', async () => {
    await open({ supplements: true, attachments: () => true });
    await using own = await startRegistry({ deletes: 'tags only' });
    const to = `--to=${own.host}/site/release`;
    await mirroring.succeed([to], both());
    const words = await prune(to, '--keep=4.12.4');
    const images = 1 + old.images.size;
    // Each image has a signature, an attestation, an SBOM, and a list of its referrer.
    expect(words).to.contain(`Removed: ${5 * images} manifests, ${4 * images} of them for signatures`);
    expect(words).to.contain(
      `Not deleted by ${own.host}/site/release: ${images} attachments without a tag. Quay keeps`,
    );
  });

  it('removes a release from c/${version}/${component}', async () => {
    await open();
    await expectAlone('c/${version}/${component}');
  });

  for (const template of ['a/${component}', 'b/release:${version}-${component}']) {
    it(`removes a release from ${template} of a directory`, async () => {
      await open();
      await expectAloneInFolder(template);
    });
  }

  it('removes an image that two releases have together with the second one', async () => {
    await open({ common: ['etcd'] });
    const last = await publish('4.12.5');
    const to = `--to=${site.host}/shared/release`;
    const all = `${both()},${last.pullspec}`;
    const shared = old.images.get('etcd')?.digest;
    expect(workshop.release.images.get('etcd')?.digest).to.equal(shared);
    for (const target of [to, '--to-dir=mirror']) await mirroring.succeed([target], all);
    for (const target of [to, '--to-dir=mirror']) await prune(target, '--keep=4.12.4,4.12.5');
    // A registry cannot remove a tag alone.
    expect((await tagsBelow('shared/'))['release']).to.include.members(['4.12.3-x86_64-etcd', '4.12.4-x86_64-etcd']);
    const links = await readTagLinks(mirroring.path('mirror'));
    expect([...links].flatMap(([tag, digest]) => (digest === shared ? [tag] : []))).to.deep.equal([
      '4.12.4-x86_64-etcd',
    ]);
    for (const target of [to, '--to-dir=mirror']) await prune(target, '--keep=4.12.5');
    await mirroring.succeed([`--to=${site.host}/shared-alone/release`], last.pullspec);
    expect(await tagsBelow('shared/')).to.deep.equal(await tagsBelow('shared-alone/'));
    await mirroring.succeed(['--to-dir=alone'], last.pullspec);
    expect(await filesOf('mirror')).to.deep.equal(await filesOf('alone'));
  });

  it('keeps the graph data that an update service of the config folder uses, until it uses another one', async () => {
    await open();
    await writeFile(mirroring.path('graph.tar'), makeArchive(soundFiles));
    const [to, config] = [`--to=${site.host}/graph/release`, '--config-to-dir=config'];
    const mirror = (pullspecs: string): Promise<string> =>
      mirroring.succeed([to, config, '--graph-data=graph.tar'], pullspecs);
    await mirror(`${workshop.release.pullspec},${old.pullspec}`);
    const graphTags = async (): Promise<string[]> =>
      ((await tagsBelow('graph/'))['release'] ?? []).filter((tag) => tag.endsWith('-graph-data'));
    const printed = await prune(to, config, '--keep=4.12.4');
    expect(printed).to.contain('Kept, because the configuration needs them: graph-data (sha256:');
    expect(await graphTags()).to.deep.equal(['4.12.3-x86_64-graph-data', '4.12.4-x86_64-graph-data']);
    const service = await readFile(mirroring.path('config/update-service/updateservice.yaml'), 'utf8');
    const used = /graphDataImage: (\S+)/.exec(service)?.[1] ?? '';
    await pullWhole(used, mirroring.path('graph'));
    await mirror(workshop.release.pullspec);
    await prune(to, config, '--keep=4.12.4');
    expect(await graphTags()).to.deep.equal(['4.12.4-x86_64-graph-data']);
  });

  it('forgets the names of additional images and of repositories that a directory no longer has', async () => {
    await open();
    const { host: registry, content } = workshop.registry;
    const [tool, other] = ['a', 'b'].map((seed) => {
      const image = extraImage({ registry, repository: `tools/${seed}`, seed });
      image.addTo(content);
      return image;
    });
    await mirroring.succeed(['--to-dir=mirror', `--additional-image=${tool?.tagged ?? ''}`], old.pullspec);
    await mirroring.succeed(['--to-dir=mirror', `--additional-image=${other?.tagged ?? ''}`]);
    const read = async (name: string): Promise<object> =>
      JSON.parse(await readFile(mirroring.path('mirror', name), 'utf8')) as object;
    expect(await read('additional-images.json')).to.have.length(2);
    await prune('--to-dir=mirror', '--keep=4.12.4');
    expect(await read('additional-images.json')).to.deep.equal([`${other?.tagged ?? ''}@${other?.digest ?? ''}`]);
    expect(Object.keys(await read('release-repositories.json'))).to.deep.equal([workshop.release.digest]);
    expect((await filesOf('mirror')).join()).not.to.contain(tool?.digest);
  });

  it('fails if another program tags an image while releases are removed', async () => {
    await open();
    const to = 'busy/release';
    await mirroring.succeed([`--to=${site.host}/${to}`], both());
    const { digest } = workshop.release;
    const url = `${site.url}/v2/${to}/manifests`;
    const reply = await fetch(`${url}/${digest}`, {
      headers: { accept: 'application/vnd.docker.distribution.manifest.v2+json' },
    });
    const manifest = await reply.text();
    let tagged: number | undefined;
    await using proxy = await startChangeProxy(site.host, async (method, path) => {
      // The planning asks for the removal of an image that does not exist.
      if (method !== 'DELETE' || path.endsWith(digestOf('no image')) || tagged !== undefined) return;
      const type = { 'content-type': reply.headers.get('content-type') ?? '' };
      tagged = (await fetch(`${url}/late`, { method: 'PUT', headers: type, body: manifest })).status;
    });
    const args = ['prune', '--insecure', `--to=${proxy.host}/${to}`, '--keep=4.12.4', '--yes'];
    const { code, stderr } = await runExecutable('oc-adm_release_mirror_config', workshop.folder, args);
    expect(tagged).to.equal(201);
    expect(code).to.equal(1);
    expect(stderr).to.match(/got the new tag late while releases were removed\nhint: Mirror that image again/);
  });
});
