import { expect } from 'chai';
import { applyManifests, type ApplyOptions } from '../../../lib/cluster/apply/apply.ts';
import { formatManifest, type ConfigManifest, type KubernetesObject } from '../../../lib/config/manifest.ts';
import { signatureConfigMap, signatureLabel } from '../../../lib/config/signatures.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { updateServiceKind } from '../../fakes/kubernetes/apiKinds.ts';
import { startApiServer, type ApiServerOptions, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { connectTo, type ConnectedCluster } from '../../support/cluster.ts';
import { makeKubeconfigFolder } from '../../support/kubeconfig.ts';
import { requirePeer, run, type RunResult } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

const manifestOf = (object: KubernetesObject): ConfigManifest => ({
  path: `config/${object.metadata.name}.yaml`,
  object,
});
const configMap = (name: string, data: Record<string, string> = {}): KubernetesObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace: 'openshift-config-managed' },
  data,
});
const signature = signatureConfigMap(digestOf('release'), [Buffer.from('signature')], {
  version: '4.12.4',
  signer: 'F',
});
const mirrorSet = (name: string): ConfigManifest =>
  manifestOf({
    apiVersion: 'config.openshift.io/v1',
    kind: 'ImageDigestMirrorSet',
    metadata: { name },
    spec: { imageDigestMirrors: [{ source: 'quay.io/a', mirrors: ['mirror.test/a'] }] },
  });
const updateService: ConfigManifest = manifestOf({
  apiVersion: 'updateservice.operator.openshift.io/v1',
  kind: 'UpdateService',
  metadata: { name: 'service', namespace: 'openshift-config' },
  spec: { replicas: 1, releases: 'mirror.test/release', graphDataImage: 'mirror.test/graph' },
});

describe('applyManifests', () => {
  let server: TestApiServer;
  let connected: ConnectedCluster;

  const start = async (options: ApiServerOptions = {}, requestTimeout?: number): Promise<void> => {
    server = await startApiServer({ openshift: '4.14.3', ...options });
    const user = options.tokens ? { token: [...options.tokens.keys()][0] } : {};
    connected = await connectTo(server, { user }, requestTimeout);
  };
  const apply = async (manifests: ConfigManifest[], options: Partial<ApplyOptions> = {}) =>
    applyManifests(connected.cluster, manifests, { overwrite: false, ...options }, connected.context);
  const writes = () =>
    server.requests.filter(({ method }) => method !== 'GET').map(({ method, path }) => `${method} ${path}`);
  const stored = (name: string) => server.find('v1', 'ConfigMap', name, 'openshift-config-managed');

  afterEach(async () => {
    await connected.close();
    await server.stop();
  });

  it('applies a whole folder: signature, mirror set, update service', async () => {
    await start({ kinds: [updateServiceKind] });
    const manifests = [signature, mirrorSet('release'), updateService];
    const outcomes = await apply(manifests);
    expect(outcomes).to.deep.equal(manifests.map((manifest) => ({ manifest, outcome: 'created' })));
    const again = await apply(manifests);
    expect(again.map(({ outcome }) => outcome)).to.deep.equal(['unchanged', 'unchanged', 'unchanged']);
  });

  it('leaves unchanged objects and the fields of other managers alone', async function () {
    requirePeer(this, 'kubectl');
    await start({ kinds: [updateServiceKind] });
    await using folder = await makeKubeconfigFolder();
    const kubeconfig = await folder.write({ cluster: { server: server.url } });
    const replaced = manifestOf(configMap('replaced', { html: '<a & b>' }));
    const local = manifestOf({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'local' },
      data: { b: '1', a: '2' },
    });
    const manifests = [signature, mirrorSet('release'), updateService, replaced, local];
    server.put(configMap('replaced', { html: 'other' }));
    await apply(manifests, { overwrite: true });
    const texts = manifests.map(({ object }) => formatManifest(object));
    const files = await Promise.all(texts.map((text, index) => folder.file(`${index}.yaml`, text)));
    const kubectl = (): Promise<RunResult> =>
      run('kubectl', ['apply', '--validate=false', ...files.map((file) => `-f=${file}`)], {
        env: { ...process.env, KUBECONFIG: kubeconfig, HOME: folder.folder },
      });
    const { stdout, stderr } = await kubectl();
    expect(stderr).to.equal('');
    expect(stdout.trimEnd().split('\n')).to.have.length(5);
    for (const line of stdout.trimEnd().split('\n')) expect(line).to.match(/ unchanged$/);

    const more = mirrorSet('release');
    const spec = { imageDigestMirrors: [{ source: 'quay.io/b', mirrors: ['mirror.test/b'] }] };
    const before = server.find('config.openshift.io/v1', 'ImageDigestMirrorSet', 'release')?.metadata['annotations'];
    const [outcome] = await apply([{ ...more, object: { ...more.object, spec } }]);
    expect(outcome?.outcome).to.equal('configured');
    const after = server.find('config.openshift.io/v1', 'ImageDigestMirrorSet', 'release');
    expect(after?.metadata['annotations']).to.deep.equal(before);
  });

  for (const [apiVersion, kind, field] of [
    ['config.openshift.io/v1', 'ImageDigestMirrorSet', 'imageDigestMirrors'],
    ['config.openshift.io/v1', 'ImageTagMirrorSet', 'imageTagMirrors'],
    ['operator.openshift.io/v1alpha1', 'ImageContentSourcePolicy', 'repositoryDigestMirrors'],
  ] as const) {
    it(`adds to an ${kind} with and without overwrite, and names the mirrors that stay`, async () => {
      for (const overwrite of [false, true]) {
        await start();
        const set = (entries: object[]) => ({
          apiVersion,
          kind,
          metadata: { name: 'site' },
          spec: { [field]: entries },
        });
        const theirs = [
          { source: 'quay.io/a', mirrors: ['registry.test/a'] },
          { source: 'quay.io/z', mirrors: ['registry.test/z'] },
        ];
        server.put(set(theirs));
        const manifest = manifestOf(set([{ source: 'quay.io/a', mirrors: ['mirror.test/a'] }]));
        const kept = ['quay.io/a → registry.test/a', 'quay.io/z → registry.test/z'];
        for (const outcome of ['configured', 'unchanged'] as const) {
          const [applied] = await apply([manifest], { overwrite });
          expect(applied).to.deep.include({ outcome, kept });
        }
        expect(server.find(apiVersion, kind, 'site')?.['spec']).to.deep.equal({
          [field]: [{ source: 'quay.io/a', mirrors: ['registry.test/a', 'mirror.test/a'] }, theirs[1]],
        });
        const [same] = await apply([manifestOf(set(theirs))], { overwrite });
        expect(same?.kept).to.deep.equal(['quay.io/a → mirror.test/a']);
        if (!overwrite) await Promise.all([connected.close(), server.stop()]);
      }
    });
  }

  it('applies namespaces and definitions first, in any order of the files', async () => {
    await start();
    const definition = manifestOf({
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: 'updateservices.updateservice.operator.openshift.io' },
      spec: {
        group: 'updateservice.operator.openshift.io',
        scope: 'Namespaced',
        names: { kind: 'UpdateService', plural: 'updateservices' },
        versions: [{ name: 'v1', served: true, storage: true }],
      },
    });
    const namespace = manifestOf({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'new' } });
    const service = { ...updateService.object, metadata: { name: 'service', namespace: 'new' } };
    const inside = manifestOf({ ...configMap('inside'), metadata: { name: 'inside', namespace: 'new' } });
    const manifests = [inside, manifestOf(service), definition, namespace];
    for (const dryRun of ['client', 'server'] as const) {
      const outcomes = await apply([inside, namespace], { dryRun });
      expect(
        outcomes.map(({ outcome }) => outcome),
        dryRun,
      ).to.deep.equal(['created', 'created']);
    }
    const outcomes = await apply(manifests);
    expect(outcomes.map(({ manifest, outcome }) => [manifest.object.kind, outcome])).to.deep.equal(
      manifests.map(({ object }) => [object.kind, 'created']),
    );
  });

  it('writes nothing in a dry run of the client, and keeps nothing in one of the server', async () => {
    await start();
    server.put(configMap('differs', { a: '1' }));
    const manifests = [signature, manifestOf(configMap('differs', { a: '2' }))];
    for (const dryRun of ['client', 'server'] as const) {
      const before = server.objects.revision;
      const outcomes = await apply(manifests, { overwrite: true, dryRun });
      expect(outcomes.map(({ outcome }) => outcome)).to.deep.equal(['created', 'configured']);
      expect(server.objects.revision).to.equal(before);
      if (dryRun === 'client') expect(writes()).to.deep.equal([]);
    }
    expect(writes()).to.have.length(2);
  });

  it('never touches signatures-managed', async () => {
    await start();
    const managed = {
      ...configMap('signatures-managed'),
      metadata: { ...configMap('signatures-managed').metadata, labels: { [signatureLabel]: '' } },
    };
    server.put({ ...managed, data: { theirs: '1' } });
    const [outcome] = await apply([manifestOf(managed)], { overwrite: true });
    expect(outcome?.outcome).to.equal('skipped');
    expect(outcome?.warning).to.contain('signatures-managed belongs to the version operator');
    expect(writes()).to.deep.equal([]);
  });

  it('compares again if another client was faster, and never writes without comparing', async () => {
    await start();
    server.put(configMap('raced', { a: '1' }));
    /** Has another client write these values, one before each of our updates. */
    const race = (...values: string[]) => {
      server.clearFaults();
      server.fault(({ method, path }) => {
        const a = method === 'PUT' && path.endsWith('/raced') ? values.shift() : undefined;
        if (a !== undefined) server.put(configMap('raced', { a }));
        return a !== undefined;
      }, {});
    };
    race('9');
    const [configured] = await apply([manifestOf(configMap('raced', { a: '2' }))], { overwrite: true });
    expect(configured).to.deep.include({ outcome: 'configured', differences: ['data.a: "9" → "2"'] });
    expect(stored('raced')).to.deep.include({ data: { a: '2' } });
    race('3');
    const [unchanged] = await apply([manifestOf(configMap('raced', { a: '3' }))], { overwrite: true });
    expect(unchanged?.outcome).to.equal('unchanged');
    race('4', '5', '6');
    const [lost] = await apply([manifestOf(configMap('raced', { a: '0' }))], { overwrite: true });
    expect(lost?.outcome).to.equal('failed');
    expect(lost?.error).to.include({ code: 'conflict' });
    expect(lost?.error?.message).to.contain('configmap/raced is being changed by another client');
  });

  it('compares with an object that appears between reading and creating', async () => {
    await start();
    server.fault(({ method }) => {
      if (method !== 'POST' || stored('late')) return false;
      server.put(configMap('late', { a: '1' }));
      return true;
    }, {});
    const [outcome] = await apply([manifestOf(configMap('late', { a: '2' }))]);
    expect(outcome).to.deep.include({ outcome: 'conflict', differences: ['data.a: "1" → "2"'] });
  });

  it('finds out whether a write without a response was carried out', async () => {
    await start();
    server.fault(/^POST /, { cut: { after: 0, how: 'reset' } }, { times: 1 });
    const [outcome] = await apply([signature]);
    expect(outcome?.outcome).to.equal('created');
    expect(writes()).to.have.length(1);
    server.fault(/^POST /, { noAnswer: 'reset' }, { times: 1 });
    const [second] = await apply([manifestOf(configMap('second'))]);
    expect(second?.outcome).to.equal('created');
    expect(stored('second')).to.not.equal(undefined);
  });

  it('says which right is missing, and applies the rest', async () => {
    const allow = ({ verb, resource }: { verb: string; resource: string }) =>
      verb !== 'create' || resource !== 'configmaps';
    await start({ tokens: new Map([['t', 'bob']]), allow });
    const outcomes = await apply([signature, mirrorSet('release')]);
    expect(outcomes.map(({ outcome }) => outcome)).to.deep.equal(['failed', 'created']);
    const { code, message, hint } = outcomes[0]?.error ?? {};
    expect(code).to.equal('denied');
    expect(message)
      .to.contain('User "bob" cannot create resource "configmaps"')
      .and.contain('openshift-config-managed');
    expect(hint).to.contain('oc auth can-i create configmaps -n openshift-config-managed');
  });

  it('throws before anything when the cluster does not know us or cannot be reached', async () => {
    await start({ tokens: new Map([['t', 'bob']]) });
    server.fault(/^GET /, { answer: { status: 401, body: '{"kind":"Status","reason":"Unauthorized"}' } }, { times: 1 });
    await failureOf(apply([signature]), 'unauthorized');
    await server.stop();
    const failure = await failureOf(apply([signature]), 'unreachable');
    expect(failure.message).to.contain('the cluster test:').and.contain('connection refused');
    expect(failure.hint).to.contain('proxy-url');
    await server.start();
  });

  it('stops between two objects when it is interrupted', async () => {
    await start();
    server.fault(({ method }) => {
      if (method === 'POST') connected.context.interrupt();
      return method === 'POST';
    }, {});
    await failureOf(apply([signature, manifestOf(configMap('never'))]), 'interrupted');
    expect(stored('never')).to.equal(undefined);
  });

  describe('with a cluster of another age', () => {
    it('warns of signatures that no operator reads, and applies them', async () => {
      await start({ openshift: '4.3.5' });
      const [outcome] = await apply([signature]);
      expect(outcome?.outcome).to.equal('created');
      expect(outcome?.warning).to.match(
        /^configmap\/sha256-\w+: the version operator of OpenShift 4\.3\.5 may not read/,
      );
      expect(stored(signature.object.metadata.name)).to.not.equal(undefined);
    });

    it('fails for mirror sets and an update service that it does not serve, and applies the rest', async () => {
      await start({ openshift: '4.12.4' });
      const [set, service, other] = await apply([mirrorSet('release'), updateService, signature]);
      for (const outcome of [set, service]) {
        expect(outcome?.outcome).to.equal('failed');
        expect(outcome?.error).to.include({ code: 'not-served' });
      }
      expect(set?.error?.message).to.equal(
        'test (OpenShift 4.12.4) does not serve ImageDigestMirrorSet (config.openshift.io/v1)',
      );
      expect(service?.error?.hint).to.contain('Install the OpenShift Update Service operator');
      expect(other?.outcome).to.equal('created');
    });

    it('warns if the cluster is not OpenShift', async () => {
      await start({ openshift: undefined });
      server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'openshift-config-managed' } });
      const [outcome] = await apply([signature]);
      expect(outcome).to.include({ outcome: 'created' });
      expect(outcome?.warning).to.contain('not an OpenShift cluster');
    });

    it('does not need the right to read the version', async () => {
      await start({
        openshift: '4.3.5',
        tokens: new Map([['t', 'bob']]),
        allow: ({ resource }) => resource !== 'clusterversions',
      });
      const [outcome] = await apply([signature]);
      expect(outcome).to.deep.equal({ manifest: signature, outcome: 'created' });
    });
  });
});
