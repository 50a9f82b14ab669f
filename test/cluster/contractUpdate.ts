import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import type { Cluster } from '../../lib/cluster/client.ts';
import { leadWithLease } from '../../lib/cluster/lease.ts';
import { referenceOf } from '../../lib/cluster/objects/discovery.ts';
import type { StoredObject } from '../../lib/cluster/objects/storedObject.ts';
import { clusterVersionReference } from '../../lib/cluster/version/clusterVersion.ts';
import type { KubernetesObject } from '../../lib/config/manifest.ts';
import { signatureManifests } from '../../lib/config/signatures.ts';
import { awaitDone } from '../../lib/context.ts';
import { isPluginError, PluginError } from '../../lib/errors.ts';
import { fieldsOf } from '../../lib/fields.ts';
import { controlRollout } from '../../lib/update/controller/rollout.ts';
import { install } from '../../lib/update/install.ts';
import { formatNodeReport } from '../../lib/update/record/nodeReport.ts';
import {
  isAtLeast,
  mayLoad,
  phaseOf,
  reportNamespace,
  upgradeBundleKind,
  type NodePhase,
  type UpgradeBundle,
} from '../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../lib/update/record/upgradeBundleDefinition.ts';
import { makeExecutable } from '../fakes/cluster/agents.ts';
import { node, platformImage } from '../fakes/cluster/site.ts';
import { digest, makeFacts, release } from '../fakes/cluster/updatingSite.ts';
import { makeContext } from '../support/context.ts';
import { skipLoudly } from '../support/loopDevice.ts';
import { failureOf } from '../support/program/failure.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';

const { apiVersion, kind } = upgradeBundleKind;
const home = 'oc-upgrade-bundle';
const daemons = 'openshift-machine-config-operator';
const nodes = ['master-0', 'worker-0'].map((name) => ({ name, controlPlane: name === 'master-0' }));

/** The kind of the version operator’s object, for a server that is not OpenShift. */
const versionDefinition: KubernetesObject = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'clusterversions.config.openshift.io' },
  spec: {
    group: 'config.openshift.io',
    scope: 'Cluster',
    names: {
      kind: 'ClusterVersion',
      listKind: 'ClusterVersionList',
      plural: 'clusterversions',
      singular: 'clusterversion',
    },
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
      },
    ],
  },
};

/** Returns whether a cluster has nodes, or our kind. Waits until a kind that another suite deleted is gone. */
export async function isInUse(cluster: Cluster): Promise<boolean> {
  const look = async () => {
    const found = await cluster.read(referenceOf(upgradeBundleDefinition()));
    const isLeaving = found?.metadata['deletionTimestamp'] !== undefined;
    definition = found;
    return isLeaving ? new PluginError('not-ready', 'the kind is not deleted yet') : undefined;
  };
  let definition: StoredObject | undefined;
  await awaitDone(look, { timeout: 60_000, interval: 50 }, makeContext());
  return definition !== undefined || (await cluster.list('v1', 'Node')).length > 0;
}

/**
 * Tests of installing and updating with any API server, a real one or the one in this process, without kubelets and
 * operators. Created objects are removed at the end, except the namespaces. The tests skip a cluster that has nodes, or
 * our kind.
 */
export function describeUpdates(
  title: string,
  connect: () => Promise<{ cluster: Cluster; close(): Promise<void> }>,
): void {
  describe(title, function () {
    let connected: Awaited<ReturnType<typeof connect>>;
    let cluster: Cluster;
    const made: KubernetesObject[] = [];
    /** The objects of an installation in a dry run, and what it left. */
    let tried: Awaited<ReturnType<typeof install>>['objects'];
    let kept: readonly unknown[];

    const make = async (object: KubernetesObject): Promise<void> => {
      await cluster.create(object).catch((error: unknown) => {
        if (!isPluginError(error, 'conflict')) throw error;
      });
      if (object.kind !== 'Namespace') made.push(object);
    };
    const until = (holds: () => Promise<boolean>): Promise<void> => {
      const look = async () => ((await holds()) ? undefined : new PluginError('not-ready', 'it never came to that'));
      return awaitDone(look, { timeout: 60_000, interval: 50 }, makeContext());
    };
    const isServed = (wanted: string, named: string): Promise<boolean> =>
      cluster.list(wanted, named).then(
        () => true,
        (error: unknown) => {
          if (isPluginError(error, 'not-served') || isPluginError(error, 'not-found')) return false;
          throw error;
        },
      );
    const record = (name: string, spec: object): KubernetesObject => ({ apiVersion, kind, metadata: { name }, spec });
    const read = async (name: string) =>
      (await cluster.read({ apiVersion, kind, metadata: { name } })) as UpgradeBundle;

    const status = { subresource: 'status' } as const;
    const change = (name: string, patch: Record<string, unknown>, options = {}) =>
      cluster.patch({ apiVersion, kind, metadata: { name } }, patch, options);
    /** The definition of the kind for this server. */
    let definition: KubernetesObject;
    const hasRules = (): boolean => JSON.stringify(definition).includes('x-kubernetes-validations');

    before(async function () {
      connected = await connect();
      ({ cluster } = connected);
      if (await isInUse(cluster)) skipLoudly(this, 'this is somebody’s cluster');
      for (const name of [home, reportNamespace, daemons, 'openshift-config', 'openshift-config-managed'])
        await make({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
      const labels = { app: 'machine-config-daemon' };
      const containers = [{ name: 'machine-config-daemon', image: platformImage('d') }];
      await make({
        apiVersion: 'apps/v1',
        kind: 'DaemonSet',
        metadata: { name: 'machine-config-daemon', namespace: daemons },
        spec: { selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { containers } } },
      });
      const folder = await makeFolder();
      const executables = [await makeExecutable(join(folder, 'executable'), 1000)];
      const options = {
        executables,
        admission: 'warn',
        overwrite: false,
        dryRun: 'server',
        startup: undefined,
      } as const;
      ({ objects: tried } = await install(cluster, options, makeContext()));
      await removeFolder(folder);
      kept = [
        await cluster.findKind(apiVersion, kind),
        await cluster.list('apps/v1', 'DaemonSet', { namespace: home }),
      ];
      [definition = definition] = tried.flatMap(({ object }) =>
        object.kind === 'CustomResourceDefinition' ? [object] : [],
      );
      await cluster.apply(definition);
      made.push(definition);
      await until(() => isServed(apiVersion, kind));
    });
    after(async () => {
      for (const { apiVersion: version, kind: of, metadata } of made.reverse())
        await cluster.delete({
          apiVersion: version,
          kind: of,
          metadata: { name: metadata.name, namespace: metadata.namespace },
        });
      await connected.close();
    });

    it('checks an installation in a dry run, and keeps nothing of it', () => {
      expect(tried.map(({ object }) => object.kind)).to.include.members([
        'CustomResourceDefinition',
        'ClusterRole',
        'DaemonSet',
        'NetworkPolicy',
        'Lease',
      ]);
      expect(kept).to.deep.equal([undefined, []]);
    });

    it('accepts the kind UpgradeBundle, and refuses fields that its schema lacks', async () => {
      const nonsense = [
        { bundle: { digest: 'sha256:1' } },
        { bundle: { file: 'relative' } },
        { bundle: {}, backup: 'elsewhere' },
        { bundle: {}, hold: 'perhaps' },
      ];
      for (const spec of nonsense) await failureOf(cluster.create(record('nonsense', spec)), 'invalid-object');
      await make(record('sound', { bundle: {} }));
      expect((await read('sound')).spec).to.deep.equal({ bundle: {}, hold: false });
      await failureOf(change('sound', { status: { phase: 'Sometime' } }, status), 'invalid-object');
    });

    it('refuses objects that the rules of the kind do not allow, if the server evaluates them', async () => {
      const nonsense = cluster.create(record('nonsense', { bundle: { file: '/dev/../etc/passwd' } }));
      if (!hasRules()) {
        await cluster.delete(await nonsense);
        return;
      }
      await failureOf(nonsense, 'invalid-object');
      await make(record('ruled', { bundle: {} }));
      await failureOf(change('ruled', { status: { phase: 'Verified' } }, status), 'invalid-object');
      await change('ruled', { spec: { bundle: { digest } } });
      const other = `sha256:${'e'.repeat(64)}`;
      await failureOf(change('ruled', { spec: { bundle: { digest: other } } }), 'invalid-object');
      await change('ruled', { status: { phase: 'Upgrading' } }, status);
      await failureOf(change('ruled', { spec: { hold: true } }), 'invalid-object');
      await change('ruled', { status: { phase: 'Completed' } }, status);
      await failureOf(change('ruled', { status: { phase: 'Loading' } }, status), 'invalid-object');
    });

    it('keeps the fields of several writers of one status apart', async () => {
      const entry = { phase: 'Waiting', imagesLoaded: 0, imagesTotal: 3, bytes: 0 };
      const say = (manager: string, name: string, more: object, force = false): Promise<StoredObject> =>
        cluster.apply(
          { apiVersion, kind, metadata: { name: 'told' }, status: { nodes: [{ name, ...entry, ...more }] } },
          { subresource: 'status', manager, force },
        );
      await make(record('told', { bundle: {} }));
      await say('agent-a', 'a', {});
      await say('agent-b', 'b', { bytes: 5 });
      await say('agent-a', 'a', { imagesLoaded: 1 });
      expect((await read('told')).status?.nodes).to.have.deep.members([
        { name: 'a', ...entry, imagesLoaded: 1 },
        { name: 'b', ...entry, bytes: 5 },
      ]);
      await failureOf(say('agent-a', 'b', { bytes: 6 }), 'conflict');
      if (hasRules()) await failureOf(say('agent-a', 'a', { imagesLoaded: 4 }), 'invalid-object');
      // An ended update is not running.
      await change('told', { spec: { bundle: { digest } } });
      await change('told', { status: { phase: 'Completed' } }, status);
      expect((await read('told')).status?.nodes).to.have.length(2);
    });

    it('lets one lead at a time, of several that want to', async () => {
      const name = 'contended';
      await make({
        apiVersion: 'coordination.k8s.io/v1',
        kind: 'Lease',
        metadata: { name, namespace: home },
        spec: {},
      });
      const led: string[] = [];
      const contend = (identity: string) => {
        const context = makeContext();
        const options = { name, namespace: home, identity, duration: 2000, retryPeriod: 50 };
        const done = leadWithLease(cluster, options, context, async (signal) => {
          led.push(identity);
          await once(signal, 'abort');
        }).catch(() => undefined);
        return { context, done };
      };
      const contenders = ['a', 'b', 'c'].map(contend);
      await until(() => Promise.resolve(led.length > 0));
      for (let count = 1; count <= 3; count += 1) {
        await sleep(300);
        expect(led).to.have.length(count);
        const leader = contenders[['a', 'b', 'c'].indexOf(led.at(-1) ?? '')];
        leader?.context.interrupt();
        await leader?.done;
        if (count < 3) await until(() => Promise.resolve(led.length > count));
      }
      expect(led.toSorted()).to.deep.equal(['a', 'b', 'c']);
    });

    /**
     * Does the work of agents and operators: nodes load and pin if they may, and the cluster updates to the requested
     * release.
     */
    const act = async (name: string): Promise<void> => {
      const bundle = await read(name);
      for (const each of nodes) {
        const known = bundle.status?.nodes?.find((entry) => entry.name === each.name)?.phase;
        const isLoaded = known === 'Loaded' || known === 'Pinned' || mayLoad(bundle, each);
        const phase: NodePhase = !isLoaded ? 'Waiting' : isAtLeast(bundle, 'Loaded') ? 'Pinned' : 'Loaded';
        const counts = { imagesLoaded: isLoaded ? 3 : 0, imagesTotal: 3, bytes: 2 ** 30, free: 90 * 2 ** 30 };
        const report = formatNodeReport({
          bundle: bundle.metadata.uid ?? '',
          progress: { name: each.name, phase, ...counts },
        });
        await cluster.apply(report, { manager: 'agent', force: true });
      }
      const version = await cluster.read(clusterVersionReference);
      const wanted = fieldsOf(fieldsOf(version?.['spec'])['desiredUpdate']);
      if (wanted['image'] !== release) return;
      const history = [{ state: 'Completed', version: wanted['version'], image: wanted['image'] }];
      await cluster.patch(clusterVersionReference, { status: { desired: wanted, history } }, status);
    };

    it('carries an update from the first phase to the last, with the reports of nodes that are not there', async function () {
      if (await cluster.findKind('machineconfiguration.openshift.io/v1', 'PinnedImageSet'))
        skipLoudly(this, 'the machine config operator would have to pin images');
      await make(versionDefinition);
      await until(() => isServed(clusterVersionReference.apiVersion, 'ClusterVersion'));
      const before = { version: '4.19.3', image: `quay.io/openshift-release-dev/ocp-release@sha256:${'1'.repeat(64)}` };
      await make({ ...clusterVersionReference, spec: { channel: 'stable-4.19' } });
      const first = { desired: before, history: [{ state: 'Completed', ...before }], availableUpdates: [] };
      await cluster.patch(clusterVersionReference, { status: first }, status);
      for (const { name, controlPlane } of nodes) {
        const object = node(name, controlPlane ? 'master' : 'worker');
        await make(object);
        await cluster.patch(object, { status: object['status'] }, status);
        made.push(
          formatNodeReport({
            bundle: '',
            progress: { name, phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 },
          }),
        );
      }
      await make({
        apiVersion: 'coordination.k8s.io/v1',
        kind: 'Lease',
        metadata: { name: 'controller', namespace: home },
        spec: {},
      });
      const facts = makeFacts();
      made.push(...signatureManifests({ release: facts.metadata, ...facts }).map(({ object }) => object));
      await make(record('walked', { bundle: { digest }, backup: 'off' }));
      const context = makeContext();
      const options = {
        identity: 'master-0',
        namespace: home,
        interval: 150,
        lease: { duration: 2000, retryPeriod: 100 },
      };
      const running = controlRollout(cluster, { ...options, readBundle: () => Promise.resolve(facts) }, context);
      try {
        await until(async () => {
          await act('walked');
          return phaseOf(await read('walked')) === 'Completed';
        });
      } finally {
        context.interrupt();
        await running;
      }
      const { desiredUpdate } = fieldsOf((await cluster.read(clusterVersionReference))?.['spec']);
      expect(desiredUpdate).to.deep.equal({ image: release, version: '4.19.4', force: false });
      const uid = (await read('walked')).metadata.uid ?? '';
      const events = await cluster.list('v1', 'Event', {
        namespace: 'default',
        fieldSelector: `involvedObject.uid=${uid}`,
      });
      made.push(...events);
      expect(events.map(({ reason }) => reason)).to.have.members([
        'Verified',
        'Loading',
        'Loaded',
        'Pinned',
        'Upgrading',
        'Completed',
      ]);
      expect((await read('walked')).status).to.include({ nodesReady: '2/2', progress: '100%', version: '4.19.4' });
    });
  });
}
