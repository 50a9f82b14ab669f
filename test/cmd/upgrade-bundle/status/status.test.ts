import { expect } from 'chai';
import { agentObjects } from '../../../../lib/update/install/agentObjects.ts';
import { formatNodeReport } from '../../../../lib/update/record/nodeReport.ts';
import { upgradeBundleDefinition } from '../../../../lib/update/record/upgradeBundleDefinition.ts';
import manifest from '../../../../package.json' with { type: 'json' };
import { node, platformImage } from '../../../fakes/cluster/site.ts';
import type { Json } from '../../../fakes/kubernetes/apiPatch.ts';
import { startApiServer, type TestApiServer } from '../../../fakes/kubernetes/apiServer.ts';
import { makeBundle, type TestBundle } from '../../../support/content/bundle.ts';
import { type Running, runProgram, startProgram } from '../../../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../../support/kubeconfig.ts';
import type { Execution } from '../../../support/program/execution.ts';
import { imagePolicyFiles } from '../../../support/release/imagePolicy.ts';
import { until } from '../../../support/until.ts';

const digest = `sha256:${'a'.repeat(64)}` as const;

describe('oc adm-upgrade-bundle status, resume, abort and clean', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let kubeconfig: string;
  let bundle: TestBundle;

  before(async () => {
    bundle = await makeBundle({ version: '4.19.4', attachments: () => true, files: imagePolicyFiles() });
  });
  after(() => bundle.remove());
  beforeEach(async () => {
    server = await startApiServer({ openshift: '4.19.3' });
    server.put(upgradeBundleDefinition());
    kubeconfigs = await makeKubeconfigFolder();
    kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
  });
  afterEach(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });
  const start = (verb: string, ...args: string[]): Running =>
    startProgram(kubeconfigs.folder, verb, [kubeconfig, ...args]);
  const run = (verb: string, ...args: string[]): Promise<Execution> =>
    runProgram(kubeconfigs.folder, verb, [kubeconfig, ...args]);
  const api = { apiVersion: 'upgrade-bundle.openshift.io/v1alpha1', kind: 'UpgradeBundle' };
  const put = (phase: string, more: object = {}, hold = false): void => {
    const status = { phase, version: '4.19.4', ...more };
    const object = { ...api, metadata: { name: '4.19.4-x86-64' }, spec: { bundle: { digest }, hold }, status };
    const before = server.find(api.apiVersion, api.kind, '4.19.4-x86-64');
    const kind = server.kinds.find((each) => each.kind === 'UpgradeBundle');
    if (!before || !kind) return void server.put(object);
    const place = { kind, namespace: '', name: '4.19.4-x86-64' };
    server.objects.replace(place, { ...before, status }, { manager: 'controller', dryRun: false, status: true });
  };
  const nodes = [
    { name: 'master-0', phase: 'Loaded', imagesLoaded: 190, imagesTotal: 190, bytes: 17_179_869_184 },
    {
      name: 'worker-0',
      phase: 'Loading',
      imagesLoaded: 95,
      imagesTotal: 190,
      bytes: 8_589_934_592,
      message: 'from master-0',
    },
  ];
  const spec = () => server.find(api.apiVersion, api.kind, '4.19.4-x86-64')?.['spec'];

  it('shows the phase, the conditions and every node', async () => {
    const conditions = [
      {
        type: 'Verified',
        status: 'True',
        reason: 'Signed',
        message: 'by Red Hat',
        lastTransitionTime: '2026-11-21T12:00:00Z',
      },
    ];
    put('Loading', { nodes, conditions }, true);
    const { stdout } = await run('status');
    expect(stdout.split('\n')).to.deep.equal([
      '4.19.4-x86-64: Loading, 1 of 2 nodes ready, 75%',
      '  Version    4.19.4',
      `  Bundle     ${digest}`,
      '  Held       until oc adm-upgrade-bundle resume',
      '',
      'CONDITION  STATUS  REASON  MESSAGE',
      'Verified   True    Signed  by Red Hat',
      '',
      'NODE      PHASE    IMAGES                     BLOBS  MESSAGE',
      'worker-0  Loading  █████░░░░░  95 of 190    8.0 GiB  from master-0',
      'master-0  Loaded   ██████████  190 of 190  16.0 GiB',
      '',
    ]);
    const json = JSON.parse((await run('status', '-o', 'json')).stdout) as {
      status: { nodes: unknown[] };
      metadata: object;
    };
    expect(json.status.nodes).to.have.length(2);
    expect(json.metadata).not.to.have.property('managedFields');
    expect((await run('status', '-o', 'yaml')).stdout).to.match(/^ {2}phase: Loading$/m);
  });

  it('shows the served and missing images of mirrors, also without an update', async () => {
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle-reports' } });
    const [progress] = nodes.map((each) => ({ ...each, phase: 'Loaded' as const }));
    const known = { requests: 57, lacking: ['a/b@sha256:c'] };
    const mirror = { versions: ['4.19.3', '4.19.4'], port: 9690, sizes: { '4.19.4': 5 }, ...known };
    const partial = { versions: ['4.19.3'], content: 'metadata', requests: 2, lacking: [] } as const;
    if (progress) server.put(formatNodeReport({ bundle: '', progress, mirror }));
    if (progress)
      server.put(formatNodeReport({ bundle: '', progress: { ...progress, name: 'master-1' }, mirror: partial }));
    const table =
      'MIRROR    SERVES             IMAGES GIVEN  MESSAGE\n' +
      'master-0  4.19.3, 4.19.4               57  lacks a/b@sha256:c\n' +
      'master-1  4.19.3 (metadata)             2\n';
    const mirrors = [
      { node: 'master-0', ...mirror },
      { node: 'master-1', ...partial },
    ];
    expect((await run('status')).stdout).to.equal(table);
    expect(JSON.parse((await run('status', '-o', 'json')).stdout)).to.deep.equal({ outputVersion: 1, mirrors });
    expect((await run('status', '4.19.4-x86-64')).code).to.equal(1);
    put('Completed', { nodes });
    expect((await run('status')).stdout)
      .to.match(/^4\.19\.4/)
      .and.to.include(`\n\n${table}`);
    for (const options of [
      ['-o', 'json'],
      ['-w', '-o', 'json'],
    ])
      expect(JSON.parse((await run('status', ...options)).stdout)).to.deep.include({ kind: api.kind, mirrors });
  });

  it('warns of control plane nodes without a mirror, also without an update', async () => {
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle-reports' } });
    for (const name of ['master-0', 'master-1']) server.put(node(name, 'master'));
    expect((await run('status')).stderr).not.to.include('mirror');
    const imageDigestMirrors = [{ source: 'quay.io/a', mirrors: ['localhost:9690/a', '192.0.2.5:9690/a'] }];
    const set = { apiVersion: 'config.openshift.io/v1', kind: 'ImageDigestMirrorSet' };
    server.put({ ...set, metadata: { name: 'oc-upgrade-bundle' }, spec: { imageDigestMirrors } });
    expect((await run('status')).stderr).to.match(
      /^warning: no mirror runs on master-0, master-1\. See oc -n oc-upgrade-bundle logs /,
    );
  });

  /** Stores a report of a node, which was written some time ago by the clock of the API server. Milliseconds. */
  const report = ({ name = 'a', age = 0, skew = 0 }): void => {
    const namespace = 'oc-upgrade-bundle-reports';
    if (!server.find('v1', 'Namespace', namespace))
      server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    const progress = { name, phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 } as const;
    const renewTime = new Date(Date.now() - age + skew).toISOString().replace('Z', '000Z');
    const lease = { ...formatNodeReport({ bundle: '', progress }), spec: { holderIdentity: name, renewTime } };
    server.backdate(server.put(lease), age);
  };

  it('warns of clocks of nodes that differ', async () => {
    put('Loading', { nodes });
    report({ name: 'a', skew: -40 * 60_000 });
    expect((await run('status')).stderr).to.match(/^warning: clocks differ from that of the API server: a 40 minutes/);
  });

  it('says first that no agent has reported, and why', async () => {
    put('Loading', { nodes });
    const silent = await run('status');
    expect(silent.stderr).to.match(/^warning: no agent has reported yet\. See: .* logs -l /);
    const namespace = 'oc-upgrade-bundle';
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    server.put(node('worker-0', 'worker'));
    const metadata = { name: 'agent-x', namespace, labels: { 'app.kubernetes.io/name': namespace } };
    const state = { waiting: { reason: 'ImagePullBackOff', message: 'no route to host' } };
    const status = { phase: 'Pending', containerStatuses: [{ name: 'agent', state }] };
    server.put({ apiVersion: 'v1', kind: 'Pod', metadata, spec: { nodeName: 'worker-0', containers: [] }, status });
    for (const options of [[], ['-w']]) {
      const { child, outcome } = start('status', ...options);
      let said = '';
      child.stderr?.on('data', (chunk: Buffer) => (said += chunk.toString()));
      await until(() => said.includes('\n'));
      expect(said).to.equal(
        'warning: no agent has reported yet; agent-x on worker-0: ImagePullBackOff: no route to host. See: oc ' +
          '-n oc-upgrade-bundle get pods\n',
      );
      child.kill();
      await outcome.catch(() => undefined);
    }
    report({ age: 3_600_000 });
    expect((await run('status')).stderr).to.contain('no agent has reported since 20');
    report({ age: 60_000 });
    expect((await run('status')).stderr).to.equal('');
    put('Completed', { nodes });
    expect((await run('status')).stderr).to.equal('');
  });

  it('warns of agents of another version, older or newer', async () => {
    put('Loading', { nodes });
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
    const warningWith = async (installed: string): Promise<string> => {
      const options = { image: platformImage('d'), executables: {}, admission: undefined, rules: true };
      for (const agents of agentObjects({ ...options, version: installed }).slice(-1)) server.put({ ...agents });
      return (await run('status')).stderr;
    };
    expect(await warningWith('0.0.1')).to.match(
      /^warning: the agents \(0\.0\.1\) are older than this program \(.*install/m,
    );
    expect(await warningWith('99.0.0')).to.match(/^warning: the agents \(99\.0\.0\) are newer than this program/m);
    const lastTransitionTime = '2026-01-01T00:00:00Z';
    const condition = {
      type: 'Rehearsed',
      status: 'True',
      reason: 'AsPlanned',
      message: 'As planned.',
      lastTransitionTime,
    };
    put('Loading', { nodes, conditions: [condition] });
    expect((await run('status')).stdout).to.match(/Rehearsed.*As planned\./);
    expect(await warningWith(manifest.version)).not.to.match(/the agents (?:\(|are)/);
  });

  it('shows how far the version operator is, for how long, and an estimate', async () => {
    const release = `quay.io/openshift-release-dev/ocp-release@sha256:${'2'.repeat(64)}`;
    const version = server.find('config.openshift.io/v1', 'ClusterVersion', 'version') as Json;
    const startedTime = new Date(Date.now() - 600_500).toISOString();
    server.put({
      ...version,
      status: { history: [{ state: 'Partial', version: '4.19.4', image: release, startedTime }] },
    });
    put('Upgrading', { nodes, release, progress: '20%' });
    expect((await run('status')).stdout).to.match(
      /^4\.19\.4-x86-64: Upgrading, 20%, 10m0\ds elapsed, about 40m\d\ds left\n/,
    );
  });

  it('follows an update until it is completed', async () => {
    const { child, outcome } = start('status', '-w');
    let seen = '';
    child.stdout?.on('data', (chunk: Buffer) => (seen += chunk.toString()));
    const shown = (text: string): Promise<void> => until(() => seen.includes(text));
    await until(() => server.requests.some(({ query }) => query.get('watch') === 'true'));
    put('Loading', { nodes });
    await shown('4.19.4-x86-64: Loading, 1 of 2 nodes ready, 75%\n');
    put('Loading', { nodes: nodes.map((node) => ({ ...node, bytes: 1 })) });
    put('Upgrading', { nodes });
    await shown('4.19.4-x86-64: Upgrading');
    put('Completed', { nodes });
    const { code, stdout } = await outcome;
    expect(code).to.equal(0);
    expect(stdout.trim().split('\n')).to.have.length(3);
  });

  it('follows a failing update, and reports the failure', async () => {
    put('Failed', {
      conditions: [
        {
          type: 'Updated',
          status: 'False',
          reason: 'DiskFull',
          message: 'worker-0 is full',
          lastTransitionTime: '2026-11-21T12:00:00Z',
        },
      ],
    });
    const { code, stderr } = await run('status', '-w', '-o', 'json');
    expect(code).to.equal(1);
    expect(stderr).to.match(
      /^error \([a-z-]+\): the update with 4\.19\.4-x86-64 has failed: worker-0 is full\nhint: /m,
    );
  });

  it('begins an update that is held', async () => {
    put('Held', {}, true);
    expect((await run('resume')).stdout).to.equal('upgradebundle/4.19.4-x86-64 is no longer held: Held\n');
    expect(spec()).to.deep.include({ hold: false });
    expect((await run('resume')).stdout).to.equal('upgradebundle/4.19.4-x86-64 is not held: Held\n');
    const result = { outcome: 'unchanged', phase: 'Held' };
    expect(JSON.parse((await run('resume', '-o', 'json')).stdout)).to.include(result);
  });

  it('gives an update up, and waits until that is done', async () => {
    put('Loading');
    report({ age: 60_000 });
    const { outcome } = start('abort');
    const annotated = (): unknown => server.find(api.apiVersion, api.kind, '4.19.4-x86-64')?.metadata['annotations'];
    await until(annotated);
    put('Failed');
    const { stdout, stderr } = await outcome;
    expect(stdout).to.equal('upgradebundle/4.19.4-x86-64 aborted\n');
    expect(stderr).to.equal('4.19.4-x86-64 is Loading\n');
    const planned = { dryRun: true, removed: ['4.19.4-x86-64'] };
    expect(JSON.parse((await run('clean', '--dry-run', '-o', 'json')).stdout)).to.deep.include(planned);
    expect((await run('clean')).stdout).to.equal('upgradebundle/4.19.4-x86-64 deleted\n');
    expect((await run('clean')).stdout).to.equal('There is nothing to remove.\n');
    const nothing = { dryRun: false, removed: [] };
    expect(JSON.parse((await run('clean', '-o', 'json')).stdout)).to.deep.include(nothing);
  });

  it('shows a pending abort first, and refuses to resume or apply that bundle', async () => {
    put('Detected', {}, true);
    const { code, stderr } = await run('abort');
    expect(code).to.equal(1);
    expect(stderr).to.match(
      /^4\.19\.4-x86-64 is Detected\nwarning: no agent has reported yet\. .*\nerror \(not-ready\): 4\.19\.4-x86-64 is not aborted yet; its phase is Detected\nhint: .*To withdraw the request: oc annotate upgradebundle 4\.19\.4-x86-64 upgrade-bundle\.openshift\.io\/abort-\.$/m,
    );
    expect((await run('status')).stdout.split('\n').slice(0, 2)).to.deep.equal([
      '4.19.4-x86-64: Detected, abort requested',
      '  Abort      the controller aborts the update; to withdraw the request: oc annotate upgradebundle ' +
        '4.19.4-x86-64 upgrade-bundle.openshift.io/abort-',
    ]);
    for (const line of [['resume'], ['apply', `--digest=${digest}`]]) {
      const refused = await run(...(line as [string]));
      expect(refused.code).to.equal(1);
      expect(refused.stderr).to.match(
        /^error \(conflict\): 4\.19\.4-x86-64 is to be aborted, and is Detected\nhint: .* oc annotate /m,
      );
    }
    expect(spec()).to.deep.include({ hold: true });
  });

  it('requests that an update is aborted, without a wait, and prints that as JSON', async () => {
    put('Loading');
    const { stdout, stderr } = await run('abort', '--wait=false', '-o', 'json');
    expect(JSON.parse(stdout)).to.include({ aborted: false });
    expect(stderr).to.equal('4.19.4-x86-64 is Loading\n');
  });

  it('does not abort a started update, and prints the next steps', async () => {
    put('Upgrading');
    const { code, stderr } = await run('abort');
    expect(code).to.equal(1);
    expect(stderr).to.match(
      /error \([a-z-]+\): the update to 4\.19\.4 has begun, and cannot be aborted\nhint: .*oc adm upgrade rollback/,
    );
    expect((await run('clean', '4.19.4-x86-64')).stderr).to.match(
      /^error \([a-z-]+\): 4\.19\.4-x86-64 is under way: Upgrading\nhint: /,
    );
  });

  it('says that nothing is installed', async () => {
    await using bare = await startApiServer({ openshift: '4.19.3' });
    const file = `--kubeconfig=${await kubeconfigs.write({ file: 'bare', cluster: { server: bare.url } })}`;
    for (const verb of ['status', 'resume', 'abort', 'clean']) {
      const { code, stderr } = await runProgram(kubeconfigs.folder, verb, [file]);
      expect(code).to.equal(1);
      expect(stderr).to.equal(
        'error (not-served): test does not know UpgradeBundles\nhint: Nothing is installed there yet: oc ' +
          'adm-upgrade-bundle install.\nmore: oc adm-upgrade-bundle explain not-served\n',
      );
    }
  });
});
