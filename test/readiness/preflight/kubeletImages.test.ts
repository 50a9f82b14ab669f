import { expect } from 'chai';
import { fieldsOf } from '../../../lib/fields.ts';
import { checkImageRemoval, checkPullVerification } from '../../../lib/readiness/preflight/kubeletImages.ts';
import { hasRules, surveyCluster } from '../../../lib/readiness/preflight/survey.ts';
import { furnish } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

const gibibyte = 1024 ** 3;

describe('preflight of the removal of images', () => {
  let connected: StartedCluster;
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.20.2' });
    furnish(connected.server);
    for (const name of ['master-0', 'worker-0', 'worker-1']) setDisk(name, 50, 100);
  });
  afterEach(() => connected.close());

  const setDisk = (name: string, free: number, size: number): void => {
    const fs = { availableBytes: free * gibibyte, capacityBytes: size * gibibyte };
    connected.server.nodeStats.set(name, { node: { fs, runtime: { imageFs: fs } } });
  };
  const putConfig = (pool: string, kubeletConfig: Json): void => {
    const matchLabels = { [`pools.operator.machineconfiguration.openshift.io/${pool}`]: '' };
    connected.server.put({
      apiVersion: 'machineconfiguration.openshift.io/v1',
      kind: 'KubeletConfig',
      metadata: { name: 'gc' },
      spec: { machineConfigPoolSelector: { matchLabels }, kubeletConfig },
    });
  };
  const find = async (added = 0): Promise<string[]> =>
    checkImageRemoval(await surveyCluster(connected.cluster), added * gibibyte).map(
      ({ severity, subject, message }) => `${severity} ${subject.name} ${message}`,
    );

  it('finds nothing with the settings of the kubelet itself, and room', async () => {
    expect(await find(30)).to.deep.equal([]);
  });

  it('warns of images that go by age, by the KubeletConfig of a pool', async () => {
    putConfig('worker', { imageMaximumGCAge: '24h0m0s' });
    expect(await find()).to.deep.equal([
      'warning worker-0 its kubelet removes images that no pod uses after 24h0m0s (imageMaximumGCAge) (as on worker-1)',
    ]);
    putConfig('worker', { imageMaximumGCAge: '0s' });
    expect(await find()).to.deep.equal([]);
  });

  it('computes with the thresholds of each kubelet whether a bundle makes it remove images', async () => {
    expect(await find(40)).to.deep.equal([
      'warning master-0 its kubelet removes images above 85 % of the disk (imageGCHighThresholdPercent), and ' +
        '90 % will be used once the bundle is loaded (as on worker-0, worker-1)',
      'warning master-0 its kubelet evicts pods and removes images below 15% of free space (evictionHard ' +
        'imagefs.available), and 10 % stay free (as on worker-0, worker-1)',
    ]);
    const own = { imageGCHighThresholdPercent: 95, evictionHard: { 'imagefs.available': '5Gi' } };
    for (const name of ['master-0', 'worker-0', 'worker-1']) connected.server.nodeConfigs.set(name, own);
    expect(await find(40)).to.deep.equal([]);
    expect(await find(46)).to.have.length(2);
  });

  it('takes the running configuration of a kubelet before its KubeletConfig', async () => {
    putConfig('worker', { imageMaximumGCAge: '24h' });
    for (const name of ['worker-0', 'worker-1']) connected.server.nodeConfigs.set(name, { imageMaximumGCAge: '0s' });
    expect(await find()).to.deep.equal([]);
  });
});

const [release, components] = [
  'quay.io/openshift-release-dev/ocp-release',
  'quay.io/openshift-release-dev/ocp-v4.0-art-dev',
];
const images = [`${release}@sha256:1`, `${components}@sha256:2`, `${components}@sha256:3`];

describe('preflight of kubelets that verify pulls', () => {
  let connected: StartedCluster;
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.22.2' });
    furnish(connected.server);
    setVersion('v1.35.6');
  });
  afterEach(() => connected.close());

  const setVersion = (kubeletVersion: string): void => {
    for (const name of ['master-0', 'worker-0', 'worker-1']) {
      const present = connected.server.find('v1', 'Node', name) ?? expect.fail(name);
      const status = fieldsOf(present['status']);
      const nodeInfo = { ...fieldsOf(status['nodeInfo']), kubeletVersion } as Json;
      connected.server.put({ ...present, status: { ...status, nodeInfo } });
    }
  };
  const putConfig = (pool: string, kubeletConfig: Json): void => {
    const matchLabels = { [`pools.operator.machineconfiguration.openshift.io/${pool}`]: '' };
    connected.server.put({
      apiVersion: 'machineconfiguration.openshift.io/v1',
      kind: 'KubeletConfig',
      metadata: { name: `verify-${pool}` },
      spec: { machineConfigPoolSelector: { matchLabels }, kubeletConfig },
    });
  };
  const find = async (givenBy?: 'mirrors' | 'agents'): Promise<string[]> => {
    const survey = await surveyCluster(connected.cluster);
    return checkPullVerification(survey, survey.nodes, { images, givenBy }).map(
      ({ severity, subject, message, advice }) => `${severity} ${subject.kind}/${subject.name} ${message}. ${advice}`,
    );
  };
  const policy = 'imagePullCredentialsVerificationPolicy';
  const allowlist = 'preloadedImagesVerificationAllowlist';

  for (const harmless of ['NeverVerifyPreloadedImages', 'NeverVerify'])
    it(`accepts ${harmless}`, async () => {
      putConfig('worker', { [policy]: harmless });
      expect(await find()).to.deep.equal([]);
    });

  it('blocks if a KubeletConfig demands AlwaysVerify, and names it, its nodes and the setting', async () => {
    putConfig('worker', { [policy]: 'AlwaysVerify' });
    const [found = '', ...others] = await find();
    expect(others).to.deep.equal([]);
    expect(found).to.match(
      /^blocker KubeletConfig\/verify-worker has imagePullCredentialsVerificationPolicy AlwaysVerify: /,
    );
    expect(found).to.contain('on worker-0, worker-1. Set in its spec.kubeletConfig: ');
    expect(found).to.contain(`NeverVerifyAllowlistedImages with ${release}, ${components} in ${allowlist}`);
  });

  it('only warns if mirrors or agents give the images, or if the kubelet does not verify yet', async () => {
    putConfig('worker', { [policy]: 'AlwaysVerify' });
    expect(await find('mirrors')).to.match(/^warning .*refuse loaded images on worker-0, worker-1. Set in /);
    expect(await find('agents')).to.match(/^warning .* An agent keeps the bundle on the disk of such a node/);
    setVersion('v1.34.9');
    expect(await find()).to.match(/^warning /);
  });

  it('counts on no agent where nodes have a rule for exactly one of the repositories', async () => {
    const put = async (source: string): Promise<boolean> => {
      const imageDigestMirrors = [{ source, mirrors: ['localhost:22625/openshift/release-images'] }];
      const set = { apiVersion: 'config.openshift.io/v1', kind: 'ImageDigestMirrorSet', metadata: { name: 'x' } };
      connected.server.put({ ...set, spec: { imageDigestMirrors } });
      return hasRules(images, await surveyCluster(connected.cluster));
    };
    expect(hasRules(images, await surveyCluster(connected.cluster))).to.equal(false);
    expect(await put(components)).to.equal(true);
    // The rule of the agent is more precise.
    expect(await put('quay.io/openshift-release-dev')).to.equal(false);
  });

  it('names the repositories that an allowlist lacks', async () => {
    putConfig('master', {
      [policy]: 'NeverVerifyAllowlistedImages',
      [allowlist]: [release, 'quay.io/openshift-release-dev/ocp-v4.0*'],
    });
    const [found = ''] = await find();
    expect(found).to.contain(
      `KubeletConfig/verify-master has ${policy} NeverVerifyAllowlistedImages, and ${allowlist} lacks ${components}: `,
    );
    for (const enough of [[release, components], ['quay.io/openshift-release-dev/*'], ['quay.io/*']]) {
      putConfig('master', { [policy]: 'NeverVerifyAllowlistedImages', [allowlist]: enough });
      expect(await find(), String(enough)).to.deep.equal([]);
    }
  });

  it('takes the running configuration of a kubelet, and names the node if no KubeletConfig sets it', async () => {
    putConfig('worker', { [policy]: 'AlwaysVerify' });
    for (const name of ['worker-0', 'worker-1']) connected.server.nodeConfigs.set(name, { [policy]: 'NeverVerify' });
    connected.server.nodeConfigs.set('master-0', { [policy]: 'AlwaysVerify' });
    expect(await find())
      .to.have.length(1)
      .and.to.match(/^blocker Node\/master-0 /);
  });
});
