import { expect } from 'chai';
import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import {
  checkSitePins,
  listUnpinnable,
  makePinnedImageSets,
  readPinState,
} from '../../../lib/readiness/nodes/pinnedImageSets.ts';
import { withConditions } from '../../fakes/cluster/site.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const role = 'machineconfiguration.openshift.io/role';
const hex = (number: number): string => number.toString(16).padStart(64, '0');
const image = (number: number): string => `quay.io/a/b@sha256:${hex(number)}`;
const digest = `sha256:${'d'.repeat(64)}` as const;
const pool = (name: string, machineConfigSelector?: object): StoredObject => ({
  apiVersion: machines,
  kind: 'MachineConfigPool',
  metadata: { name },
  spec: { ...(machineConfigSelector && { machineConfigSelector }) },
});
const make = (images: readonly string[], pools: StoredObject[]) =>
  makePinnedImageSets({ name: 'x', digest, release: image(0), images }, pools);
const namesOf = (images: readonly string[], pools: StoredObject[]): string[] =>
  make(images, pools).map(({ metadata }) => metadata.name.replace('oc-upgrade-bundle-dddddddddddd-', ''));

describe('makePinnedImageSets', () => {
  it('makes one set for each pool, sorted and each image once', () => {
    const [master] = make([image(2), image(1), image(2)], [pool('worker'), pool('master')]);
    expect(master).to.deep.equal({
      apiVersion: machines,
      kind: 'PinnedImageSet',
      metadata: {
        name: 'oc-upgrade-bundle-dddddddddddd-master',
        labels: { [role]: 'master', 'app.kubernetes.io/managed-by': 'oc-upgrade-bundle' },
        annotations: {
          'upgrade-bundle.openshift.io/bundle': 'x',
          'upgrade-bundle.openshift.io/release': image(0),
        },
      },
      spec: { pinnedImages: [{ name: image(1) }, { name: image(2) }] },
    });
  });

  it('splits more than 500 images', () => {
    const images = Array.from({ length: 1001 }, (_, index) => image(index));
    expect(namesOf(images, [pool('master')])).to.deep.equal(['master', 'master-2', 'master-3']);
    const sets = make(images, [pool('master')]).map(({ spec }) => (spec as { pinnedImages: object[] }).pinnedImages);
    expect(sets.map((each) => each.length)).to.deep.equal([500, 500, 1]);
    expect(namesOf(images.slice(0, 500), [pool('master')])).to.deep.equal(['master']);
  });

  it('makes none for a pool that selects those of another, as custom pools do', () => {
    const both = { matchExpressions: [{ key: role, operator: 'In', values: ['worker', 'infra'] }] };
    const own = { matchLabels: { [role]: 'gpu' } };
    const pools = [pool('infra', both), pool('gpu', own), pool('worker'), pool('master')];
    expect(namesOf([image(1)], pools)).to.deep.equal(['master', 'worker', 'gpu']);
  });

  it('leaves out names that the API refuses', () => {
    const refused = [
      `localhost:5000/x/y@sha256:${hex(1)}`,
      `a.b:5000/x/y/z@sha256:${hex(1)}`,
      `quay.io/x/y@sha256:12`,
      'quay.io/x/y:latest',
    ];
    const taken = [`a.b:5000/x/y@sha256:${hex(1)}`, `quay.io/x@sha256:${hex(1)}`];
    expect(listUnpinnable([...refused, ...taken])).to.deep.equal(refused);
    const [set] = make([...refused, ...taken], [pool('master')]);
    expect(set?.spec.pinnedImages).to.have.length(2);
  });
});

describe('readPinState', () => {
  const settled = { PinnedImageSetsProgressing: 'False', PinnedImageSetsDegraded: 'False' };
  const report = (name: string, poolName: string, sets: object[], conditions: Record<string, string> = settled) => {
    const made = withConditions(machines, 'MachineConfigNode', name, conditions);
    return {
      ...made,
      spec: { pool: { name: poolName } },
      status: { ...(made['status'] as object), pinnedImageSets: sets },
    };
  };
  const pools = [
    pool('master'),
    pool('worker'),
    pool('infra', { matchExpressions: [{ key: role, operator: 'In', values: ['worker', 'infra'] }] }),
  ];
  const sets = make([image(1)], pools).map((set) => ({ ...set, metadata: { ...set.metadata, generation: 2 } }));
  const [master = '', worker = ''] = sets.map(({ metadata }) => metadata.name);

  it('waits for nodes that report nothing, another generation, or that they are not done', () => {
    const reports = [
      report('m', 'master', [{ name: master, currentGeneration: 2 }]),
      report('old', 'worker', [{ name: worker, currentGeneration: 1 }]),
      report('busy', 'worker', [{ name: worker, currentGeneration: 2 }], {
        ...settled,
        PinnedImageSetsProgressing: 'True',
      }),
      report('w', 'worker', [{ name: worker, currentGeneration: 2 }]),
      report('other', 'nowhere', [{ name: worker, currentGeneration: 2 }]),
    ];
    const state = readPinState(sets, pools, reports, ['m', 'old', 'busy', 'w', 'other', 'absent']);
    expect(state).to.deep.equal({ waiting: ['old', 'busy', 'other', 'absent'], unreported: ['absent'], failures: [] });
  });

  it('expects of a node the sets that its pool selects', () => {
    expect(readPinState(sets, pools, [report('i', 'infra', [])], ['i']).waiting).to.deep.equal(['i']);
    const pinned = report('i', 'infra', [{ name: worker, currentGeneration: 2 }]);
    expect(readPinState(sets, pools, [pinned], ['i']).waiting).to.deep.equal([]);
  });

  it('passes on messages of nodes about sets that they cannot pin', () => {
    const broken = { ...settled, PinnedImageSetsDegraded: 'True because of something' };
    const why = { name: worker, lastFailedGenerationError: 'not enough space' };
    const reports = [report('a', 'worker', [why], broken), report('b', 'worker', [], broken)];
    expect(readPinState(sets, pools, reports, ['a', 'b']).failures).to.deep.equal([
      'a: not enough space',
      'b: of something',
    ]);
  });

  it('does not take a failure for the present one while the daemon tries again', () => {
    const again = { PinnedImageSetsProgressing: 'True', PinnedImageSetsDegraded: 'True because See the list' };
    const reports = [report('a', 'worker', [{ name: worker, desiredGeneration: 2 }], again)];
    expect(readPinState(sets, pools, reports, ['a'])).to.deep.include({ waiting: ['a'], failures: [] });
    const why = { name: worker, lastFailedGenerationError: 'not enough space' };
    expect(readPinState(sets, pools, [report('a', 'worker', [why], again)], ['a']).failures).to.deep.equal([
      'a: not enough space',
    ]);
  });

  it('names the set of the site for which a node pins nothing', () => {
    const broken = { ...settled, PinnedImageSetsDegraded: 'True because See the list' };
    const why = { name: 'site-apps', lastFailedGenerationError: 'no such host' };
    const reports = [report('a', 'worker', [why], broken)];
    expect(readPinState(sets, pools, reports, ['a']).failures).to.deep.equal([
      'a: the set site-apps of the site: no such host; while it fails, nothing is pinned there: correct it, or ' +
        'delete it (oc delete pinnedimageset site-apps)',
    ]);
    const site = { ...sets[0], metadata: { name: 'site-apps' } } as StoredObject;
    const found = checkSitePins({ pinnedSets: [...sets, site], poolNodes: reports });
    expect(found.map(({ severity, subject, message }) => `${severity} ${subject.name} ${message}`)).to.deep.equal([
      'warning site-apps cannot be pinned on a: no such host',
    ]);
    expect(checkSitePins({ pinnedSets: [site], poolNodes: [report('a', 'worker', [why])] })).to.deep.equal([]);
  });
});
