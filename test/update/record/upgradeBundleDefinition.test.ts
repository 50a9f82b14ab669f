import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { parse } from 'yaml';
import { connectCluster, type Cluster } from '../../../lib/cluster/client.ts';
import { type StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import { formatManifest, type KubernetesObject } from '../../../lib/config/manifest.ts';
import { upgradeBundleKind } from '../../../lib/update/record/upgradeBundle.ts';
import { fitsSpec, upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { startApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { startCluster } from '../../support/cluster.ts';
import { makeBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { expectGolden } from '../../support/program/golden.ts';

const digest = `sha256:${'a'.repeat(64)}`;
const { apiVersion } = upgradeBundleKind;
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

describe('fitsSpec', () => {
  it('tells a text that the API server accepts as a field of the spec, or as an item of it', () => {
    expect(fitsSpec('bundle.file', '/dev/sdb')).to.equal(true);
    for (const path of ['/dev/', 'dev/sdb', '/dev//sdb', `/${'a'.repeat(4096)}`])
      expect(fitsSpec('bundle.file', path), path).to.equal(false);
    expect(fitsSpec('acceptRisks', 'SomeRisk')).to.equal(true);
    expect(fitsSpec('acceptRisks', 'a\nb')).to.equal(false);
    for (const field of ['none', 'bundle.none', 'bundle.file.none'])
      expect(fitsSpec(field, 'a'), field).to.equal(false);
  });
});
