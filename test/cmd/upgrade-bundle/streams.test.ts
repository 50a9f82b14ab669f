import { rm } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { parse } from 'yaml';
import type { CreateResult } from '../../../lib/bundle/create.ts';
import type { ReleaseInspection } from '../../../lib/bundle/inspect/release.ts';
import type { VerifyReport } from '../../../lib/bundle/verify.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { openWorkshop } from '../../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { operatorCommit, streamRelease } from '../../support/release/streams.ts';

const executable = fileURLToPath(new URL('../../../cmd/oc-adm_upgrade_bundle.ts', import.meta.url));
const run = async (...args: string[]): Promise<string> => {
  const { code, stdout, stderr } = await executeProgram(executable, args, { env: process.env });
  expect(code, stderr).to.equal(0);
  return stdout;
};

describe('the operating system streams of a bundle', () => {
  let bundle: TestBundle;
  let trust: string[];
  before(async () => {
    const layerSize = (name: string): number => (name.startsWith('rhel-coreos-10') ? 70_000 : 20_000);
    bundle = await makeBundle({ ...streamRelease, layerSize });
    trust = [`--signature-keyring=${bundle.keyFile}`, `--trust-fingerprint=${bundle.key.fingerprint}`];
  });
  after(() => bundle.remove());

  const needs =
    '5.0.1 needs its operating system streams described in the cluster: rhel-10, rhel-9; commit d20efd9b9bdb by its ' +
    'image';

  it('are shown by inspect, with the bytes that a site without nodes of a stream does not need', async () => {
    const text = await run('inspect', bundle.path);
    expect(text).to.include(needs);
    const [stream] = (JSON.parse(await run('inspect', bundle.path, '-o', 'json')) as ReleaseInspection)
      .osImageStreams ?? [undefined];
    expect(stream).to.include({ commit: operatorCommit, commitSource: 'image' });
    const [ten, nine] = stream?.availableStreams.map(({ unique }) => unique) ?? [];
    // Two layers of noise in each of the two images.
    expect(ten).to.be.within(280_000, 300_000);
    expect(nine).to.be.within(80_000, 100_000);
    expect(text).to.match(/rhel-10 has [\d.]+ [Kk]i?B of its own, which a site without rhel-10 nodes does not need/);
    expect(await run('inspect', bundle.path, '-o', 'html')).to.include('described in the cluster');
  });

  it('are named by create, in a dry run and in JSON too', async () => {
    const workshop = await openWorkshop({ release: streamRelease });
    try {
      const { code, stdout, stderr } = await workshop.create({ 'dry-run': true });
      expect(code, stderr).to.equal(0);
      expect(stdout).to.include(needs);
      const created = await workshop.create({ format: 'json' });
      expect(created.code, created.stderr).to.equal(0);
      const { osImageStreams } = JSON.parse(created.stdout) as CreateResult;
      expect(osImageStreams?.map(({ commit }) => commit)).to.deep.equal([operatorCommit]);
    } finally {
      await workshop.close();
    }
  });

  it('are named by verify', async () => {
    expect(await run('verify', bundle.path, ...trust)).to.include(needs);
    const report = JSON.parse(await run('verify', bundle.path, ...trust, '-o', 'json')) as VerifyReport;
    expect(report.osImageStreams?.map(({ version, problems }) => [version, problems])).to.deep.equal([['5.0.1', []]]);
  });

  it('are read from a delta bundle without its base, and their problems are shown', async () => {
    const common = streamRelease.components.filter((name) => name !== 'cluster-version-operator');
    await using base = await makeBundle({ ...streamRelease, common, version: '5.0.0' });
    await using delta = await makeBundle({ ...streamRelease, common, base: base.path });
    await rm(base.path);
    expect(await run('inspect', delta.path)).to.include(needs);
    const { 'rhel-coreos-10': _none, ...configs } = streamRelease.configs;
    await using unlabelled = await makeBundle({ ...streamRelease, configs });
    expect(await run('inspect', unlabelled.path)).to.include(
      'not possible without a mirror: the stream rhel-10 has no operating system image',
    );
  });

  it('are not mentioned for a release that does not need them', async () => {
    await using older = await makeBundle({ version: '4.20.3', components: 4 });
    expect(await run('inspect', older.path)).not.to.include('streams');
    expect(JSON.parse(await run('inspect', older.path, '-o', 'json'))).not.to.have.property('osImageStreams');
  });
});

describe('oc adm-upgrade-bundle streams', () => {
  const kind = {
    group: 'machineconfiguration.openshift.io',
    version: 'v1',
    namespaced: false,
    status: true,
    custom: true,
    kind: 'OSImageStream',
    resource: 'osimagestreams',
  };
  let bundle: TestBundle;
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let args: string[];
  const find = () => server.find('machineconfiguration.openshift.io/v1', 'OSImageStream', 'cluster');
  const updateTo = (image: string, version = '5.0.1'): void => {
    const history = [
      { state: 'Partial', version, image, completionTime: null },
      { state: 'Completed', version: '4.22.3', image: 'old', completionTime: '2026-03-01T10:00:00Z' },
    ];
    const status = { desired: { version, image }, history };
    server.put({ apiVersion: 'config.openshift.io/v1', kind: 'ClusterVersion', metadata: { name: 'version' }, status });
  };
  before(async () => {
    bundle = await makeBundle(streamRelease);
  });
  after(() => bundle.remove());
  beforeEach(async () => {
    server = await startApiServer({ openshift: '4.22.3', kinds: [kind] });
    kubeconfigs = await makeKubeconfigFolder();
    args = [
      `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`,
      `--signature-keyring=${bundle.keyFile}`,
      `--trust-fingerprint=${bundle.key.fingerprint}`,
    ];
  });
  afterEach(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });
  const start = (image: string, version: string): void => {
    const name = 'machine-config-controller';
    const metadata = { name, namespace: 'openshift-machine-config-operator', labels: { 'k8s-app': name } };
    const containers = [{ name, image, args: ['start', `--payload-version=${version}`] }];
    server.put({ apiVersion: 'v1', kind: 'Pod', metadata, spec: { containers } });
  };
  const operator = (): string => bundle.release.images.get('machine-config-operator')?.pullspec ?? '';
  const streams = (...more: string[]): ReturnType<typeof executeProgram> =>
    executeProgram(executable, ['streams', bundle.path, ...args, ...more], { env: process.env });

  it('prints the object for the cluster, and changes nothing', async () => {
    updateTo('registry.example.com/old@sha256:0', '4.22.3');
    const { code, stdout, stderr } = await streams();
    expect(code, stderr).to.equal(0);
    expect(parse(stdout)).to.deep.include({
      metadata: {
        name: 'cluster',
        annotations: {
          'machineconfiguration.openshift.io/release-image-version': operatorCommit,
          'machineconfiguration.openshift.io/release-payload-image': bundle.release.pullspec,
        },
      },
      spec: { defaultStream: 'rhel-9' },
    });
    expect(find()).to.equal(undefined);
  });

  it('writes the object with its status while the cluster updates to the release, and is idempotent', async () => {
    const mirrored = `mirror.example.com/ocp/release@${bundle.release.digest}`;
    updateTo(mirrored);
    expect((await streams('--apply')).stdout).to.match(/cluster created\n$/);
    const made = find();
    expect(made?.['status']).to.include({ defaultStream: 'rhel-9' });
    expect(made?.metadata).to.have.nested.property(
      'annotations.machineconfiguration\\.openshift\\.io/release-payload-image',
      mirrored,
    );
    expect(JSON.parse((await streams('--apply', '-o', 'json')).stdout)).to.include({ outcome: 'unchanged' });
  });

  it('refuses to write while the controller of the earlier release renders from the object', async () => {
    updateTo(bundle.release.pullspec);
    const apiVersion = 'machineconfiguration.openshift.io/v1';
    const spec = { defaultStream: 'rhel-9' };
    server.put({ apiVersion, kind: kind.kind, metadata: { name: 'cluster' }, spec });
    const early = [`quay.io/a/b@sha256:${'0'.repeat(64)}`, operator()];
    for (const image of early) {
      // Releases may share the image: only the version of the payload tells them apart.
      start(image, '5.0.0');
      const refused = await streams('--apply');
      expect(refused).to.include({ code: 1 });
      expect(refused.stderr).to.include('the machine config controller of 5.0.1 does not run alone yet');
    }
    start(operator(), '5.0.1');
    expect((await streams('--apply')).stdout).to.match(/cluster configured\n$/);
  });

  it('refuses to write before the update is requested, or before the kind is served', async () => {
    updateTo('registry.example.com/old@sha256:0', '4.22.3');
    const early = await streams('--apply');
    expect(early).to.include({ code: 1 });
    expect(early.stderr).to.include('the cluster does not update to it');
    updateTo(bundle.release.pullspec);
    server.kinds.splice(
      server.kinds.findIndex((each) => each.kind === kind.kind),
      1,
    );
    const unserved = await streams('--apply');
    expect(unserved).to.include({ code: 1 });
    expect(unserved.stderr).to.include('does not serve OSImageStream v1 yet');
  });
});
