import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { formatManifest } from '../../../lib/config/manifest.ts';
import { planManifests } from '../../../lib/update/install.ts';
import { readExecutables } from '../../../lib/update/install/executable.ts';
import manifest from '../../../package.json' with { type: 'json' };
import { openAgentSite, type AgentSite } from '../../fakes/cluster/agents.ts';
import { node, reportMirror } from '../../fakes/cluster/site.ts';
import { runOutOfTime } from '../../support/clock.ts';
import { runProgram } from '../../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import type { Execution } from '../../support/program/execution.ts';

const { version } = manifest;

describe('oc adm-upgrade-bundle install', () => {
  let site: AgentSite;
  let kubeconfigs: KubeconfigFolder;
  let folder: string;
  let executable: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'install-'));
    executable = await makeExecutable('executable', 62);
  });
  after(() => rm(folder, { recursive: true }));
  beforeEach(async () => {
    site = await openAgentSite();
    kubeconfigs = await makeKubeconfigFolder();
    await kubeconfigs.write({ file: 'config', cluster: { server: site.server.url } });
  });
  afterEach(async () => {
    await site.close();
    await kubeconfigs.remove();
  });
  /** Writes a file as large as an executable that includes Node.js, but empty. */
  const makeExecutable = async (name: string, machine: number): Promise<string> => {
    const header = Buffer.alloc(20);
    header.write('\x7fELF', 'latin1');
    header.writeUInt16LE(machine, 18);
    await using file = await open(join(folder, name), 'w');
    await file.write(header);
    await file.truncate(21 * 1024 * 1024);
    return join(folder, name);
  };
  const install = (...args: string[]): Promise<Execution> => {
    const kubeconfig = `--kubeconfig=${join(kubeconfigs.folder, 'config')}`;
    return runProgram(folder, 'install', [kubeconfig, ...args]);
  };

  it('lists the objects, the progress of the agents, and the next step', async () => {
    const { code, stdout, stderr } = await install(`--executable=${executable}`);
    expect(code, stderr).to.equal(0);
    expect(stdout).to.match(/^customresourcedefinition\/upgradebundles.upgrade-bundle.openshift.io created\n/);
    expect(stdout).to.contain('\nsecret/bundle-token created\ndaemonset/controller created\ndaemonset/agent created\n');
    expect(stdout).to.match(
      /\nAgents are ready on 3 nodes\. Next: oc adm-upgrade-bundle preflight --kubeconfig=\S+\n$/,
    );
    expect(stderr).to.match(/^agents ready on 0 of 3 nodes; waiting for agent-master-0-1 on master-0: /m);
    expect(stderr).to.match(/^uploading the executable to master-0$/m);
    const record = {
      'upgrade-bundle.openshift.io/version': version,
      'upgrade-bundle.openshift.io/bundle-formats': '1,2',
    };
    const agents = site.server.find('apps/v1', 'DaemonSet', 'agent', 'oc-upgrade-bundle');
    expect(agents?.metadata).to.deep.include({ annotations: record });
    const again = await install(`--executable=${executable}`);
    expect(again.stdout).not.to.match(/created|configured/);
  });

  it('waits until mirrors run, and says how to ask them', async () => {
    const api = { apiVersion: 'v1', kind: 'Secret' };
    site.server.put({ ...api, metadata: { name: 'pull-secret', namespace: 'openshift-config' } });
    // Without pools, no node has to take the configuration.
    const kind = site.server.kinds.find((each) => each.kind === 'MachineConfigPool');
    for (const name of ['master', 'worker'])
      if (kind) site.server.objects.delete({ kind, namespace: '', name }, {}, false);
    site.server.put(node('master-0', 'master', { addresses: [{ type: 'InternalIP', address: '192.0.2.11' }] }));
    const run = (...words: string[]) => install(`--executable=${executable}`, '--mirror', '--yes', ...words);
    await install(`--executable=${executable}`);
    reportMirror(site.server, 'worker-0');
    const early = await run('--timeout=1s');
    expect(early.stderr)
      .to.include('error (not-ready): After 1 s it is not ready: no mirror runs on master-0\n')
      .and.to.include('journalctl -u oc-upgrade-bundle-mirror');
    reportMirror(site.server, 'master-0');
    const { stdout, stderr } = await run();
    expect(stdout, stderr).to.match(
      /^Agents are ready on 3 nodes, and mirrors run on the control plane\. Next: oc adm-upgrade-bundle preflight --mirror /m,
    );
  });

  const kindsIn = (text: string): string[] => [...text.matchAll(/^kind: (\w+)$/gm)].map(([, kind = '']) => kind);

  it('prints the objects for a GitOps repository, and writes nothing', async () => {
    const { revision } = site.server.objects;
    const { stdout, stderr, code } = await install(
      `--executable=${executable}`,
      '-o',
      'yaml',
      '--admission-policy=deny',
    );
    expect(code, stderr).to.equal(0);
    expect(stdout).to.match(/^apiVersion: apiextensions\.k8s\.io\/v1\nkind: CustomResourceDefinition\n/);
    // The objects are recorded in test/golden/cluster.
    const executables = await readExecutables([executable]);
    const options = { executables, admission: 'deny', version, startup: undefined, overwrite: false } as const;
    const objects = await planManifests(site.cluster, options, site.context);
    expect(stdout).to.equal(objects.map((object) => formatManifest(object)).join('---\n'));
    expect(stdout).not.to.contain('kind: Secret');
    expect(site.server.objects.revision).to.equal(revision);
  });

  it('passes the options for screens and signals to the agents', async () => {
    const both = await install('--dry-run=client', '-o', 'yaml', '--console=off', '--signal=beep');
    expect(both.stdout).to.match(/^ +args:\n +- --console=off\n +- --signal=beep$/m);
    const usual = await install('--dry-run=client', '-o', 'yaml');
    expect(usual.stdout).not.to.match(/--console|--signal/);
  });

  it('prints the objects of a dry run without an executable', async () => {
    const plan = await install('--dry-run=client', '-o', 'yaml');
    expect(plan.code, plan.stderr).to.equal(0);
    expect(kindsIn(plan.stdout).filter((kind) => kind === 'DaemonSet')).to.have.length(2);
  });

  it('prints the objects that keep images only if nodes need no reboot for them, the first one first', async () => {
    const keeping = await install(`--executable=${executable}`, '-o', 'yaml', '--keep-images');
    expect(keeping.stderr).to.match(
      /^error \([a-z-]+\): .* cannot change the container runtime of nodes without rebooting each of them\nhint: /,
    );
    const metadata = { name: 'cluster' };
    site.server.put({ apiVersion: 'operator.openshift.io/v1', kind: 'MachineConfiguration', metadata, spec: {} });
    const both = await install(`--executable=${executable}`, '-o', 'yaml', '--keep-images');
    expect(both.stderr).to.match(/^warning: apply the MachineConfiguration first/);
    expect(kindsIn(both.stdout)[0]).to.equal('MachineConfiguration');
    expect(kindsIn(both.stdout).slice(-3)).to.deep.equal(['DaemonSet', 'MachineConfig', 'MachineConfig']);
    expect(site.server.find('v1', 'Namespace', 'oc-upgrade-bundle')).to.equal(undefined);
  });

  for (const [words, message] of [
    [['--wait=false', '--keep-images'], /^--keep-images needs --wait/],
    [['--mirror-quota=45Gi'], /^--mirror-quota needs --mirror$/],
    [['--mirror-content=all'], /^--mirror-content needs --mirror$/],
  ] as const) {
    it(`refuses ${words.join(' ')}`, async () => {
      const { code, stderr } = await install(`--executable=${executable}`, ...words);
      expect(code).to.equal(2);
      expect(/^error \([a-z-]+\): (.*)$/m.exec(stderr)?.[1] ?? stderr).to.match(message);
      expect(site.server.find('v1', 'Namespace', 'oc-upgrade-bundle')).to.equal(undefined);
    });
  }

  it('prints the result as JSON, of a dry run too', async () => {
    const json = async (...args: string[]): Promise<Record<string, unknown>> => {
      const { code, stdout, stderr } = await install(`--executable=${executable}`, '-o', 'json', ...args);
      expect(code, stderr).to.equal(0);
      return JSON.parse(stdout) as Record<string, unknown>;
    };
    const agent = {
      apiVersion: 'apps/v1',
      kind: 'DaemonSet',
      metadata: { name: 'agent', namespace: 'oc-upgrade-bundle' },
    };
    const tried = await json('--dry-run=server');
    expect(tried).to.include({ dryRun: true }).and.to.not.have.property('nodes');
    expect(tried['objects']).to.deep.include({ ...agent, outcome: 'created' });
    const made = await json();
    expect(made).to.deep.include({ dryRun: false, removed: [], nodes: 3 });
    expect(made['objects']).to.deep.include({ ...agent, outcome: 'created' });
    expect((await json())['objects']).to.deep.include({ ...agent, outcome: 'unchanged' });
  });

  it('tries without writing', async () => {
    const { revision } = site.server.objects;
    const { stdout, code } = await install(`--executable=${executable}`, '--dry-run');
    expect(code).to.equal(0);
    expect(stdout).to.match(/\ndaemonset\/agent created \(dry run\)\nNothing was written\.\n$/);
    expect(site.server.objects.revision).to.equal(revision);
  });

  it('names the pod that is not ready, with advice', async () => {
    site.kubelets.troubles.set('worker-0', 'CreateContainerError');
    const installing = () => install(`--executable=${executable}`, '--timeout=3');
    const { code, stderr } = await runOutOfTime(3000, site.surveyed(2), installing);
    expect(code).to.equal(1);
    expect(stderr).to.match(
      /^error \([a-z-]+\): the agents of 1 of 3 nodes are not ready after 3 s: agent-worker-0-1 on worker-0: CreateContainerError\nhint: See “oc -n/m,
    );
  });

  it('does not send nodes an executable that they cannot run', async () => {
    const { code, stderr } = await install();
    expect(code).to.equal(2);
    expect(stderr).to.match(/^error \([a-z-]+\): nodes cannot run this program as it is here/m);
    expect(stderr).to.match(/^hint: It is in the archive oc-disconnected-\d.*-linux-amd64\.tar\.gz/m);
    const script = await install(`--executable=${join(import.meta.dirname, 'install.test.ts')}`);
    expect(script.stderr).to.match(/^error \([a-z-]+\): .* is not an executable that runs on a node/m);
    const twice = await install(`--executable=${executable}`, `--executable=${executable}`);
    expect(twice.stderr).to.match(/are for the same architecture, amd64/);
    const strange = await install(`--executable=${await makeExecutable('s390x', 22)}`);
    expect(strange.stderr).to.match(/is for a machine \(ELF 22\) that no agent supports/);
    expect(site.server.requests).to.deep.equal([]);
  });
});
