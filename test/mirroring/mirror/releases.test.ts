import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import { readStoredReleases } from '../../../lib/mirroring/mirror/releases.ts';
import { type Workshop, openWorkshop, type ProgramOptions, addRelease } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { Mirroring, readTagLinks } from '../../support/release/mirroring.ts';
import { type MirrorSite, openMirrorSite } from '../../support/release/mirrorSite.ts';
import { buildRelease, type Architecture } from '../../support/release/release.ts';

describe('readClusterUpdates', () => {
  let site: MirrorSite;
  afterEach(() => site.close());

  it('finds the image of a version by the updates of the cluster, or by a graph', async () => {
    site = await openMirrorSite();
    const { workshop, mirroring, server, kubeconfig } = site;
    const { release, signatures } = workshop;
    const version = server.find('config.openshift.io/v1', 'ClusterVersion', 'version');
    const status = { availableUpdates: [{ version: release.version, image: release.pullspec }] };
    server.put({ ...version, metadata: { name: 'version' }, status });
    await mirroring.succeed(['--config-to-dir=known', kubeconfig], release.version);
    const graph = { nodes: [{ version: release.version, payload: release.pullspec }], edges: [] };
    (signatures.files as Map<string, string>).set('/graph', JSON.stringify(graph));
    await mirroring.succeed(['--config-to-dir=graph', `--graph-url=${signatures.url}/graph`], release.version);
    const file = `signature/sha256/${hexOf(release.digest).slice(0, 16)}.yaml`;
    for (const folder of ['known', 'graph']) {
      expect(await readFile(mirroring.path(folder, file), 'utf8')).to.contain(`sha256-${hexOf(release.digest)}`);
    }
    const stderr = await mirroring.fail(['--to-dir=mirror', `--graph-url=${signatures.url}/graph`], 1, '4.12.5');
    expect(stderr)
      .to.match(/no release 4\.12\.5/)
      .and.contain('4.12.4');
  });
});

describe('listReleases', () => {
  let workshop: Workshop;
  let mirroring: Mirroring;
  let graph: string;

  beforeEach(async () => {
    workshop = await openWorkshop({ release: { components: 2 } });
    mirroring = new Mirroring(workshop);
    const { registry, release, signatures } = workshop;
    const others = ['4.12.5', '4.12.6', '4.12.7'].map((version) =>
      buildRelease({ version, registry: registry.host, components: 2 }),
    );
    for (const each of others) each.addTo(registry.content);
    const nodes = [release, ...others].map(({ version, pullspec }) => ({ version, payload: pullspec }));
    const edges = [
      [0, 1],
      [1, 2],
      [2, 3],
      [0, 2],
    ];
    (signatures.files as Map<string, string>).set('/graph', JSON.stringify({ nodes, edges, conditionalEdges: [] }));
    graph = `--graph-url=${signatures.url}/graph`;
  });
  afterEach(() => workshop.close());

  /** The versions that a run would mirror. */
  const versionsOf = async (...args: string[]): Promise<string[]> => {
    const stdout = await mirroring.succeed(
      ['--channel=stable-4.12', ...args, graph, '--allow-unsigned', '--to-mirror', '--to=registry.test/a/b'],
      '',
    );
    return [...stdout.matchAll(/registry\.test\/a\/b:(4\.12\.\d)-x86_64$/gm)].map(([, version = '']) => version);
  };

  it('chooses releases as oc-mirror does with minVersion, maxVersion and shortestPath', async () => {
    expect(await versionsOf()).to.deep.equal(['4.12.7']);
    expect(await versionsOf('--min=4.12.5')).to.deep.equal(['4.12.5', '4.12.6', '4.12.7']);
    expect(await versionsOf('--max=4.12.5')).to.deep.equal(['4.12.4', '4.12.5']);
    expect(await versionsOf('--min=4.12.4', '--max=4.12.6')).to.deep.equal(['4.12.4', '4.12.5', '4.12.6']);
    expect(await versionsOf('--min=4.12.4', '--shortest-path')).to.deep.equal(['4.12.4', '4.12.6', '4.12.7']);
  });

  it('takes several ranges, and the path of updates between them', async () => {
    expect(await versionsOf('--channel=fast-4.12:4.12.4..4.12.4')).to.deep.equal(['4.12.4', '4.12.6', '4.12.7']);
    expect(await versionsOf('--channel=fast-4.12:..')).to.deep.equal(['4.12.4', '4.12.5', '4.12.6', '4.12.7']);
  });

  it('takes them from a file of oc-mirror, as they are there', async () => {
    const channels = [{ name: 'stable-4.12', minVersion: '4.12.5', maxVersion: '4.12.6' }];
    const configuration = {
      apiVersion: 'mirror.openshift.io/v2alpha1',
      kind: 'ImageSetConfiguration',
      mirror: { platform: { channels } },
    };
    const file = await workshop.write('imageset.yaml', JSON.stringify(configuration));
    const target = ['--allow-unsigned', '--to-mirror', '--to=registry.test/a/b'];
    const stdout = await mirroring.succeed([`--file=${file}`, graph, ...target], '');
    const versions = [...stdout.matchAll(/registry\.test\/a\/b:(4\.12\.\d)-x86_64$/gm)].map(([, version]) => version);
    expect(versions).to.deep.equal(['4.12.5', '4.12.6']);
    const bundle = await workshop.create({ file, version: undefined, graphUrl: graph.slice(12), allowUnsigned: true });
    expect(bundle.code, bundle.stderr).to.equal(0);
    expect(bundle.stdout).to.contain('4.12.5, 4.12.6');
  });

  it('mirrors them to a directory and to a registry', async () => {
    const range = ['--channel=stable-4.12', '--min=4.12.5', '--max=4.12.6', graph, '--allow-unsigned'];
    await mirroring.succeed(['--to-dir=mirror', ...range], '');
    const tags = [...(await readTagLinks(mirroring.path('mirror'))).keys()];
    expect(tags).to.include.members(['4.12.5-x86_64', '4.12.6-x86_64']).and.not.include('4.12.7-x86_64');
    await mirroring.succeed([`--to=${workshop.registry.host}/site/release`, ...range], '');
    const pushed = workshop.registry.content.repositories.get('site/release')?.tags;
    expect(pushed?.has('4.12.5-x86_64')).to.equal(true);
    expect(pushed?.has('4.12.6-x86_64')).to.equal(true);
  });

  it('lists the versions of a channel if none is in the range', async () => {
    const to = ['--to-dir=mirror', graph, '--channel=stable-4.12'];
    expect(await mirroring.fail([...to, '--min=4.13.0'], 1, '')).to.match(
      /no release from 4\.13\.0 to 4\.12\.7.*\nhint: It has 4\.12\.4 to 4\.12\.7/,
    );
    expect(await mirroring.fail([...to, '--min=4.12'], 2, '')).to.contain('is not the version of a release');
    expect(await mirroring.fail(['--to-dir=mirror', '--min=4.12.4'], 2)).to.contain('--min needs --channel');
    expect(await mirroring.fail(to, 2)).to.contain('named twice');
  });

  it('takes versions as --version, with a space, and prints its own version without one', async () => {
    const args = [graph, '--allow-unsigned', '--to-mirror', '--to=registry.test/a/b'];
    for (const spelled of [['--version', '4.12.4,4.12.6'], ['--version=4.12.4,4.12.6']]) {
      const stdout = await mirroring.succeed([...spelled, ...args], '');
      expect(stdout)
        .to.match(/b:4\.12\.4-x86_64$/m)
        .and.match(/b:4\.12\.6-x86_64$/m)
        .and.not.contain('4.12.5');
    }
    expect(await mirroring.succeed([...args, '--version'], '')).to.match(/^\d+\.\d+\.\d+\n$/);
    expect(await mirroring.fail(['--version=4.12.4', ...args], 2)).to.contain('given twice');
    const path = ['--path-from', '4.12.4', '--to-version', '4.12.7'];
    expect(await mirroring.succeed([...path, ...args], '')).to.match(/b:4\.12\.4-.*b:4\.12\.6-.*b:4\.12\.7-/s);
  });

  it('puts the releases of a range or a path into one bundle', async () => {
    const releasesIn = async (options: ProgramOptions): Promise<string[]> => {
      const url = graph.replace('--graph-url=', '');
      const all = { version: undefined, 'graph-url': url, 'allow-unsigned': true, 'dry-run': true } as const;
      const { code, stdout, stderr } = await workshop.create({ ...all, ...options, format: 'json' });
      expect(code, stderr).to.equal(0);
      const { path } = JSON.parse(stdout) as { path: string };
      return path.match(/4\.12\.\d/g) ?? [];
    };
    const channel = 'stable-4.12';
    expect(await releasesIn({ channel })).to.deep.equal(['4.12.7']);
    const range = { channel, min: '4.12.5', max: '4.12.6' };
    expect((await releasesIn(range)).sort()).to.deep.equal(['4.12.5', '4.12.6']);
    const shortest = { channel, min: '4.12.4', 'shortest-path': true } as const;
    expect((await releasesIn(shortest)).sort()).to.deep.equal(['4.12.4', '4.12.6', '4.12.7']);
    const path = { 'path-from': '4.12.4', 'to-version': '4.12.7' };
    expect((await releasesIn(path)).sort()).to.deep.equal(['4.12.6', '4.12.7']);
    const both = await workshop.create({ channel });
    expect(both.code, both.stderr).to.equal(2);
    expect(both.stderr).to.contain('give only one of --version and --channel');
  });

  it('offers the latest patches for a version without its patch, as create does', async () => {
    const hint = /hint: The latest patches for x86_64: 4\.12\.7, 4\.12\.6, 4\.12\.5, 4\.12\.4\./;
    expect(await mirroring.fail(['--to-dir=mirror', graph], 2, '4.12')).to.match(hint);
    const { code, stderr } = await workshop.create({
      version: '4.12',
      'graph-url': `${workshop.signatures.url}/graph`,
    });
    expect(code).to.equal(2);
    expect(stderr)
      .to.match(/^error \([a-z-]+\): “4\.12” is not the version of a release$/m)
      .and.match(hint);
  });
});

describe('readStoredReleases', () => {
  let workshop: Workshop;
  before(async () => {
    const small = { components: ['cli'], layers: 1, baseLayers: 1 };
    workshop = await openWorkshop({ release: small });
    const other = await addRelease(workshop, { ...small, arch: 'aarch64', seed: 'arm' });
    await new Mirroring(workshop).succeed(['--to-dir=mirror'], `${workshop.release.pullspec},${other.pullspec}`);
  });
  after(() => workshop.close());
  const read = (arch: Architecture) => readStoredReleases(join(workshop.folder, 'mirror'), arch, makeContext());

  it('reads the releases of one architecture in a mirror directory', async () => {
    for (const arch of ['x86_64', 'aarch64'] as const) {
      const releases = await read(arch);
      expect(releases.map((release) => [release.version, release.arch])).to.deep.equal([['4.12.4', arch]]);
    }
    expect((await read('x86_64'))[0]?.pullspec).to.equal(workshop.release.pullspec);
  });

  it('names the architecture that no release has', async () => {
    const { message, settings } = await failureOf(read('s390x'), 'not-found');
    expect(message).to.match(/mirror has no release for s390x$/);
    expect(settings).to.deep.equal(['arch']);
  });

  it('reads the releases of a bundle', async () => {
    const path = await workshop.make();
    const [release] = await readStoredReleases(path, 'x86_64', makeContext());
    expect(release).to.include({ version: '4.12.4', pullspec: workshop.release.pullspec });
    await failureOf(readStoredReleases(path, 'aarch64', makeContext()), 'not-found');
  });
});
