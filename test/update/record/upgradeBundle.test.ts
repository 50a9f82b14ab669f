import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { parse } from 'yaml';
import { connectCluster, type Cluster } from '../../../lib/cluster/client.ts';
import { type StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import { formatManifest, type KubernetesObject } from '../../../lib/config/manifest.ts';
import {
  activeBundle,
  mayLoad,
  summarizeNodes,
  upgradeBundleApi,
  type Phase,
  type UpgradeBundle,
} from '../../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { startApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { startCluster } from '../../support/cluster.ts';
import { makeBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { expectGolden } from '../../support/program/golden.ts';

const digest = `sha256:${'a'.repeat(64)}`;
const apiVersion = `${upgradeBundleApi.group}/${upgradeBundleApi.version}`;
const node = { name: 'a', phase: 'Loading', imagesLoaded: 1, imagesTotal: 2, bytes: 0 };

const bundleOf = (name: string, spec: object = { bundle: { digest } }): KubernetesObject => ({
  apiVersion,
  kind: 'UpgradeBundle',
  metadata: { name },
  spec,
});

/** Tests of UpgradeBundle objects with any API server, with the CEL rules if it supports them. */
function describeDefinition(title: string, connect: () => Promise<{ cluster: Cluster; close(): Promise<void> }>): void {
  describe(title, () => {
    let connected: Awaited<ReturnType<typeof connect>>;
    let cluster: Cluster;
    let knowsRules: boolean;

    before(async () => {
      connected = await connect();
      ({ cluster } = connected);
      knowsRules = await cluster.apply(upgradeBundleDefinition(), { force: true }).then(
        () => true,
        () => false,
      );
      if (!knowsRules) await cluster.apply(upgradeBundleDefinition({ rules: false }), { force: true });
      for (let attempt = 0; attempt < 100 && !(await cluster.findKind(apiVersion, 'UpgradeBundle')); attempt += 1) {
        await sleep(100);
      }
    });
    after(async () => {
      await cluster.delete(upgradeBundleDefinition());
      await connected.close();
    });
    afterEach(async () => {
      for (const each of await cluster.list(apiVersion, 'UpgradeBundle')) await cluster.delete(each);
    });

    const refused = async (object: KubernetesObject | StoredObject, words: string): Promise<void> => {
      const written = !('resourceVersion' in object.metadata) ? cluster.create(object) : cluster.update(object);
      expect((await failureOf(written, 'invalid-object')).message).to.contain(words);
    };

    it('uses the files beside a bundle, and adds missing fields', async () => {
      const made = await makeBundle();
      const object = parse(await readFile(`${made.path}.yaml`, 'utf8')) as KubernetesObject;
      await made.remove();
      const stored = await cluster.create(object);
      const { digest: own, metadata } = made.result;
      const stated = { digest: own, version: metadata.version, releaseDigest: made.release.digest };
      expect(stored['spec']).to.deep.equal({ bundle: stated, hold: false });
      const bare = await cluster.create(bundleOf('bare', {}));
      expect(bare['spec']).to.deep.equal({ bundle: {}, hold: false });
    });

    it('refuses nonsense', async () => {
      await refused(bundleOf('a', { bundle: { digest: 'sha256:12' } }), 'spec.bundle.digest');
      for (const file of ['dev/sdb', '/dev//sdb', '/dev/', '', '/dev/sdb\n', '/dev/s\0db']) {
        await refused(bundleOf('a', { bundle: { file } }), 'spec.bundle.file');
      }
      await refused(bundleOf('a', { bundle: { digest }, hold: 'yes' }), 'spec.hold');
      await refused(bundleOf('a', { bundle: { digest, version: 'latest' } }), 'spec.bundle.version');
      await refused(bundleOf('a', { bundle: { digest, releaseDigest: 'sha256:1' } }), 'spec.bundle.releaseDigest');
      await refused(bundleOf('a', { bundle: { digest }, acceptRisks: ['a\nb'] }), 'spec.acceptRisks');
      for (const name of ['path', 'bundle:x', 'everything', 'drains:', 'drains:a b'])
        await refused(bundleOf('a', { bundle: { digest }, ignore: [name] }), 'spec.ignore');
      const stored = await cluster.create(bundleOf('a', { bundle: { digest, file: '/dev/sdb' }, stray: 1 }));
      expect(stored['spec']).not.to.have.property('stray');
    });

    it('refuses contradictions and forbidden changes by rules', async function () {
      if (!knowsRules) this.skip();
      await refused(bundleOf('a', { bundle: { file: '/dev/../etc/passwd' } }), 'must be a path without');
      const stored = await cluster.create(bundleOf('a'));
      const other = { ...stored, spec: { bundle: { digest: `sha256:${'b'.repeat(64)}` } } };
      await refused(other, 'digest cannot be changed');
      await refused({ ...stored, spec: {} }, 'digest cannot be changed');
      const later = await cluster.create(bundleOf('b', {}));
      await cluster.update({ ...later, spec: { bundle: { digest } } });
    });

    it('keeps the entries of nodes side by side', async () => {
      await cluster.create(bundleOf('a'));
      const report = async (manager: string, status: object): Promise<unknown> => {
        const options = { subresource: 'status', manager, force: true } as const;
        const { status: stored } = await cluster.apply({ ...bundleOf('a'), spec: undefined, status }, options);
        return stored;
      };
      await report('controller', { phase: 'Loading', nodesReady: '0/2' });
      await report('agent-a', { nodes: [node] });
      await report('agent-b', { nodes: [{ ...node, name: 'b' }] });
      const again = await report('agent-a', { nodes: [{ ...node, imagesLoaded: 2 }] });
      const nodes = [
        { ...node, imagesLoaded: 2 },
        { ...node, name: 'b' },
      ];
      expect(again).to.deep.equal({ phase: 'Loading', nodesReady: '0/2', nodes });
      expect(await report('controller', { phase: 'Loaded' })).to.deep.equal({ phase: 'Loaded', nodes });
      expect(await report('agent-a', { nodes: [] })).to.deep.equal({ phase: 'Loaded', nodes: [nodes[1]] });
    });

    it('accepts a status of an existing object only', async () => {
      const options = { subresource: 'status' } as const;
      await failureOf(cluster.apply({ ...bundleOf('none'), status: { phase: 'Detected' } }, options), 'not-found');
      const stored = await cluster.apply({ ...bundleOf('a'), status: { phase: 'Detected' } });
      expect(stored).not.to.have.property('status');
      const { spec, status } = await cluster.update({ ...stored, spec: {}, status: { phase: 'Verified' } }, options);
      expect({ spec, status }).to.deep.equal({ spec: stored['spec'], status: { phase: 'Verified' } });
    });
  });
}

describeDefinition('UpgradeBundle, with the API server in this process', () => startCluster({ openshift: '4.19.3' }));

const kubeconfig = process.env['TEST_KUBECONFIG'];
if (kubeconfig) {
  describeDefinition('UpgradeBundle, with the cluster of TEST_KUBECONFIG', async () => {
    const cluster = await connectCluster({ kubeconfig, environment: process.env }, makeContext());
    return {
      cluster,
      close: async () => {
        cluster[Symbol.dispose]();
      },
    };
  });
}

describe('the status of an UpgradeBundle', () => {
  /** Creates an object with one status, then changes it. Returns the message of the server. */
  const change = async (
    before: object,
    after: object | null,
    spec: object = {},
    specAfter: object = spec,
  ): Promise<string> => {
    await using server = await startApiServer();
    const definition = upgradeBundleDefinition();
    server.put({ ...definition });
    const base = { ...bundleOf('x', { bundle: { digest }, ...spec }) };
    server.put({ ...base, status: before });
    const stored = server.find(apiVersion, 'UpgradeBundle', 'x');
    const path = `/apis/${apiVersion}/upgradebundles/x`;
    const put = (suffix: string, fields: object) =>
      fetch(`${server.url}${path}${suffix}`, {
        method: 'PUT',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ ...stored, ...fields }),
      });
    const answer =
      spec === specAfter
        ? await put('/status', { status: after })
        : await put('', { spec: { bundle: { digest }, ...specAfter } });
    const { message = 'done' } = (await answer.json()) as { message?: string };
    return message;
  };

  it('may move forward, and not back from its end', async () => {
    expect(await change({ phase: 'Detected' }, { phase: 'Verified' })).to.equal('done');
    expect(await change({ phase: 'Completed' }, { phase: 'Loading' })).to.contain('a completed update stays completed');
    expect(await change({ phase: 'Completed' }, null)).to.contain('must be of type object');
    expect(await change({}, { phase: 'Extracted' })).to.contain('Unsupported value: "Extracted"');
  });

  it('goes past Detected only with a digest that is allowed', async () => {
    const without = { bundle: {} };
    expect(await change({}, { phase: 'Detected' }, without)).to.equal('done');
    expect(await change({}, { phase: 'Verified' }, without)).to.contain('does not allow cannot go past Detected');
  });

  it('has each node once, with consistent counts', async () => {
    expect(await change({}, { nodes: [node, { ...node, name: 'b' }] })).to.equal('done');
    expect(await change({}, { nodes: [node, node] })).to.contain('Duplicate value');
    expect(await change({}, { nodes: [{ ...node, imagesLoaded: 3 }] })).to.contain('imagesLoaded exceeds imagesTotal');
    expect(await change({}, { nodes: [{ ...node, bytes: -1 }] })).to.contain('greater than or equal to 0');
    expect(await change({}, { progress: '101%' })).to.contain('progress');
    expect(await change({}, { release: 'quay.io/x:latest' })).to.contain('release');
  });

  it('lists the fields that may still be changed', async () => {
    expect(await change({ phase: 'Upgrading' }, {}, { hold: false }, { hold: true })).to.contain(
      'can no longer be put on hold',
    );
    expect(await change({ phase: 'Pinned' }, {}, { hold: false }, { hold: true })).to.equal('done');
    expect(await change({ phase: 'Held' }, {}, { hold: true }, { hold: false })).to.equal('done');
  });
});

describe('upgradeBundleDefinition', () => {
  it('is the recorded one', async () => {
    expect(JSON.stringify(upgradeBundleDefinition({ rules: false }))).not.to.contain('oldSelf');
    await expectGolden('cluster/upgradebundles.yaml', formatManifest(upgradeBundleDefinition()));
  });
});

describe('activeBundle', () => {
  const at = (name: string, second: number, more: object = {}): UpgradeBundle => ({
    ...(bundleOf(name) as UpgradeBundle),
    metadata: { name, creationTimestamp: `2026-01-01T00:00:0${second}Z`, ...more },
  });
  const withPhase = (bundle: UpgradeBundle, phase: Phase): UpgradeBundle => ({ ...bundle, status: { phase } });

  it('is the oldest that is not at its end', () => {
    expect(activeBundle([])).to.equal(undefined);
    const ended = [withPhase(at('a', 1), 'Completed'), withPhase(at('b', 2), 'Failed')];
    const leaving = at('c', 3, { deletionTimestamp: '2026-01-01T00:00:09Z' });
    expect(activeBundle([...ended, leaving])).to.equal(undefined);
    const [old, twin, young] = [withPhase(at('e', 4), 'Loading'), at('d', 4), at('f', 5)];
    expect(activeBundle([young, old, twin, ...ended, leaving])).to.equal(twin);
    expect(activeBundle([young, old])).to.equal(old);
  });
});

describe('summarizeNodes', () => {
  const progress = (phase: 'Loading' | 'Loaded' | 'Pinned', imagesLoaded: number) => ({
    name: 'a',
    phase,
    imagesLoaded,
    imagesTotal: 200,
    bytes: 0,
  });

  it('counts the nodes that have everything, and rounds down', () => {
    expect(summarizeNodes([])).to.deep.equal({ nodesReady: '0/0', progress: '0%' });
    const uncounted = { ...progress('Loading', 0), imagesTotal: 0 };
    expect(summarizeNodes([uncounted]).progress).to.equal('0%');
    expect(summarizeNodes([progress('Pinned', 200), uncounted]).progress).to.equal('50%');
    expect(summarizeNodes([progress('Pinned', 200), progress('Loading', 199)])).to.deep.equal({
      nodesReady: '1/2',
      progress: '99%',
    });
    expect(summarizeNodes([progress('Pinned', 200), progress('Loaded', 200)])).to.deep.equal({
      nodesReady: '2/2',
      progress: '100%',
    });
  });
});

describe('mayLoad', () => {
  const during = (status: UpgradeBundle['status']): string => {
    const spec = { bundle: { digest }, hold: false } as const;
    const bundle = { apiVersion, kind: 'UpgradeBundle', metadata: { name: 'a' }, spec, ...(status && { status }) };
    const nodes = [
      { name: 'm0', controlPlane: true },
      { name: 'm1', controlPlane: true },
      { name: 'w0', controlPlane: false },
    ];
    return nodes
      .filter((each) => mayLoad(bundle, each))
      .map(({ name }) => name)
      .join(' ');
  };

  it('lets control plane nodes load one at a time, others immediately, and no node too early', () => {
    expect(during(undefined)).to.equal('');
    expect(during({ phase: 'Verified', turn: 'm0' })).to.equal('');
    expect(during({ phase: 'Loading' })).to.equal('w0');
    expect(during({ phase: 'Loading', turn: 'm1' })).to.equal('m1 w0');
    expect(during({ phase: 'Failed', turn: 'm1' })).to.equal('');
  });

  it('lets late nodes load, and nodes reload lost images after the update', () => {
    expect(during({ phase: 'Held', turn: 'm0' })).to.equal('m0 w0');
    expect(during({ phase: 'Completed' })).to.equal('m0 m1 w0');
  });
});
