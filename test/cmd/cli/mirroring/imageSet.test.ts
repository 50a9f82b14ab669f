import { expect } from 'chai';
import { parse } from 'yaml';
import type { OptionRecord } from '../../../../cmd/cli/command.ts';
import { readImageSet } from '../../../../cmd/cli/mirroring/imageSet.ts';
import { mirrorOptions } from '../../../../cmd/release-mirror-config/options.ts';
import { createOptions } from '../../../../cmd/upgrade-bundle/create/createOptions.ts';
import { fieldsOf } from '../../../../lib/fields.ts';
import { failureOf } from '../../../support/program/failure.ts';

/** Reads the fields of a configuration of oc-mirror as options, and what has no effect. */
function read(text: string, options: OptionRecord = createOptions): Record<string, unknown> {
  const object = {
    apiVersion: 'mirror.openshift.io/v2alpha1',
    kind: 'ImageSetConfiguration',
    ...fieldsOf(parse(text)),
  };
  const { values, notes } = readImageSet(object, 'site.yaml', options);
  const fields = notes.map((note) => /^site\.yaml: (\S+) has no effect: ./.exec(note)?.[1]);
  return { ...Object.fromEntries(values), ...(fields.length > 0 && { notes: fields }) };
}

const platform = (...channels: string[]): string => `mirror: { platform: { channels: [${channels.join(', ')}] } }`;
const catalog = 'registry.redhat.io/redhat/redhat-operator-index:v4.10';
const operators = (fields: string): string => `mirror: { operators: [{ catalog: '${catalog}', ${fields} }] }`;

// The cases of the examples of oc-mirror, in v1/docs/examples and docs/features/filtering.md of openshift/oc-mirror.
describe('an ImageSetConfiguration of oc-mirror', () => {
  for (const [what, text, options] of [
    ['the latest release of a channel', platform('{ name: stable-4.9 }'), { channel: ['stable-4.9'] }],
    ['a whole channel', platform('{ name: stable-4.9, full: true }'), { channel: ['stable-4.9:..'] }],
    [
      'a range on the shortest path',
      platform('{ name: stable-4.9, minVersion: 4.9.13, maxVersion: 4.9.26, shortestPath: true }'),
      { channel: ['stable-4.9:4.9.13..4.9.26'], 'shortest-path': true },
    ],
    [
      'several channels',
      platform('{ name: stable-4.9 }', "{ name: stable-4.7, minVersion: '4.6.13', maxVersion: '4.7.18' }"),
      { channel: ['stable-4.9', 'stable-4.7:4.6.13..4.7.18'] },
    ],
    [
      'another architecture, graph data and the place of its metadata',
      'storageConfig: { local: { path: x } }\narchiveSize: 4\nmirror: { platform: { graph: true, ' +
        'architectures: [s390x] } }',
      { arch: 's390x', 'volume-size': '4Gi', notes: ['storageConfig', 'mirror.platform.graph'] },
    ],
    [
      'platforms of the multi-architecture release',
      'mirror: { platform: { platforms: [{ os: linux, architecture: arm64 }] } }',
      { arch: 'multi', notes: ['mirror.platform.platforms'] },
    ],
    [
      'packages with channels and versions, the default channel first',
      operators(
        'packages: [{ name: a }, { name: b, minVersion: 5.3.2-20 }, { name: c, channels: [{ name: stable, ' +
          'minVersion: 1.7.0, maxVersion: 1.7.5 }, { name: v0 }], defaultChannel: v0 }, { name: d, minVersion: 1.0.0, ' +
          'maxVersion: 1.0.0, channels: [{ name: x }] }]',
      ),
      { catalog: [catalog], operator: ['a', 'b:>=5.3.2-20', 'c@v0', 'c@stable:>=1.7.0 <=1.7.5', 'd@x:=1.0.0'] },
    ],
    [
      'all versions of a package',
      operators('full: true, packages: [{ name: a }, { name: b, channels: [{ name: v0 }] }]'),
      { catalog: [catalog], operator: ['a@*:>=0.0.0-0', 'b@v0:>=0.0.0-0'] },
    ],
    [
      'targets, and names of fields in another case',
      `${operators('targetCatalog: my/index, targetTag: v1, packages: [{ name: a }]').slice(0, -2)}, ` +
        "additionalimages: [{ Name: 'docker://quay.io/a/b:1', targetRepo: c/d }] }",
      {
        catalog: [catalog],
        operator: ['a'],
        'extra-image': ['quay.io/a/b:1'],
        notes: [
          'mirror.operators[0].targetCatalog',
          'mirror.operators[0].targetTag',
          'mirror.additionalImages[0].targetRepo',
        ],
      },
    ],
  ] as const)
    it(`is read as options: ${what}`, () => {
      expect(read(text)).to.deep.equal(options);
      for (const [name, value] of Object.entries(options).filter(([name]) => name !== 'notes')) {
        const { check } = (createOptions as OptionRecord)[name] ?? {};
        for (const each of [value].flat()) void check?.(String(each));
      }
    });

  it('gives the graph data to the mirror command, and lists operators as unsupported', async () => {
    const options = read(
      'archiveSize: 4\nmirror: { platform: { graph: true, release: "quay.io/a/b:1" } }',
      mirrorOptions,
    );
    expect(options).to.deep.equal({
      'graph-data': 'https://api.openshift.com/api/upgrades_info/graph-data',
      from: 'quay.io/a/b:1',
      notes: ['archiveSize'],
    });
    const attempt = Promise.resolve().then(() => read(operators('packages: [{ name: a }]'), mirrorOptions));
    expect((await failureOf(attempt, 'unsupported')).message).to.contain(
      'mirror.operators: only oc adm-upgrade-bundle create',
    );
  });

  it('is refused with all fields whose content has no counterpart', async () => {
    const text = `mirror:
  helm: { repositories: [{ name: podinfo, url: https://podinfo.test }] }
  samples: [{ name: ruby }]
  blockedImages: [{ name: alpine }]
  platform: { kubeVirtContainer: true, architectures: [amd64, arm64], channels: [{ name: okd, type: okd }] }
  operators: [{ catalog: "${catalog}" }, { catalog: "oci:///home/c", packages: [{ name: a, minBundle: a.v1 }] }]`;
    const { message } = await failureOf(
      Promise.resolve().then(() => read(text)),
      'unsupported',
    );
    expect(message.split('\n')).to.deep.equal([
      'site.yaml asks for content that has no counterpart here:',
      '  mirror.helm',
      '  mirror.blockedImages',
      '  mirror.samples',
      '  mirror.platform.kubeVirtContainer',
      '  mirror.platform.architectures: one architecture at a time, or multi for all',
      '  mirror.platform.channels[0].type: okd',
      `  mirror.operators[0]: all operators of ${catalog}; name packages`,
      '  mirror.operators[1].catalog: oci:///home/c, which is not in a registry',
      '  mirror.operators[1].packages[0].minBundle',
    ]);
  });

  it('is refused for a misspelt field, and for a number in place of a version', async () => {
    for (const [text, words] of [
      ['mirror: { platfrom: {} }', 'Did you mean platform?'],
      [platform('{ name: stable-4.9, minVersion: 4.9 }'), 'Put the value in quotes'],
      [platform('{ minVersion: 4.9.1 }'), undefined],
    ] as const) {
      const { hint } = await failureOf(
        Promise.resolve().then(() => read(text)),
        'invalid-file',
      );
      if (words !== undefined) expect(hint).to.contain(words);
    }
  });
});
