import { expect } from 'chai';
import type { Fields } from '../../../lib/fields.ts';
import {
  agentPlacement,
  checkAgentNodes,
  isPoolNode,
  mayHaveAgent,
  mayRunOn,
  nameWithoutAgent,
  parseQuantity,
  readNode,
  type ClusterNode,
} from '../../../lib/readiness/nodes/node.ts';
import { node, nodesWithoutAgent } from '../../fakes/cluster/site.ts';

const worker = readNode(node('worker-0', 'worker'));
const withLabels = (labels: Fields): ClusterNode => ({ ...worker, labels: { ...worker.labels, ...labels } });

describe('readNode', () => {
  it('reads the facts of a node', () => {
    const conditions = [
      { type: 'Ready', status: 'Unknown' },
      { type: 'DiskPressure', status: 'True' },
    ];
    const nodeInfo = { architecture: 'arm64', kubeletVersion: 'v1.31.3', containerRuntimeVersion: 'cri-o://1.31.4' };
    const images = [{ names: ['quay.io/a/b:1', 'busybox'] }, { names: null }];
    const capacity = { 'ephemeral-storage': '100G' };
    const status = { conditions, nodeInfo, images, capacity, allocatable: {} };
    expect(readNode(node('a', 'master', status, { unschedulable: true }))).to.deep.equal({
      name: 'a',
      labels: { 'node-role.kubernetes.io/master': '', 'kubernetes.io/os': 'linux' },
      architecture: 'arm64',
      kubelet: 'v1.31.3',
      runtime: 'cri-o://1.31.4',
      ready: false,
      schedulable: false,
      pressed: true,
      taints: [{ key: 'node-role.kubernetes.io/master', effect: 'NoSchedule' }],
      images: new Set(['quay.io/a/b:1', 'docker.io/library/busybox:latest']),
      listed: 2,
      capacity: 100_000_000_000,
      allocatable: undefined,
    });
  });

  it('takes a node without facts for one that is not ready, of an unknown architecture', () => {
    const bare = readNode({ apiVersion: 'v1', kind: 'Node', metadata: { name: 'bare' } });
    expect(bare).to.deep.include({ architecture: '', ready: false, schedulable: true, pressed: false, listed: 0 });
    expect(mayHaveAgent(bare)).to.equal(true);
  });
});

describe('parseQuantity', () => {
  it('reads quantities of Kubernetes, and nothing else', () => {
    const cases: [unknown, number | undefined][] = [
      ['125293548Ki', 125293548 * 1024],
      ['115470533646', 115470533646],
      ['100G', 1e11],
      ['1.5Gi', 1.5 * 1024 ** 3],
      ['2Ti', 2 * 1024 ** 4],
      ['250m', 0.25],
      ['1k', 1000],
      ['1.e3', 1000],
      ['+5E-1', 0.5],
      ['2E', 2e18],
      ['50n', 5e-8],
      [8, 8],
      ...['', 'x', '-1', '1 Gi', 'Ki', '1KiB', '1K', '1ki', '1e', undefined, null].map((bad): [unknown, undefined] => [
        bad,
        undefined,
      ]),
    ];
    for (const [text, expected] of cases) expect(parseQuantity(text), String(text)).to.equal(expected);
  });
});

describe('mayRunOn', () => {
  const runs = (spec: Fields, on: ClusterNode = worker): boolean => mayRunOn({ spec, node: undefined }, on);

  it('leads a static pod to its own node alone', () => {
    const spec = { nodeSelector: { disk: 'ssd' } };
    expect(mayRunOn({ spec, node: 'worker-0' }, worker)).to.equal(true);
    expect(mayRunOn({ spec: {}, node: 'worker-1' }, worker)).to.equal(false);
  });

  it('requires all labels of the node selector', () => {
    const nodeSelector = { disk: 'ssd', zone: 'a' };
    expect(runs({ nodeSelector }, withLabels(nodeSelector))).to.equal(true);
    expect(runs({ nodeSelector }, withLabels({ disk: 'ssd', zone: 'b' }))).to.equal(false);
    expect(runs({ nodeSelector })).to.equal(false);
  });

  it('requires one term of the affinity, with all its requirements', () => {
    const affinity = (...nodeSelectorTerms: object[]): Fields => ({
      affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms } } },
    });
    const label = (key: string, ...values: string[]): object => ({ key, operator: 'In', values });
    const [ssd, zone] = [label('disk', 'ssd'), label('zone', 'a', 'b')];
    const both = withLabels({ disk: 'ssd', zone: 'b' });
    expect(runs(affinity({ matchExpressions: [ssd, zone] }), both)).to.equal(true);
    expect(runs(affinity({ matchExpressions: [ssd, zone] }), withLabels({ disk: 'ssd' }))).to.equal(false);
    expect(
      runs(affinity({ matchExpressions: [ssd] }, { matchExpressions: [zone] }), withLabels({ zone: 'a' })),
    ).to.equal(true);
    const named = (name: string): Fields => affinity({ matchFields: [label('metadata.name', name)] });
    expect([runs(named('worker-0')), runs(named('worker-1'))]).to.deep.equal([true, false]);
    expect(runs(affinity({ matchExpressions: [ssd], matchFields: [label('metadata.name', 'x')] }), both)).to.equal(
      false,
    );
  });

  it('takes a term without requirements, and no terms, for no node', () => {
    const required = (value: unknown): Fields => ({
      affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: value } },
    });
    expect(runs(required({ nodeSelectorTerms: [{}] }))).to.equal(false);
    expect(runs(required({ nodeSelectorTerms: [] }))).to.equal(false);
    expect(runs(required(null))).to.equal(true);
    expect(runs({ affinity: { nodeAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [{}] } } })).to.equal(
      true,
    );
  });

  it('requires a toleration of each taint, except those of temporary states', () => {
    const taint = (key: string, value?: string, effect = 'NoSchedule'): Fields => ({ key, value, effect });
    const tolerated = (taints: readonly Fields[], ...tolerations: object[]): boolean =>
      runs({ tolerations }, { ...worker, taints });
    const gpu = taint('gpu', 'yes');
    expect(tolerated([gpu])).to.equal(false);
    expect(tolerated([taint('node.kubernetes.io/unschedulable'), taint('gpu', 'yes', 'PreferNoSchedule')])).to.equal(
      true,
    );
    for (const toleration of [
      { operator: 'Exists' },
      { key: '', operator: 'Exists' },
      { key: 'gpu', operator: 'Exists', effect: 'NoSchedule' },
      { key: 'gpu', value: 'yes' },
      { key: 'gpu', operator: 'Equal', value: 'yes', effect: '' },
    ])
      expect(tolerated([gpu], toleration), JSON.stringify(toleration)).to.equal(true);
    for (const toleration of [
      { key: 'other', operator: 'Exists' },
      { key: 'gpu', operator: 'Exists', effect: 'NoExecute' },
      { key: 'gpu', value: 'no' },
      { key: 'gpu' },
    ])
      expect(tolerated([gpu], toleration), JSON.stringify(toleration)).to.equal(false);
    expect(tolerated([taint('gpu')], { key: 'gpu', value: '' })).to.equal(true);
    expect(tolerated([gpu, taint('other')], { key: 'gpu', operator: 'Exists' })).to.equal(false);
  });
});

describe('nodes without an agent', () => {
  const odd = nodesWithoutAgent.map((each) => readNode(each));
  const of = (architecture: string): ClusterNode => ({ ...worker, name: `${architecture}-0`, architecture });

  it('are those of Windows, of virtual kubelets, and of other architectures', () => {
    for (const each of odd) expect([isPoolNode(each), mayHaveAgent(each)], each.name).to.deep.equal([false, false]);
    expect(['amd64', 'arm64', ''].map((name) => mayHaveAgent(of(name)))).to.deep.equal([true, true, true]);
    expect([isPoolNode(of('s390x')), mayHaveAgent(of('s390x'))]).to.deep.equal([true, false]);
    const kubelets = ['v1.31.3-vk-azure-aci-1', 'kwok-v0.6.0', 'fake', 'v1.31.3'];
    expect(kubelets.filter((kubelet) => !isPoolNode({ ...worker, kubelet }))).to.deep.equal(kubelets.slice(0, 3));
  });

  it('are excluded by labels in the placement of the agents too', () => {
    const cases: [Fields, boolean][] = [
      [{ 'kubernetes.io/arch': 'amd64' }, true],
      [{ 'kubernetes.io/os': 'windows' }, false],
      [{ type: 'virtual-kubelet' }, false],
      [{ type: 'kwok' }, false],
      [{ type: 'large' }, true],
      [{ 'liqo.io/type': 'virtual-node' }, false],
      [{ 'virtual-kubelet.io/provider': '' }, false],
    ];
    for (const [labels, expected] of cases) {
      const placed = withLabels(labels);
      expect(mayRunOn({ spec: agentPlacement, node: undefined }, placed), JSON.stringify(labels)).to.equal(expected);
      expect(mayHaveAgent(placed), JSON.stringify(labels)).to.equal(expected);
    }
    const s390x = withLabels({ 'kubernetes.io/arch': 's390x' });
    expect(mayRunOn({ spec: agentPlacement, node: undefined }, s390x)).to.equal(false);
  });

  it('are named in order, with the reason', () => {
    expect(nameWithoutAgent([worker])).to.equal(undefined);
    const solaris = { ...withLabels({ 'kubernetes.io/os': 'solaris' }), name: 'a' };
    expect(nameWithoutAgent([...odd, of('s390x'), worker, solaris])).to.match(
      /^a \(solaris\), .*s390x-0 \(s390x\), .*win-0 \(Windows\)$/,
    );
    expect(nameWithoutAgent([of('amd64'), of('arm64')], ['amd64'])).to.equal('arm64-0 (arm64)');
    expect(nameWithoutAgent([of('amd64'), of('arm64')], [])).to.equal(undefined);
  });

  it('are one finding for nodes outside of all pools, and one for architectures', () => {
    expect(checkAgentNodes([worker])).to.deep.equal([]);
    const findings = checkAgentNodes([worker, ...odd, of('ppc64le')]);
    expect(findings.map(({ severity, check }) => [severity, check])).to.deep.equal([
      ['info', 'nodes'],
      ['warning', 'nodes'],
    ]);
    expect(findings[0]?.message).to.match(/^in no machine config pool, and not checked: .*win-0 \(Windows\)$/);
    expect(findings[1]?.message).to.equal('no agent runs on ppc64le-0 (ppc64le)');
  });
});
