import { expect } from 'chai';
import { isPluginError } from '../../lib/errors.ts';
import {
  architecturesOf,
  compareVersions,
  channelSeries,
  componentTag,
  goArchitecture,
  isExtendedUpdate,
  isSameMinor,
  isSameVersion,
  minorsBetween,
  oldestKubelet,
  channelsOf,
  nearVersions,
  parseArchitecture,
  parseVersion,
  releaseTag,
  satisfiesRange,
  unknownVersion,
} from '../../lib/release/version.ts';

const hintOf = (run: () => unknown): string => {
  try {
    run();
  } catch (error) {
    if (isPluginError(error, 'usage')) return error.hint ?? '';
    throw error;
  }
  throw new Error('was accepted');
};

describe('parseArchitecture', () => {
  it('understands OpenShift’s names and Go’s', () => {
    expect(['x86_64', 'amd64', 'arm64', 'aarch64', 'ppc64le', 's390x', 'multi'].map(parseArchitecture)).to.deep.equal([
      'x86_64',
      'x86_64',
      'aarch64',
      'aarch64',
      'ppc64le',
      's390x',
      'multi',
    ]);
    expect(goArchitecture('aarch64')).to.equal('arm64');
    expect(goArchitecture('multi')).to.equal(undefined);
  });

  it('names the choices for anything else', () => {
    for (const text of ['riscv64', '', 'undefined', 'X86_64']) {
      expect(hintOf(() => parseArchitecture(text))).to.match(/x86_64, aarch64, ppc64le, s390x, multi/);
    }
  });
});

describe('parseVersion', () => {
  it('takes complete versions and pre-releases', () => {
    for (const text of ['4.12.4', '4.13.0-rc.2', '4.12.0-0.nightly-2023-01-09-095104']) {
      expect(parseVersion(text)).to.equal(text);
    }
  });

  it('refuses an invalid end of a tag, and suggests the right one', () => {
    const hints = {
      '4.12': '4.12.0',
      ' 4.12.4': '4.12.4',
      '4.12.4+x': '4.12.4',
      latest: '4.12.4',
    };
    for (const [text, meant] of Object.entries(hints))
      expect(hintOf(() => parseVersion(text))).to.contain(`as ${meant}.`);
    expect(hintOf(() => parseVersion('v4.12.4'))).to.equal('Leave out the “v”: 4.12.4.');
    expect(hintOf(() => parseVersion('../4.12.4'))).to.contain('4.12.4');
    const pullspec = `quay.io/example/release@sha256:${'5'.repeat(64)}`;
    expect(hintOf(() => parseVersion(pullspec))).to.contain('as 4.12.4.');
    expect(hintOf(() => parseVersion('quay.io/example/release:4.12.5-x86_64'))).to.contain('as 4.12.5.');
    expect(() => parseVersion(pullspec))
      .to.throw()
      .with.deep.property('settings', ['releaseImage']);
  });
});

describe('releaseTag and componentTag', () => {
  it('are the tags of oc adm release mirror', () => {
    expect(releaseTag('4.12.4', 'x86_64')).to.equal('4.12.4-x86_64');
    expect(componentTag('4.12.4', 'x86_64', 'etcd')).to.equal('4.12.4-x86_64-etcd');
  });
});

const tags = [
  ...[
    '4.11.9',
    '4.11.50',
    '4.12.0',
    '4.12.1',
    '4.12.2',
    '4.12.5',
    '4.12.9',
    '4.13.0',
    '4.13.3',
    '4.12.0-rc.1',
    '3.11.1',
  ].map((version) => `${version}-x86_64`),
  '4.12.4-aarch64',
  '4.12.4-multi',
  '4.12.5-x86_64-etcd',
  'latest',
  'x86_64',
  'sha256-0123.sig',
];

describe('nearVersions', () => {
  it('gives those of the same minor version first, nearest first', () => {
    expect(nearVersions('4.12.4', tags, 'x86_64')).to.deep.equal(['4.12.5', '4.12.2', '4.12.1', '4.12.0', '4.12.9']);
  });

  it('continues with the latest of the next minor versions', () => {
    expect(nearVersions('4.14.0', tags, 'x86_64', 3)).to.deep.equal(['4.13.3', '4.13.0', '4.12.9']);
    expect(nearVersions('4.10.1', tags, 'x86_64', 2)).to.deep.equal(['4.11.50', '4.11.9']);
  });

  it('gives pre-releases their place when one is wanted', () => {
    expect(nearVersions('4.12.0-rc.0', tags, 'x86_64', 2)).to.deep.equal(['4.12.0', '4.12.0-rc.1']);
  });

  it('is empty for an architecture without releases', () => {
    expect(nearVersions('4.12.4', tags, 's390x')).to.deep.equal([]);
  });
});

describe('unknownVersion', () => {
  it('says for which architectures the version exists', () => {
    expect(architecturesOf('4.12.4', tags)).to.deep.equal(['aarch64', 'multi']);
    expect(unknownVersion('4.12.4', 'x86_64', tags, 'quay.io/a/b')).to.include({
      code: 'unknown-version',
      message: 'quay.io/a/b has no release 4.12.4 for x86_64',
      hint: 'It exists for aarch64, multi.',
    });
  });

  it('else says which versions are near, or that there are none', () => {
    expect(unknownVersion('4.12.3', 'x86_64', tags, 'r').hint).to.match(/^The nearest that exist: 4\.12\.2, /);
    expect(unknownVersion('4.12.3', 's390x', tags, 'r').hint).to.equal('r has no release for s390x at all.');
    expect(unknownVersion('4.12.3', 's390x', [], 'r').hint).to.match(/existing tags are not known. .*repository/);
  });
});

describe('minorsBetween', () => {
  for (const [from, to, count] of [
    ['4.18.3', '4.20.1', 2],
    ['4.20.1', '4.18.3', -2],
    ['4.22.9', '5.0.3', Infinity],
    ['5.0.3', '4.22.9', 0],
  ] as const) {
    it(`is ${count} from ${from} to ${to}`, () => {
      expect(minorsBetween(from, to)).to.equal(count);
    });
  }
});

describe('oldestKubelet', () => {
  // minSupportedKubeletSkewForOpenShiftVersion of openshift/cluster-kube-apiserver-operator c813e820b.
  for (const [version, oldest] of [
    ['4.12.4', 23],
    ['4.13.0', 25],
    ['4.19.3', 31],
    ['4.20.3', 31],
    ['4.21.0', 33],
    ['4.22.7', 33],
    ['4.23.0', 35],
    ['5.0.0', 35],
    ['5.1.0', 35],
    ['5.2.0', 35],
    ['5.3.0', 38],
    ['5.5.0', 38],
    ['6.0.0', undefined],
  ] as const) {
    it(`is 1.${oldest ?? '?'} for ${version}`, () => {
      expect(oldestKubelet(version)).to.equal(oldest);
    });
  }
});

describe('isExtendedUpdate', () => {
  const paths: readonly (readonly [from: string, to: readonly string[]])[] = [
    ['4.18.3', ['4.20.1']],
    ['4.20.1', ['4.22.1']],
    ['4.22.7', ['5.2.0']],
    ['4.23.1', ['5.2.0']],
    ['5.2.4', ['5.5.0']],
    ['5.5.0', ['5.8.0']],
    ...['4.19.1', '4.21.1', '5.0.1', '5.1.1', '5.3.0', '5.4.0'].map((from) => [from, []] as const),
  ];
  const all = ['4.19.1', '4.20.1', '4.21.1', '4.22.1', '4.23.1', '4.24.0', '5.0.1', '5.2.0', '5.4.0'];
  for (const [from, to] of paths) {
    it(`leads from ${from} to ${to.join() || 'none'}`, () => {
      expect([...all, '5.5.0', '5.8.0', '6.0.0'].filter((each) => isExtendedUpdate(from, each))).to.deep.equal(to);
      // OpenShift’s own rule for kubelets allows what this allows, at each release on the way.
      for (const target of to) expect(kubernetesOf(from)).to.be.at.least(oldestKubelet(target) ?? Infinity);
    });
  }
  const kubernetesOf = (version: string): number => {
    const [major, minor] = version.split('.').map(Number);
    return (minor ?? 0) + (major === 4 ? 13 : 36);
  };
});

describe('channelsOf', () => {
  it('has the channel eus for extended releases only', () => {
    const versions = ['4.18.3', '4.19.3', '4.22.3', '4.23.0', '5.0.0', '5.1.0', '5.2.0', '5.4.0', '5.5.0'];
    const extended = versions.filter((version) => channelsOf(version).some((name) => name.startsWith('eus-')));
    expect(extended).to.deep.equal(['4.18.3', '4.22.3', '4.23.0', '5.2.0', '5.5.0']);
  });
});

describe('channelSeries', () => {
  for (const [from, to, channels] of [
    ['4.18.20', '4.18.25', 'stable-4.18'],
    ['4.18.20', '4.20.3', 'stable-4.18 stable-4.19 stable-4.20'],
    ['4.18.20', '4.19.0-rc.1', 'candidate-4.18 candidate-4.19'],
    ['4.22.9', '5.1.0', 'stable-4.22 stable-5.0 stable-5.1'],
    ['4.20.3', '4.18.20', 'stable-4.18'],
  ] as const) {
    it(`has the channels from ${from} to ${to}`, () => {
      expect(channelSeries(from, to)[0]?.join(' ')).to.equal(channels);
    });
  }

  it('asks for no absurd number of channels', () => {
    expect(() => channelSeries('4.1.0', '4.999999999.0')).to.throw('too far apart');
  });
});

describe('satisfiesRange', () => {
  const rows: [version: string, range: string, isIn: boolean][] = [
    ['1.1.0', '>=1.0.0 <1.2.0 || 2.1.x', true],
    ['2.1.9', '>=1.0.0 <1.2.0 || 2.1.x', true],
    ['2.0.0', '>=1.0.0 <1.2.0 || 2.1.x', false],
    ['1.1.0-rc.1', '>=1.0.0 <1.2.0', true],
    ['1.1.0', '>=1.0.0 !1.1.0', false],
    ['1.1.0-rc.1', '>=1.0.0 !=1.1.0-rc.1', false],
    ['1.1.5-rc.1', '>=1.0.0 !=1.1.x', false],
    ['1.2.0', '>=1.0.0 !=1.1.x', true],
    ['latest', '>=1.0.0', false],
    ['1.1.0', 'new', false],
  ];
  for (const [version, range, isIn] of rows) {
    it(`${isIn ? 'has' : 'does not have'} ${version} in ${range}`, () => {
      expect(satisfiesRange(version, range)).to.equal(isIn);
    });
  }
});

describe('isSameVersion and isSameMinor', () => {
  const rows: [version: string, other: string, isSame: boolean, isSameMinor: boolean][] = [
    ['4.12.4', 'v4.12.4', true, true],
    ['4.12.4', '4.12.4-rc.1', false, true],
    ['4.12.4+1', '4.12.4+2', false, true],
    ['4.2.0', '5.2.0', false, false],
    ['4.12.4', 'latest', false, false],
    ['latest', 'latest', false, false],
  ];
  for (const [version, other, isSame, hasSameMinor] of rows) {
    it(`compare ${version} with ${other}`, () => {
      expect([isSameVersion(version, other), isSameMinor(version, other)]).to.deep.equal([isSame, hasSameMinor]);
    });
  }
});

describe('compareVersions', () => {
  it('orders versions, after texts that are not versions', () => {
    const sorted = ['4.2.0', 'latest', '4.10.0', '4.10.0-rc.1'].toSorted(compareVersions);
    expect(sorted).to.deep.equal(['latest', '4.2.0', '4.10.0-rc.1', '4.10.0']);
    expect(compareVersions('latest', 'newest')).to.equal(0);
  });
});
