import { expect } from 'chai';
import { stringify } from 'yaml';
import { Directory } from '../../../lib/content/store/directory.ts';
import {
  formatOSImageStream,
  installedVersionOf,
  readStreamTarget,
  readOSImageStreams,
  type OSImageStreams,
  type StreamOptions,
} from '../../../lib/release/payload/osImageStreams.ts';
import { readPayloadManifests } from '../../../lib/release/release.ts';
import { makeContext } from '../../support/context.ts';
import { layOutAsOc, makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { buildRelease, type ReleaseOptions, type TestRelease } from '../../support/release/release.ts';
import { operatorCommit, streamFiles, streamRelease, systemLabels } from '../../support/release/streams.ts';

const context = makeContext();
const folders: string[] = [];
after(() => Promise.all(folders.map(removeFolder)));

async function read(
  changes: Partial<ReleaseOptions> = {},
  options: StreamOptions = {},
): Promise<{ release: TestRelease; streams: OSImageStreams | undefined }> {
  const release = buildRelease({ ...streamRelease, ...changes });
  const root = await makeFolder();
  folders.push(root);
  await layOutAsOc(root, release.content);
  const payload = new Directory(root, release.releaseRepository, {}, context);
  const files = await readPayloadManifests(payload, await payload.resolve(release.digest), context);
  const sourceOf = ({ repository }: { repository: string }): Directory => new Directory(root, repository, {}, context);
  return { release, streams: await readOSImageStreams(files, release.version, sourceOf, context, options) };
}

async function readNeeded(changes: Partial<ReleaseOptions> = {}): Promise<OSImageStreams> {
  const { streams } = await read(changes);
  if (!streams) throw new Error('the release does not need its streams');
  return streams;
}

const { configs, components } = streamRelease;
const image = (release: TestRelease, name: string): string => release.images.get(name)?.pullspec ?? '';

describe('readOSImageStreams', () => {
  it('reads the streams of a release by the labels of its images, sorted by name', async () => {
    const { release, streams } = await read();
    const sets = ['Default', 'OKD', 'TechPreviewNoUpgrade', 'DevPreviewNoUpgrade', 'CustomNoUpgrade'];
    expect(streams).to.deep.equal({
      version: '5.0.1',
      featureSets: sets,
      commit: operatorCommit,
      commitSource: 'image',
      availableStreams: [
        {
          name: 'rhel-10',
          osImage: image(release, 'rhel-coreos-10'),
          osExtensionsImage: image(release, 'rhel-coreos-10-extensions'),
        },
        {
          name: 'rhel-9',
          osImage: image(release, 'rhel-coreos'),
          osExtensionsImage: image(release, 'rhel-coreos-extensions'),
        },
      ],
      problems: [],
    });
  });

  it('needs none in a release that serves v1alpha1 in previews, as 4.22, and in one without the gate', async () => {
    expect((await read({ version: '4.22.3', files: streamFiles('v1alpha1') })).streams).to.equal(undefined);
    expect((await read({ version: '4.21.3', files: {} })).streams).to.equal(undefined);
  });

  it('reads the labels of a manifest list', async () => {
    const streams = await readNeeded({ arch: 'multi' });
    expect(streams.availableStreams.map(({ name }) => name)).to.deep.equal(['rhel-10', 'rhel-9']);
    expect(streams.commitSource).to.equal('image');
  });

  const bad: readonly (readonly [string, Partial<ReleaseOptions>, string])[] = [
    [
      'a stream without extensions',
      { components: components.filter((name) => name !== 'rhel-coreos-10-extensions') },
      'the stream rhel-10 has no extensions image',
    ],
    [
      'extensions without their operating system',
      { components: components.filter((name) => name !== 'rhel-coreos') },
      'the stream rhel-9 has no operating system image',
    ],
    [
      'an image without the labels',
      { configs: { ...configs, 'rhel-coreos-10': {} } },
      'rhel-coreos-10 has no label io.openshift.os.streamclass of an operating system stream',
    ],
    [
      'a release whose images have no labels',
      { configs: { 'machine-config-operator': configs['machine-config-operator'] } },
      'no image of the release has the labels of an operating system stream',
    ],
    [
      'two images for one stream, of which machine-config-controller takes either',
      { configs: { ...configs, 'rhel-coreos-10': { labels: systemLabels('rhel-9', 'os') } } },
      'the stream rhel-9 has several images of one kind',
    ],
    [
      'no commit',
      { configs: { ...configs, 'machine-config-operator': {} }, commits: { 'machine-config-operator': '' } },
      'the commit that machine-config-operator was built from is unknown',
    ],
    [
      'several commits',
      { commits: { 'machine-config-operator': 'a'.repeat(40) } },
      `machine-config-operator names several commits that it was built from: ${operatorCommit}, ${'a'.repeat(40)}`,
    ],
  ];
  for (const [what, changes, problem] of bad) {
    it(`names ${what} as a problem, and formats no object then`, async () => {
      const { release, streams } = await read(changes);
      expect(streams?.problems).to.include(problem);
      if (!streams) return;
      expect(() => formatOSImageStream(streams, release.pullspec)).to.throw('cannot be described');
    });
  }

  it('takes the commit of the payload if the image has none, and says so', async () => {
    const streams = await readNeeded({ configs: { ...configs, 'machine-config-operator': {} } });
    expect(streams).to.include({ commit: operatorCommit, commitSource: 'payload' });
    expect(streams.problems).to.deep.equal([]);
  });
});

describe('readOSImageStreams with the executable', () => {
  const other = 'b'.repeat(40);
  const path = 'usr/bin/machine-config-controller';
  const padding = 'x'.repeat(200_000);
  const readWith = async (text: string, changes: Partial<ReleaseOptions> = {}): Promise<OSImageStreams> => {
    const programs = { 'machine-config-operator': { [path]: `${padding}${text}${padding}` } };
    const { streams } = await read({ programs, ...changes }, { executable: true });
    if (!streams) throw new Error('none');
    return streams;
  };
  const set = (commit: string): string =>
    `-X github.com/openshift/machine-config-operator/pkg/version.Hash=${commit} -X b`;

  it('takes the commit of its build settings, also against labels', async () => {
    expect(await readWith(set(operatorCommit))).to.include({ commit: operatorCommit, commitSource: 'executable' });
    expect(await readWith(set(other))).to.include({ commit: other, commitSource: 'executable' });
  });

  it('finds a stated commit in an executable without build settings, also of several', async () => {
    const commits = { 'machine-config-operator': other };
    expect(await readWith(operatorCommit)).to.include({ commit: operatorCommit, commitSource: 'executable' });
    expect(await readWith(other, { commits })).to.include({ commit: other, commitSource: 'executable' });
    expect((await readWith('none')).problems).to.deep.equal([
      `the executable of machine-config-operator does not have its commit ${operatorCommit}`,
    ]);
  });

  it('finds it at each place, also at the end of a chunk', async () => {
    for (const before of [0, 1, 31, 63, 64, 65_500, 65_536]) {
      const programs = { 'machine-config-operator': { [path]: `${'y'.repeat(before)}${set(operatorCommit)}` } };
      const { streams } = await read({ programs }, { executable: true });
      expect(streams?.commitSource, String(before)).to.equal('executable');
    }
  });

  it('takes the labels if no layer has the executable', async () => {
    expect((await read({}, { executable: true })).streams).to.include({ commitSource: 'image' });
  });
});

describe('formatOSImageStream', () => {
  it('makes the object that machine-config-controller makes for a cluster that was installed with 4.22', async () => {
    const { release, streams } = await read();
    if (!streams) throw new Error('none');
    const made = formatOSImageStream(streams, release.pullspec, { installedVersion: '4.22.3' });
    expect(stringify(made, { lineWidth: 0 })).to.equal(`apiVersion: machineconfiguration.openshift.io/v1
kind: OSImageStream
metadata:
  name: cluster
  annotations:
    machineconfiguration.openshift.io/release-image-version: ${operatorCommit}
    machineconfiguration.openshift.io/release-payload-image: ${release.pullspec}
spec:
  defaultStream: rhel-9
status:
  availableStreams:
    - name: rhel-10
      osImage: ${image(release, 'rhel-coreos-10')}
      osExtensionsImage: ${image(release, 'rhel-coreos-10-extensions')}
    - name: rhel-9
      osImage: ${image(release, 'rhel-coreos')}
      osExtensionsImage: ${image(release, 'rhel-coreos-extensions')}
  defaultStream: rhel-9
`);
    expect(readStreamTarget(made)).to.deep.equal({ commit: operatorCommit, releaseImage: release.pullspec });
    expect(readStreamTarget(undefined)).to.deep.equal({ commit: undefined, releaseImage: undefined });
  });

  it('chooses the default stream by the object, then by the only stream, then by the installed version', async () => {
    const streams = await readNeeded();
    const defaultOf = (
      cluster: Parameters<typeof formatOSImageStream>[2],
      only: OSImageStreams['availableStreams'] = streams.availableStreams,
    ): unknown => formatOSImageStream({ ...streams, availableStreams: only }, 'image', cluster).status;
    const named = (defaultStream: string): object => ({ availableStreams: streams.availableStreams, defaultStream });
    expect(defaultOf({ installedVersion: '5.0.0' })).to.deep.equal(named('rhel-10'));
    expect(defaultOf({})).to.deep.equal(named('rhel-10'));
    const [first, second] = streams.availableStreams;
    if (!first || !second) throw new Error('two streams');
    expect(defaultOf({ installedVersion: '4.22.3' }, [first])).to.include({ defaultStream: 'rhel-10' });
    const okd = [
      { ...first, name: 'centos-10' },
      { ...second, name: 'centos-9' },
    ];
    expect(defaultOf({}, okd)).to.include({ defaultStream: 'centos-10' });
    expect(defaultOf({}, [...okd, first])).to.include({ defaultStream: 'rhel-10' });
    const spec = { defaultStream: 'rhel-9' };
    expect(defaultOf({ existing: { spec }, installedVersion: '5.0.0' })).to.deep.equal(named('rhel-9'));
    expect(defaultOf({ existing: { status: { defaultStream: 'rhel-9' } } })).to.deep.equal(named('rhel-9'));
    expect(() => defaultOf({ existing: { spec: { defaultStream: 'rhel-8' } } })).to.throw(
      '5.0.1 has no operating system stream rhel-8, the default of the cluster; it has rhel-10, rhel-9',
    );
    expect(() => defaultOf({ installedVersion: '4.22.3' }, [first, { ...second, name: 'rhel-11' }])).to.throw('rhel-9');
  });

  it('finds the version that a cluster was installed with', () => {
    const entry = (version: string, completionTime: string | null, state = 'Completed'): object => ({
      version,
      completionTime,
      state,
    });
    const history = [
      entry('5.0.1', null, 'Partial'),
      entry('4.22.3', '2026-03-01T10:00:00Z'),
      entry('4.19.9', '2025-03-01T10:00:00Z'),
      entry('4.18.1', '2025-02-01T10:00:00Z', 'Partial'),
    ];
    expect(installedVersionOf({ status: { history, desired: { version: '5.0.1' } } })).to.equal('4.19.9');
    expect(installedVersionOf({ status: { desired: { version: '5.0.1' } } })).to.equal('5.0.1');
    expect(installedVersionOf({})).to.equal(undefined);
  });
});
