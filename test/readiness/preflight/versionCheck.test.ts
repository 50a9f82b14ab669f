import { expect } from 'chai';
import { node, withConditions } from '../../fakes/cluster/site.ts';
import { pinningFiles } from '../../support/release/pinning.ts';
import { PreflightSite, plan, manifestsOf } from '../../support/release/preflightSite.ts';

const config = 'config.openshift.io/v1';

describe('the preflight of the version', () => {
  const site = new PreflightSite();
  const { start, run, find, messageOf, change } = site;
  afterEach(() => site.close());

  it('blocks an update for which there is no path, or a way back', async () => {
    await start();
    const version = 'blocker path clusterversion/version';
    expect(await messageOf(version, { ...plan, previous: ['4.19.1', '4.19.2', '4.18.9', '4.18.10'] })).to.equal(
      'runs 4.19.3, from which there is no update to 4.19.4: only from 4.19.2, 4.19.1, 4.18.10 and others',
    );
    expect(await messageOf(version, { ...plan, version: '4.19.2' })).to.contain('which is later than 4.19.2');
    expect(await find({ ...plan, version: '4.19.3' })).to.deep.equal(['info path clusterversion/version']);
    expect(await find({ ...plan, previous: [] })).to.deep.equal(['warning path clusterversion/version']);
    change(config, 'ClusterVersion', 'version', { spec: { desiredUpdate: { version: '4.19.9' } } });
    expect(await messageOf('blocker version clusterversion/version', plan)).to.equal('was asked to update to 4.19.9');
  });

  it('waits for the version operator, and for its condition about other minor versions', async () => {
    await start();
    const conditions = (values: Record<string, string>): void => {
      const { status } = withConditions(config, 'ClusterVersion', 'version', values);
      change(config, 'ClusterVersion', 'version', { status });
    };
    conditions({ Available: 'True', Progressing: 'True because Working towards 4.19.3: 5 of 900' });
    expect(await messageOf('blocker version clusterversion/version')).to.equal(
      'is being updated: Working towards 4.19.3: 5 of 900',
    );
    conditions({ Upgradeable: 'False because ask an administrator' });
    expect(await find()).to.deep.equal(['warning version clusterversion/version']);
    expect(await find(plan)).to.deep.equal(['info version clusterversion/version']);
    expect(await find({ ...plan, version: '4.20.0', previous: ['4.19.3'] })).to.deep.equal([
      'blocker version clusterversion/version',
    ]);
  });

  it('refuses kubelets that are too old for the API server of the target', async () => {
    await start();
    const put = (kubeletVersion: string): void =>
      void site.server.put(node('worker-1', 'worker', { nodeInfo: { architecture: 'amd64', kubeletVersion } }));
    const minor = { ...plan, version: '4.20.3', previous: ['4.19.3'] };
    put('v1.30.14+7cf4c05');
    expect(await messageOf('blocker nodes node/worker-1', minor)).to.equal(
      'has kubelet v1.30.14+7cf4c05, and the API server of 4.20.3 supports 1.31 and later',
    );
    put('v1.31.11');
    expect((await run(minor)).ready).to.equal(true);
    put('v1.24.0');
    const { findings } = await run({ ...plan, version: '4.14.3' });
    expect(findings.map(({ message }) => message).join(' ')).to.contain('4.14.3 supports 1.25 and later');
    put('v1.32.9');
    const major = await run({ ...plan, version: '5.0.1' });
    expect(major.findings.map(({ message }) => message).join(' ')).to.contain('5.0.1 supports 1.35 and later');
  });

  it('states the consequences of a target before 4.19.12', async () => {
    await start({ openshift: '4.12.3' });
    const old = { ...plan, manifests: manifestsOf(pinningFiles(false)), version: '4.12.4', previous: ['4.12.3'] };
    expect(await find(old)).to.deep.equal(['blocker version clusterversion/version']);
    const { findings } = await run(old);
    expect(findings[0]?.message).to.contain('nodes fetch the operating system of 4.12.4 from a registry');
    expect(findings[0]?.advice).to.contain('push and serve');
    const spec = { repositoryDigestMirrors: [{ source: 'quay.io/openshift-release-dev', mirrors: ['r.test/x'] }] };
    const apiVersion = 'operator.openshift.io/v1alpha1';
    site.server.put({ apiVersion, kind: 'ImageContentSourcePolicy', metadata: { name: 'm' }, spec });
    expect(await find(old)).to.deep.equal(['warning version clusterversion/version']);
  });

  it('states the requirements of 4.19, and the effects of a preview', async () => {
    await start({ openshift: '4.18.20' });
    expect(await messageOf('warning version clusterversion/version', { ...plan, previous: ['4.18.20'] })).to.contain(
      'cannot pin images yet',
    );
    const preview = {
      ...plan,
      version: '4.18.21',
      previous: ['4.18.20'],
      manifests: manifestsOf(pinningFiles(false)),
    };
    expect(await find(preview)).to.deep.equal(['blocker version clusterversion/version']);
    const spec = { featureSet: 'TechPreviewNoUpgrade' };
    site.server.put({ apiVersion: config, kind: 'FeatureGate', metadata: { name: 'cluster' }, spec });
    expect(await find(preview)).to.deep.equal(['warning version clusterversion/version']);
  });

  it('asks the release whether its clusters pin images, and not its version', async () => {
    await start({ openshift: '4.18.20' });
    const early = { ...plan, previous: ['4.18.20'], manifests: manifestsOf(pinningFiles(false)) };
    expect(await messageOf('blocker version clusterversion/version', { ...early, version: '4.19.11' })).to.match(
      /^nodes fetch the operating system of 4\.19\.11 from a registry, .* only 4\.19\.12 and later take it/,
    );
    expect((await run({ ...early, version: '4.20.1' })).ready).to.equal(false);
    expect((await run({ ...early, manifests: plan.manifests, version: '4.19.11' })).ready).to.equal(true);
    // Without such manifests the version decides.
    const unknown = { ...early, manifests: new Map<string, Buffer>() };
    expect((await run({ ...unknown, version: '4.19.11' })).ready).to.equal(false);
    expect((await run({ ...unknown, version: '4.19.12' })).ready).to.equal(true);
  });
});
