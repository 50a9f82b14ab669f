import { copyFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import { agentObjects } from '../../../lib/update/install/agentObjects.ts';
import { gatherTrust, noTrust, type AgentTrust } from '../../../lib/update/install/agentTrust.ts';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import manifest from '../../../package.json' with { type: 'json' };
import { node, platformImage } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { repack } from '../../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { digestOfFile, type Running, runProgram, startProgram } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import type { Execution } from '../../support/program/execution.ts';
import { extraImage } from '../../support/release/extraImage.ts';
import { imagePolicyFiles } from '../../support/release/imagePolicy.ts';
import { until } from '../../support/until.ts';

const digest = `sha256:${'a'.repeat(64)}` as const;

describe('oc adm-upgrade-bundle apply, status, resume, abort and clean', () => {
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
  const trusting = () => [`--signature-keyring=${bundle.keyFile}`, `--trust-fingerprint=${bundle.key.fingerprint}`];
  const spec = () => server.find(api.apiVersion, api.kind, '4.19.4-x86-64')?.['spec'];

  it('warns of acknowledgements that a later update requires, and allows them by name', async () => {
    const gates = { kind: 'ConfigMap', metadata: { name: 'admin-gates' }, data: { 'ack-4.20-x': 'Check this.' } };
    const files = { 'gates.json': JSON.stringify(gates, null, 1) };
    await using several = await makeBundle({
      version: '4.21.1',
      earlier: [{ version: '4.20.3', previous: ['4.19.3'], files }],
    });
    const trust = [`--signature-keyring=${several.keyFile}`, `--trust-fingerprint=${several.key.fingerprint}`];
    const { stderr } = await run('apply', '-f', several.path, ...trust);
    expect(stderr).to.contain(
      'warning: the update to 4.21.1 requires the acknowledgement ack-4.20-x: “Check this.”. To allow it, add --acknowledge=ack-4.20-x\n',
    );
    const allowed = await run('apply', several.path, ...trust, '--acknowledge=ack-4.20-x');
    expect(allowed.stdout).to.contain(' configured\n');
    expect(allowed.stderr).not.to.contain('ack-4.20-x');
    expect(server.find(api.apiVersion, api.kind, '4.21.1-x86-64')?.['spec']).to.deep.include({
      acknowledge: ['ack-4.20-x'],
    });
    for (const [option, answer] of [
      ['--acknowledge=x', /: “x” is not the name of an acknowledgement\nhint: It begins with ack-/],
      ['--device=sda', /: “sda” is not an absolute path of a node\nhint: Give the path as the node has it/],
      ['--device=/dev/../sda', /: “\/dev\/\.\.\/sda” is not an absolute path/],
      ['--backup-to=nfs://x/y', /: “nfs:\/\/x\/y” is not an absolute path of a node\nhint: Mount it on the node first/],
    ] as const) {
      const { code, stderr } = await run('apply', several.path, ...trust, option);
      expect(code).to.equal(2);
      expect(stderr)
        .to.match(/^error \(usage\): --/)
        .and.to.match(answer);
    }
  });

  it('leads with the decision that an update waits for, and the command that makes it', async () => {
    const command = `oc patch upgradebundle 4.19.4-x86-64 --type=merge --patch='{"spec":{"acknowledge":["ack-4.18-x"]}}'`;
    const message = `the update to 4.19.4 requires the acknowledgement ack-4.18-x: “Look.”. Follow the text, then allow it: ${command}`;
    const lastTransitionTime = '2026-01-01T00:00:00Z';
    const required = { status: 'False', reason: 'AcknowledgementRequired', message, lastTransitionTime };
    put('Verified', { conditions: [{ type: 'Ready', ...required }] });
    const { stdout } = await run('status');
    expect(stdout).to.match(
      /^4\.19\.4-x86-64: Verified, a decision is needed\n +Decision +the update to 4\.19\.4 requires/,
    );
    expect(stdout.replace(/\s+/g, ' ')).to.contain(command);
    put('Upgrading', { conditions: [{ type: 'Updated', ...required }] });
    expect((await run('status')).stdout).to.contain('a decision is needed');
    put('Upgrading', { conditions: [{ type: 'Updated', ...required, reason: 'Updating' }] });
    expect((await run('status')).stdout).not.to.contain('decision');
  });

  it('warns of risks that the metadata of a bundle states, and accepts them by name', async () => {
    await using several = await makeBundle({
      version: '4.21.1',
      earlier: [{ version: '4.20.3', previous: ['4.19.3'] }],
    });
    const trust = [`--signature-keyring=${several.keyFile}`, `--trust-fingerprint=${several.key.fingerprint}`];
    const path = join(kubeconfigs.folder, 'upgrade-4.21.1-x86_64-via-4.20.3.tar');
    const risky = await repack(several.path, path, (made) => {
      const risks = [{ name: 'SlowDisks', message: 'Disks are slow.', url: '' }];
      made.metadata = { ...made.metadata, releases: made.metadata.releases?.map((each) => ({ ...each, risks })) };
    });
    const claim =
      'the bundle says, not covered by its signature: the update to 4.20.3 has the risk SlowDisks: Disks are slow.; ';
    expect((await runProgram(kubeconfigs.folder, 'verify', [risky, ...trust])).stderr).to.contain(
      `warning: ${claim}to accept it, give apply --accept-risk=SlowDisks\n`,
    );
    const specOf = (): unknown => server.find(api.apiVersion, api.kind, '4.21.1-x86-64')?.['spec'];
    expect((await run('apply', risky, ...trust)).stderr).to.contain(
      `warning: ${claim}to accept it, add --accept-risk=SlowDisks\n`,
    );
    expect(specOf()).not.to.have.property('acceptRisks');
    const accepted = await run('apply', risky, ...trust, '--accept-risk=SlowDisks', '--accept-risk=SlowDisks');
    expect(accepted.stderr).to.contain(`${claim}it is accepted\n`).and.not.to.contain(`warning: ${claim}`);
    expect(specOf()).to.deep.include({ acceptRisks: ['SlowDisks'] });
    const byDigest = await run('apply', `--digest=${await digestOfFile(risky)}`, '--accept-risk=Another');
    expect(byDigest.code, byDigest.stderr).to.equal(0);
    expect(specOf()).to.deep.include({ acceptRisks: ['Another'] });
    const overruled = ['--ignore=nodes:node/worker-3', '--ignore=drains'];
    expect((await run('apply', risky, ...trust, ...overruled)).code).to.equal(0);
    expect(specOf()).to.deep.include({ ignore: ['nodes:node/worker-3', 'drains'] });
    const trusted = await run('apply', risky, ...trust, '--ignore=path');
    expect([trusted.code, trusted.stderr]).to.deep.equal([2, trusted.stderr]);
    expect(trusted.stderr).to.contain('findings of path cannot be ignored: they are about trust');
  });

  it('allows nothing if the file beside a bundle is of another genuine bundle, and names both', async () => {
    await using later = await makeBundle({ version: '4.19.5', seed: 'later' });
    const path = join(later.folder, basename(bundle.path));
    await copyFile(bundle.path, path);
    const [own, other] = [await digestOfFile(path), await digestOfFile(later.path)];
    await writeFile(`${path}.sha256`, `${hexOf(other)}  ${basename(path)}\n`);
    const { code, stderr } = await run('apply', path, ...trusting());
    expect(code).to.equal(1);
    expect(stderr).to.contain(`${path}.sha256 states the digest ${other}, and ${path} has ${own}\n`);
    expect(spec()).to.equal(undefined);
    await writeFile(`${path}.sha256`, `${hexOf(own)}  ${basename(path)}\n`);
    expect((await run('apply', path, ...trusting())).code).to.equal(0);
    const stated = { digest: own, version: '4.19.4', releaseDigest: bundle.release.digest };
    expect(spec()).to.deep.include({ bundle: stated });
  });

  it('allows a bundle by the file beside it, and holds it', async () => {
    const { code, stdout, stderr } = await run('apply', `${bundle.path}.yaml`, '--hold');
    expect(code, stderr).to.equal(0);
    expect(stderr).to.contain(
      `warning: nothing is verified: ${bundle.path}.yaml only states 4.19.4, ${bundle.result.digest ?? ''}. Give the bundle itself to check it\n`,
    );
    expect(stdout).to.equal(
      `upgradebundle/4.19.4-x86-64 created\nThe agents look for it now. The update waits for oc adm-upgrade-bundle resume ${kubeconfig}. Follow it: oc adm-upgrade-bundle status -w ${kubeconfig}\n`,
    );
    expect(spec()).to.deep.include({ hold: true });
    expect((await run('apply', bundle.path, ...trusting())).stdout).to.match(
      /^upgradebundle\/4\.19\.4-x86-64 unchanged\n/,
    );
  });

  it('prints how many images of a bundle have the sigstore signatures that policies require', async () => {
    const count = bundle.release.images.size + 1;
    const { stdout, stderr } = await run('apply', bundle.path, ...trusting());
    expect(stdout, stderr).to.match(
      new RegExp(` created\\nSigstore: ${count} of ${count} images verified, policy openshift, unknown key SHA256:`),
    );
  });

  it('refuses a bundle without a trusted signature before any change of the cluster, unless that is allowed', async () => {
    const { code, stderr } = await run('apply', bundle.path);
    expect(code).to.equal(1);
    expect(stderr).to.match(new RegExp(`^error \\([a-z-]+\\): ${bundle.release.digest} `));
    expect(server.requests.filter(({ method }) => method !== 'GET')).to.deep.equal([]);
    const allowed = await run('apply', bundle.path, '--allow-unsigned');
    expect(allowed.stdout).to.match(/^upgradebundle\/4\.19\.4-x86-64 created\n/);
    expect(allowed.stderr).to.contain('continuing, because unsigned releases are allowed');
  });

  /** Adds agents with a trust of their own. */
  function putAgents(trust: AgentTrust): void {
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
    const options = { image: platformImage('d'), executables: {}, admission: undefined, rules: true, trust };
    const [agents] = agentObjects(options).slice(-1);
    if (agents) server.put({ ...agents });
  }

  it('allows nothing that the agents would refuse, and says how they come to trust it', async () => {
    putAgents(noTrust);
    const { code, stdout, stderr } = await run('apply', bundle.path, ...trusting());
    expect([code, stdout]).to.deep.equal([1, '']);
    expect(spec()).to.equal(undefined);
    const { fingerprint } = bundle.key;
    expect(stderr).to.match(
      new RegExp(
        `^error \\([a-z-]+\\): the agents would refuse the bundle: they do not trust the key ${fingerprint} \\(`,
        'm',
      ),
    );
    expect(stderr).to.match(
      new RegExp(`: oc adm-upgrade-bundle install --trust-fingerprint=${fingerprint}\nmore: .*\n$`),
    );
    // The file beside the bundle does not name its signer.
    const beside = await run('apply', `${bundle.path}.yaml`, ...trusting());
    expect(beside.stderr).to.match(
      new RegExp(`^warning: the agents do not trust the key ${fingerprint}\\. Run this`, 'm'),
    );
    expect(beside.code).to.equal(0);
    expect((await run('apply', bundle.path, '--allow-unsigned')).stderr).to.match(
      / install --allow-unsigned\nmore: .*\n$/,
    );
  });

  it('trusts the keys of the agents, with and without options of its own', async () => {
    const { fingerprint } = bundle.key;
    const wanted = { fingerprints: [fingerprint], keyrings: [], allowUnsigned: false };
    putAgents(await gatherTrust(wanted, noTrust, makeContext()));
    expect((await run('apply', bundle.path, ...trusting())).stdout).to.contain(' created\n');
    const taken = await run('apply', bundle.path);
    expect(taken.stdout).to.contain(' unchanged\n');
    expect(taken.stderr).to.contain(`trusting the keys that the agents trust: ${fingerprint}\n`);
    const checked = await run('preflight', bundle.path);
    expect(checked.stderr).to.contain(`trusting the keys that the agents trust: ${fingerprint}\n`);
    expect(checked.stdout).not.to.match(/blocker +bundle/);
    expect((await run('apply', bundle.path, '--allow-unsigned')).stdout).to.contain(' unchanged\n');
  });

  it('allows the bundle on a device of a node', async () => {
    const { stdout } = await run('apply', '--device=/dev/sdb', `--digest=${digest}`);
    const again = await run('apply', '--device=/dev/sdb', `--digest=${hexOf(digest)}`, '-o', 'json');
    const [, name] = /^upgradebundle\/(\S+) created\n/.exec(stdout) ?? [];
    expect(JSON.parse(again.stdout)).to.include({ name, outcome: 'unchanged' });
    expect(stdout).to.match(/^upgradebundle\/bundle-aaaaaaaaaaaa created\n/);
    const made = server.find(api.apiVersion, api.kind, 'bundle-aaaaaaaaaaaa');
    expect(made?.['spec']).to.deep.include({ bundle: { digest, file: '/dev/sdb' } });
  });

  it('allows extra images by digest, or all images of the bundle, and names the images that are left out', async () => {
    const extra = extraImage();
    await using other = await makeBundle({ version: '4.19.5', extraImages: [extra] });
    const allowed = (): unknown =>
      (server.find(api.apiVersion, api.kind, '4.19.5-x86-64')?.['spec'] as Json | undefined)?.['allowExtraImages'];
    const trust = [`--signature-keyring=${other.keyFile}`, `--trust-fingerprint=${other.key.fingerprint}`];
    const none = await run('apply', other.path, ...trust);
    expect(none.stderr).to.contain(`does not cover ${extra.pullspec}: it is not loaded; to load it, add`);
    expect(allowed()).to.equal(undefined);
    const all = await run('apply', other.path, ...trust, '--allow-extra-images=all');
    expect(all.stderr).to.contain(`does not cover ${extra.pullspec}: it is loaded`);
    expect(allowed()).to.deep.equal([extra.digest]);
    const one = await run('apply', `${other.path}.yaml`, `--allow-extra-images=${digest}`);
    expect(one.stdout).to.contain(' configured\n');
    expect(allowed()).to.deep.equal([digest]);
    for (const [file, wanted] of [
      [`${other.path}.yaml`, 'all'],
      [other.path, 'quay.io/x:v1'],
    ] as const)
      expect((await run('apply', file, ...trust, `--allow-extra-images=${wanted}`)).code).to.equal(2);
  });

  it('refuses another digest than the bundle’s, and an invalid one', async () => {
    const { code, stderr } = await run('apply', bundle.path, `--digest=${digest}`, ...trusting());
    expect(code).to.equal(1);
    expect(stderr).to.match(/^error \([a-z-]+\): .* has another digest than --digest: sha256:/);
    expect((await run('apply', bundle.path, '--digest=1234')).code).to.equal(2);
    expect((await run('apply')).stderr).to.match(
      /^error \([a-z-]+\): no bundle is given: name a file, or give --digest\nhint: /,
    );
    expect(server.requests.filter(({ method }) => method !== 'GET')).to.deep.equal([]);
  });

  it('counts nodes that have not reported yet', async () => {
    put('Loading', { nodes: nodes.slice(0, 1), nodesReady: '1/3', progress: '33%' });
    const { stdout } = await run('status');
    expect(stdout.split('\n')[0]).to.equal('4.19.4-x86-64: Loading, 1 of 3 nodes ready, 33%');
  });

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

  it('says by how much clocks of nodes differ, and takes no node with another clock for a silent one', async () => {
    put('Loading', { nodes });
    report({ name: 'a', skew: -40 * 60_000 });
    report({ name: 'b', skew: 3 * 86_400_000 });
    report({ name: 'c' });
    expect((await run('status')).stderr).to.equal(
      'warning: clocks differ from that of the API server: a 40 minutes behind, b 3 days ahead. Set them: certificates and times depend on them\n',
    );
    for (const name of ['a', 'b', 'c']) report({ name, age: 3_600_000, skew: 3_600_000 });
    expect((await run('status')).stderr).to.contain('no agent has reported since 20');
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
        'warning: no agent has reported yet; agent-x on worker-0: ImagePullBackOff: no route to host. See: oc -n oc-upgrade-bundle get pods\n',
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
      '  Abort      the controller aborts the update; to withdraw the request: oc annotate upgradebundle 4.19.4-x86-64 upgrade-bundle.openshift.io/abort-',
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
        'error (not-served): test does not know UpgradeBundles\nhint: Nothing is installed there yet: oc adm-upgrade-bundle install.\nmore: oc adm-upgrade-bundle explain not-served\n',
      );
    }
  });
});
