import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { formatManifest } from '../../lib/config/manifest.ts';
import {
  convertMirrorSet,
  formatMirrorInstructions,
  keepMirrors,
  listKeptMirrors,
  listMirrorPlaces,
  mirrorSetManifest,
  mirrorSetManifests,
  type MirrorSetKind,
} from '../../lib/config/mirrorSets.ts';
import { formatReference, parseReference } from '../../lib/content/oci/reference.ts';
import { readMirrorSets } from '../../lib/content/registry/mirrors.ts';
import { expectGolden } from '../support/program/golden.ts';

const kinds: MirrorSetKind[] = ['idms', 'icsp'];
const mirror = 'registry.example:5000/ocp4/openshift4';
const sources = [
  { source: 'quay.io/openshift-release-dev/ocp-v4.0-art-dev', mirrors: [mirror] },
  { source: 'quay.io/openshift-release-dev/ocp-release', mirrors: [mirror, 'registry.example:5000/ocp4/release'] },
  { source: 'quay.io/openshift-release-dev/ocp-v4.0-art-dev', mirrors: [mirror] },
  { source: 'quay.io/another/repository', mirrors: [mirror] },
];

describe('mirrorSetManifest', () => {
  for (const kind of kinds) {
    it(`writes the ${kind} that a person can audit`, async () => {
      const { path, object } = mirrorSetManifest(kind, sources);
      await expectGolden(path, formatManifest(object));
    });

    it(`writes an ${kind} that is read back: images are found at their mirrors`, async () => {
      const folder = await mkdtemp(join(tmpdir(), 'mirror-sets-'));
      try {
        const file = join(folder, 'sets.yaml');
        await writeFile(file, formatManifest(mirrorSetManifest(kind, sources).object));
        const sets = await readMirrorSets(file);
        const digest = `@sha256:${'1'.repeat(64)}`;
        const image = parseReference(`quay.io/openshift-release-dev/ocp-release${digest}`);
        expect(sets.locationsOf(image).map(formatReference)).to.deep.equal([
          `${mirror}${digest}`,
          `registry.example:5000/ocp4/release${digest}`,
          `quay.io/openshift-release-dev/ocp-release${digest}`,
        ]);
      } finally {
        await rm(folder, { recursive: true });
      }
    });
  }

  it('has a name and a path of its own for each content', () => {
    const other = [{ source: 'quay.io/another/repository', mirrors: ['registry.example:5000/4.19/release'] }];
    const [one, two] = [mirrorSetManifest('idms', sources), mirrorSetManifest('idms', other)];
    expect(one.path).not.to.equal(two.path);
    expect(one.object.metadata.name).to.match(/^release-mirror-[0-9a-f]{8}$/);
    expect(one.object.metadata.name).not.to.equal(two.object.metadata.name);
  });

  it('is the same in any order of the sources, which are merged', () => {
    const { object } = mirrorSetManifest('idms', sources);
    const turned = mirrorSetManifest('idms', sources.toReversed());
    expect(turned.object).to.deep.equal(object);
    expect(object['spec']).to.have.property('imageDigestMirrors').with.length(3);
  });

  it('keeps the order of the mirrors of a source, each once', () => {
    const { object } = mirrorSetManifest('icsp', [
      { source: 'a.example/x', mirrors: ['z.example/x', 'b.example/x'] },
      { source: 'a.example/x', mirrors: ['c.example/x', 'z.example/x'] },
    ]);
    expect(object['spec']).to.deep.equal({
      repositoryDigestMirrors: [{ source: 'a.example/x', mirrors: ['z.example/x', 'b.example/x', 'c.example/x'] }],
    });
  });
});

describe('formatMirrorInstructions', () => {
  for (const kind of kinds) {
    it(`prints for ${kind} the words of oc`, async () => {
      await expectGolden(
        `config/mirrors/instructions-${kind}.txt`,
        `${formatMirrorInstructions({ kind, sources, additional: { digest: [], tag: [] } })}\n`,
      );
    });
  }

  it('has its YAML in the place that scripts read: two lines below its title, up to an empty line or the end', () => {
    const lines = formatMirrorInstructions({ kind: 'idms', sources, additional: { digest: [], tag: [] } }).split('\n');
    const install = lines.indexOf(
      'To use the new mirrored repository to install, add the following section to the install-config.yaml:',
    );
    expect(lines[install + 2]).to.equal('imageDigestSources:');
    const upgrade = lines.indexOf(
      'To use the new mirrored repository for upgrades, use the following to create an ImageDigestMirrorSet:',
    );
    expect(lines.slice(upgrade - 2, upgrade + 3)).to.deep.equal([
      '',
      '',
      lines[upgrade],
      '',
      'apiVersion: config.openshift.io/v1',
    ]);
  });
});

describe('keepMirrors', () => {
  const set = (entries: object[]) => ({
    apiVersion: 'config.openshift.io/v1',
    kind: 'ImageDigestMirrorSet',
    metadata: { name: 'mine' },
    spec: { imageDigestMirrors: entries },
  });

  it('adds the mirrors of a manifest to the stored ones, and removes none', () => {
    const stored = set([
      { source: 'a/x', mirrors: ['old/x'], mirrorSourcePolicy: 'NeverContactSource' },
      { source: 'b/x', mirrors: ['old/x'] },
    ]);
    const ours = set([
      { source: 'a/x', mirrors: ['new/x', 'old/x'] },
      { source: 'c/x', mirrors: ['new/x'] },
    ]);
    expect(keepMirrors(ours, stored)['spec']).to.deep.equal({
      imageDigestMirrors: [
        { source: 'a/x', mirrors: ['old/x', 'new/x'], mirrorSourcePolicy: 'NeverContactSource' },
        { source: 'b/x', mirrors: ['old/x'] },
        { source: 'c/x', mirrors: ['new/x'] },
      ],
    });
  });

  it('leaves other kinds, and objects that are not stored yet, as they are', () => {
    const ours = set([{ source: 'a/x', mirrors: ['new/x'] }]);
    expect(keepMirrors(ours, undefined)).to.equal(ours);
    const configMap = { ...ours, kind: 'ConfigMap' };
    expect(keepMirrors(configMap, set([{ source: 'b/x', mirrors: ['old/x'] }]))).to.equal(configMap);
  });
});

describe('convertMirrorSet', () => {
  it('converts to the other kind, unless that kind lacks a field', () => {
    const entries = [{ source: 'quay.io/a', mirrors: [mirror] }];
    const object = { ...mirrorSetManifest('idms', sources).object, spec: { imageDigestMirrors: entries } };
    const converted = convertMirrorSet({ path: 'a.yaml', object }, 'icsp');
    expect(converted?.object).to.deep.include({
      apiVersion: 'operator.openshift.io/v1alpha1',
      kind: 'ImageContentSourcePolicy',
      spec: { repositoryDigestMirrors: entries },
    });
    const strict = { imageDigestMirrors: [{ ...entries[0], mirrorSourcePolicy: 'NeverContactSource' }] };
    expect(convertMirrorSet({ path: 'a.yaml', object: { ...object, spec: strict } }, 'icsp')).to.equal(undefined);
  });
});

describe('mirrorSetManifests', () => {
  it('makes sets for digests and for tags, and none for tags beside ImageContentSourcePolicy', () => {
    const additional = { digest: [sources[3]!], tag: [sources[3]!] };
    const kindsOf = (kind: MirrorSetKind): string[] =>
      mirrorSetManifests({ kind, sources, additional }).map(({ object }) => object.kind);
    expect(kindsOf('idms')).to.deep.equal(['ImageDigestMirrorSet', 'ImageDigestMirrorSet', 'ImageTagMirrorSet']);
    expect(kindsOf('icsp')).to.deep.equal(['ImageContentSourcePolicy', 'ImageContentSourcePolicy']);
  });
});

describe('listMirrorPlaces and listKeptMirrors', () => {
  const { object } = mirrorSetManifest('idms', [{ source: 'quay.io/a', mirrors: ['r.test/a'] }]);
  const stored = mirrorSetManifest('idms', [
    { source: 'quay.io/a', mirrors: ['r.test/a', 'other.test/a'] },
    { source: 'quay.io/b', mirrors: ['r.test/b'] },
  ]).object;

  it('list where a mirror set leads, and nothing for other objects', () => {
    expect(listMirrorPlaces(stored)).to.have.members(['r.test/a', 'other.test/a', 'r.test/b']);
    expect(listMirrorPlaces({ ...stored, kind: 'ConfigMap' })).to.deep.equal([]);
  });

  it('list the mirrors that only the stored object has', () => {
    expect(listKeptMirrors(object, stored)).to.have.members(['quay.io/a → other.test/a', 'quay.io/b → r.test/b']);
    expect(listKeptMirrors(object, undefined)).to.deep.equal([]);
    expect(listKeptMirrors({ ...object, kind: 'ConfigMap' }, stored)).to.deep.equal([]);
  });
});

describe('formatMirrorInstructions with images by tag', () => {
  const additional = { digest: [], tag: [{ source: 'quay.io/tool', mirrors: ['r.test/tool'] }] };

  it('has a set for tags, which ImageContentSourcePolicy lacks', () => {
    expect(formatMirrorInstructions({ kind: 'idms', sources, additional })).to.contain('kind: ImageTagMirrorSet');
    const text = formatMirrorInstructions({ kind: 'icsp', sources, additional });
    expect(text).not.to.contain('ImageTagMirrorSet').and.not.contain('---');
  });
});
