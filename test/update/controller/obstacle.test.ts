import { expect } from 'chai';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { node, withConditions } from '../../fakes/cluster/site.ts';
import { makeFacts, release, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import type { ApiServerOptions } from '../../fakes/kubernetes/apiServer.ts';

describe('the obstacles of an update', () => {
  let rollout: RolloutSite;
  const start = async (options: ApiServerOptions = {}): Promise<void> => {
    rollout = await RolloutSite.start(options);
  };
  afterEach(() => rollout.close());

  const put = (spec: Json = {}, metadata: Json = {}, name?: string): void => {
    rollout.server.put(upgradeBundle(name, spec, metadata));
  };
  const pins = (): string[] => rollout.all('PinnedImageSet').map(({ metadata }) => metadata.name);
  /** Returns the paused objects, in a few words. */
  const paused = (): string[] => [
    ...rollout.all('MachineHealthCheck').map(({ metadata }) => JSON.stringify(metadata['annotations'])),
    ...rollout
      .all('ClusterAutoscaler')
      .map(({ metadata, spec }) => JSON.stringify([metadata['annotations'] ?? {}, spec])),
  ];
  const signatures = (): number =>
    rollout.all('ConfigMap').filter(({ metadata }) => metadata.namespace === 'openshift-config-managed').length;

  describe('before it begins', () => {
    it('waits for a digest, and reports the bundles that were found meanwhile', async () => {
      await start();
      const before = paused();
      put({ bundle: {} });
      await rollout.control();
      await rollout.until(() => rollout.condition('Verified').startsWith('False NotAllowed'));
      expect(rollout.bundle()?.status?.phase).to.equal('Detected');
      expect([pins(), paused(), rollout.site.requests]).to.deep.equal([[], before, []]);
      rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', {
        spec: { bundle: { digest: upgradeBundle()['spec'] && makeFacts().digest } },
      });
      await rollout.untilPhase('Completed');
    });

    it('waits for the node of the controller to verify the bundle, and accepts no other', async () => {
      await start();
      rollout.facts = undefined;
      put();
      await rollout.control();
      await rollout.until(() => rollout.condition('Verified').startsWith('False NotFound'));
      rollout.facts = { ...makeFacts(), digest: `sha256:${'e'.repeat(64)}` };
      await rollout.until(() => rollout.condition('Verified').startsWith('False OtherBundle'));
      expect(rollout.bundle()?.status?.phase).to.equal('Detected');
    });

    it('refuses a bundle with the allowed digest whose version or release is not the allowed one', async () => {
      await start();
      const other = `sha256:${'7'.repeat(64)}`;
      const { digest } = makeFacts();
      const refused: Record<string, Json> = {
        'the bundle that was found has the version 4.19.4, and 4.19.3 is allowed (spec.bundle.version)': {
          version: '4.19.3',
        },
        [`the bundle that was found has the release digest ${release.slice(-71)}, and ${other} is allowed (spec.bundle.releaseDigest)`]:
          { version: '4.19.4', releaseDigest: other },
      };
      await rollout.control();
      for (const [words, stated] of Object.entries(refused)) {
        put({ bundle: { digest, ...stated } });
        await rollout.until(() => rollout.condition('Verified') === `False OtherBundle: ${words}`);
        expect([pins(), rollout.site.requests, signatures()]).to.deep.equal([[], [], 0]);
        rollout.remove('UpgradeBundle', 'upgrade-4.19.4-amd64');
      }
      put({ bundle: { digest, version: '4.19.4', releaseDigest: release.slice(-71) } });
      await rollout.untilPhase('Completed');
    });

    it('refuses it also after the digest was verified', async () => {
      await start();
      put({ hold: true });
      await rollout.control();
      await rollout.untilPhase('Held');
      const bundle = { digest: makeFacts().digest, version: '4.19.5' };
      rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { bundle, hold: false } });
      await rollout.until(() => rollout.condition('Verified').startsWith('False OtherBundle'));
      expect(rollout.site.requests).to.deep.equal([]);
    });

    const healthy = { Available: 'True', Degraded: 'False' };
    const obstacles: Record<string, { prepare: () => void; repair?: () => void; words: string }> = {
      'a node of another architecture': {
        prepare: () => rollout.server.put(node('worker-1', 'worker', { nodeInfo: { architecture: 'arm64' } })),
        repair: () => rollout.server.put(node('worker-1', 'worker')),
        words: 'node/worker-1 is arm64, and the bundle of 4.19.4 is for x86_64',
      },
      'a node that is not ready': {
        prepare: () => rollout.edit('Node', 'worker-0', { status: { conditions: [] } }),
        repair: () => rollout.server.put(node('worker-0', 'worker')),
        words: 'node/worker-0 is not ready',
      },
      'an operator that is degraded': {
        prepare: () =>
          rollout.server.put(
            withConditions('config.openshift.io/v1', 'ClusterOperator', 'etcd', { Degraded: 'True because of ice' }),
          ),
        repair: () => rollout.server.put(withConditions('config.openshift.io/v1', 'ClusterOperator', 'etcd', healthy)),
        words: 'clusteroperator/etcd is degraded',
      },
      'a pool that is degraded': {
        prepare: () =>
          rollout.server.put(
            withConditions('machineconfiguration.openshift.io/v1', 'MachineConfigPool', 'worker', { Degraded: 'True' }),
          ),
        repair: () =>
          rollout.server.put(
            withConditions('machineconfiguration.openshift.io/v1', 'MachineConfigPool', 'worker', { Updated: 'True' }),
          ),
        words: 'machineconfigpool/worker is degraded',
      },
      'an update that is under way': {
        prepare: () =>
          rollout.edit('ClusterVersion', 'version', {
            status: { conditions: [{ type: 'Progressing', status: 'True', message: 'x' }] },
          }),
        repair: () => rollout.edit('ClusterVersion', 'version', { status: { conditions: [] } }),
        words: 'clusterversion/version is being updated: x',
      },
      'a version without a way from here': {
        prepare: () => {
          rollout.facts = makeFacts({ previous: ['4.19.1', '4.19.2'] });
        },
        words: 'from which there is no update to 4.19.4',
      },
      'a bundle too large for the nodes': {
        prepare: () => {
          rollout.facts = makeFacts({ blobs: [{ digest: makeFacts().digest, size: 40 * 2 ** 30 }] });
        },
        words: 'has 90 GiB only',
      },
      'another bundle that is not done': {
        prepare: () => put({}, { creationTimestamp: '2099-01-01T00:00:00Z' }, 'another'),
        repair: () => {
          rollout.remove('UpgradeBundle', 'another');
        },
        words: 'there are others',
      },
    };
    for (const [what, { prepare, repair, words }] of Object.entries(obstacles)) {
      it(`is blocked by ${what}, changes nothing${repair ? ', and continues when that is gone' : ''}`, async () => {
        await start();
        const before = paused();
        prepare();
        put();
        await rollout.control();
        await rollout.until(() => rollout.condition('Ready', 'upgrade-4.19.4-amd64').includes(words));
        expect([pins(), paused(), signatures(), rollout.site.requests]).to.deep.equal([[], before, 0, []]);
        if (!repair) return;
        repair();
        await rollout.until(() => rollout.condition('Ready', 'upgrade-4.19.4-amd64').startsWith('True'));
      });
    }

    it('looks again right before the update', async () => {
      await start();
      put({ hold: true });
      await rollout.control();
      await rollout.untilPhase('Held');
      rollout.server.put(withConditions('config.openshift.io/v1', 'ClusterOperator', 'etcd', { Degraded: 'True' }));
      rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { hold: false } });
      await rollout.until(() => rollout.condition('Ready').startsWith('False Blocked'));
      expect(rollout.site.requests).to.deep.equal([]);
      rollout.server.put(withConditions('config.openshift.io/v1', 'ClusterOperator', 'etcd', healthy));
      await rollout.untilPhase('Completed');
    });
  });
});
