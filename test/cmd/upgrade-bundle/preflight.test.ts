import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Finding } from '../../../lib/cluster/finding.ts';
import type { Preflight } from '../../../lib/readiness/preflight/preflight.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { furnish, infrastructure, podSpec, reportMirror, workload } from '../../fakes/cluster/site.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { runProgram } from '../../support/content/creation.ts';
import { startDockerRegistry } from '../../support/dockerRegistry.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import { requirePeer } from '../../support/peers.ts';
import type { Execution } from '../../support/program/execution.ts';
import { findCommands, runPrinted } from '../../support/program/printedCommands.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { imagePolicyFiles } from '../../support/release/imagePolicy.ts';

describe('oc adm-upgrade-bundle preflight', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let kubeconfig: string;
  let bundle: TestBundle;

  before(async () => {
    bundle = await makeBundle({ version: '4.19.4', previous: ['4.19.3'] });
  });
  after(() => bundle.remove());
  beforeEach(async () => {
    server = await startApiServer({ openshift: '4.19.3' });
    furnish(server);
    kubeconfigs = await makeKubeconfigFolder();
    kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
  });
  afterEach(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });
  const preflight = (...args: string[]): Promise<Execution> =>
    runProgram(kubeconfigs.folder, 'preflight', [kubeconfig, ...args]);

  it('says that nothing needs a registry', async () => {
    const { code, stdout, stderr } = await preflight();
    expect(stderr).to.equal('');
    expect(code).to.equal(0);
    expect(stdout).to.equal(
      'test: OpenShift 4.19.3; 3 nodes and 3 workloads checked\nNothing was found that needs a registry.\n',
    );
  });

  it('shows blockers and advice in a table, and exits with 1', async () => {
    const always = { template: { spec: podSpec({ imagePullPolicy: 'Always' }) } };
    for (let index = 0; index < 12; index += 1) {
      server.put(workload('Deployment', `web-${index}`, 'shop', always));
    }
    server.put(workload('DaemonSet', 'dns', 'openshift-dns', always));
    const trusted = [`--signature-keyring=${bundle.keyFile}`, `--trust-fingerprint=${bundle.key.fingerprint}`];
    const { code, stdout, stderr } = await preflight(bundle.path, ...trusted);
    expect(code).to.equal(1);
    expect(stderr).to.equal(
      'error (not-ready): the cluster cannot update to 4.19.4 without a registry: 1 blocker\nhint: Follow the ' +
        'advice above, then run this again.\ntry: --ignore\nmore: oc adm-upgrade-bundle explain not-ready\n',
    );
    expect(stdout).to.match(/^test: OpenShift 4\.19\.3, to be updated to 4\.19\.4; 3 nodes and 15 workloads checked\n/);
    expect(stdout).to.match(
      /\nSEVERITY +CHECK +OBJECT +FINDING\nblocker +pull-policy +daemonset\/dns -n openshift-dns +container/,
    );
    expect(stdout).to.match(/ … and 2 more +-o json lists them all\n/);
    expect(stdout.match(/^ {2}pull-policy +Set imagePullPolicy/gm)).to.have.length(1);
    const option = '--ignore=pull-policy:daemonset/openshift-dns/dns';
    expect(stdout).to.match(new RegExp(`\\n  pull-policy  ${option}   The kubelet asks a registry at each start`));
    const overruled = await preflight(bundle.path, ...trusted, option, '--ignore=nodes');
    expect(overruled.code).to.equal(0);
    expect(overruled.stderr).to.contain('--ignore=nodes is not needed: there is no such blocker');
    expect(overruled.stdout)
      .to.match(/\nignored +pull-policy +daemonset\/dns/)
      .and.to.contain('\nIgnored. What may happen:\n');
  });

  it('refuses to ignore blockers of trust, and unknown checks', async () => {
    for (const name of ['path', 'signatures:mirror/x', 'bundle'])
      expect((await preflight(`--ignore=${name}`)).stderr).to.contain('cannot be ignored: they are about trust');
    const { code, stderr } = await preflight('--ignore=everything');
    expect(code).to.equal(2);
    expect(stderr).to.contain('"everything" names no check whose findings can be ignored');
  });

  it('refuses a bundle for a hosted control plane before it reads the bundle, and checks the boot of its nodes', async () => {
    server.put(infrastructure('External'));
    const { code, stdout, stderr } = await preflight('no-such-bundle.tar');
    expect(code).to.equal(1);
    expect(stdout).to.equal('');
    expect(stderr).to.match(
      /^error \(unsupported\): the control plane of test is hosted .* no bundle updates it\nhint: /,
    );
    expect((await preflight()).code).to.equal(0);
  });

  it('checks the needs of mirrors on the control plane with --mirror', async () => {
    const { code, stdout } = await preflight('--mirror');
    expect(code).to.equal(1);
    expect(stdout).to.match(
      /\nblocker +mirrors +secret\/pull-secret -n openshift-config +does not exist, and the machine/,
    );
  });

  it('finds images that a mirror lacks with --mirror, also without the mirror set', async () => {
    server.put(upgradeBundleDefinition());
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle-reports' } });
    const imageDigestMirrors = [{ source: 'quay.io/a', mirrors: ['localhost:9690/a', '192.0.2.5:9690/a'] }];
    const set = { apiVersion: 'config.openshift.io/v1', kind: 'ImageDigestMirrorSet' };
    const lost = `a/b@sha256:${'c'.repeat(64)}`;
    const listFound = async (): Promise<string[]> => {
      const { findings } = JSON.parse((await preflight('--mirror', '-o', 'json')).stdout) as Preflight;
      return findings.flatMap(({ subject, message }) => (message.includes(lost) ? [`${subject.name} ${message}`] : []));
    };
    for (const isInstalled of [false, true]) {
      if (isInstalled) server.put({ ...set, metadata: { name: 'oc-upgrade-bundle' }, spec: { imageDigestMirrors } });
      reportMirror(server, 'master-0', { versions: ['4.19.3'] });
      expect(await listFound()).to.deep.equal([]);
      reportMirror(server, 'master-0', { versions: ['4.19.3'], lacking: [lost] });
      const status = await runProgram(kubeconfigs.folder, 'status', [kubeconfig]);
      expect(status.stdout).to.contain(`lacks ${lost}`);
      expect(await listFound()).to.deep.equal([`master-0 its mirror was asked for images that it lacks: ${lost}`]);
    }
  });

  it('prints JSON, and reports a bundle that no trusted key signed', async () => {
    const { code, stdout } = await preflight(bundle.path, '-o', 'json');
    expect(code).to.equal(1);
    const report = JSON.parse(stdout) as Preflight;
    expect(report).to.deep.include({ cluster: 'test', version: '4.19.3', target: '4.19.4', nodes: 3, ready: false });
    expect(report.findings[0]).to.have.all.keys('check', 'severity', 'because', 'subject', 'message', 'advice');
    expect(report.findings[0]).to.include({ check: 'bundle', severity: 'blocker' });
    expect((await preflight(bundle.path, '--allow-unsigned')).code).to.equal(0);
  });

  it('finds images without a signature in a docker-registry, and prints the command that adds them', async function () {
    requirePeer(this, 'docker-registry');
    const files = imagePolicyFiles();
    await using signed = await makeBundle({ version: '4.19.4', components: ['etcd'], attachments: () => true, files });
    await using registry = await startDockerRegistry();
    const repository = `${registry.host}/site/release`;
    const access = [
      '--insecure',
      `--signature-keyring=${signed.keyFile}`,
      `--trust-fingerprint=${signed.key.fingerprint}`,
    ];
    const listRefused = async (): Promise<Finding[]> => {
      const { stdout } = await preflight(signed.path, '-o', 'json', ...access);
      return (JSON.parse(stdout) as Preflight).findings.filter(({ subject }) => subject.kind === 'Mirror');
    };
    await runProgram(kubeconfigs.folder, 'push', [signed.path, `--to=${repository}`, ...access]);
    const mirrors = ['ocp-release', 'ocp-v4.0-art-dev'].map((name) => ({
      source: `quay.io/openshift-release-dev/${name}`,
      mirrors: [repository],
    }));
    const spec = { imageDigestMirrors: mirrors };
    server.put({ apiVersion: 'config.openshift.io/v1', kind: 'ImageDigestMirrorSet', metadata: { name: 'm' }, spec });
    expect(await listRefused()).to.deep.equal([]);
    const tags = join(registry.storage, 'docker/registry/v2/repositories/site/release/_manifests/tags');
    const etcd = signed.release.images.get('etcd')?.digest ?? signed.release.digest;
    await rm(join(tags, attachmentTag(etcd)), { recursive: true });
    const [refused] = await listRefused();
    expect(refused).to.deep.include({ severity: 'blocker', subject: { kind: 'Mirror', name: repository } });
    expect(refused?.message).to.match(/^lacks valid sigstore signatures of 1 of 2 images of 4\.19\.4, .*: etcd$/);
    const [command = ''] = findCommands(refused?.advice ?? '');
    expect((await runPrinted(`${command} ${access.join(' ')}`)).code).to.equal(0);
    expect(await listRefused()).to.deep.equal([]);
  });

  it('reads the bundle before the objects of the cluster, except for its topology', async () => {
    const { code, stderr } = await preflight('absent.tar');
    expect(code).to.equal(1);
    expect(stderr).to.contain('there is no absent.tar');
    const others = server.requests.filter(({ path }) => !/^\/apis\/(?:apps\/v1|config\.openshift\.io)/.test(path));
    expect(others.map(({ path }) => path)).to.deep.equal([]);
  });
});
