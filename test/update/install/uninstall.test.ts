import { spawnSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, mkdir, readdir, writeFile, readFile, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { fieldsOf, listOf, textsOf } from '../../../lib/fields.ts';
import {
  holdFile,
  mirrorFile,
  pinFile,
  nodeStateFolder,
  screenFile,
  screenLinks,
} from '../../../lib/node/machine/host.ts';
import { install } from '../../../lib/update/install.ts';
import { agentObjects } from '../../../lib/update/install/agentObjects.ts';
import { uninstallAgents, type UninstallOptions, cleaningSet } from '../../../lib/update/install/uninstall.ts';
import { openAgentSite, siteNodes, type AgentSite } from '../../fakes/cluster/agents.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { nodesWithoutAgent } from '../../fakes/cluster/site.ts';
import { makeFacts, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import { osImageStreamKind } from '../../fakes/kubernetes/apiKinds.ts';
import { runOutOfTime } from '../../support/clock.ts';
import { connectTo } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { until } from '../../support/until.ts';

const state = '/var/lib/oc-upgrade-bundle';
const upgradeBundleApi = 'upgrade-bundle.openshift.io/v1alpha1';

describe('uninstall', () => {
  let site: AgentSite;

  beforeEach(async () => {
    site = await openAgentSite();
  });
  afterEach(() => site.close());
  const bring = async (): Promise<void> => {
    const startup = { timeout: 120_000, interval: 20 };
    const options = { executables: [site.executable], admission: 'warn', overwrite: false, startup } as const;
    await install(site.cluster, options, site.context);
  };
  const remove = async (changes: Partial<UninstallOptions> = {}): Promise<string[]> => {
    const options = { force: false, removePins: false, timeout: 120_000, interval: 20, ...changes };
    const gone = await uninstallAgents(site.cluster, options, site.context);
    return gone.map(({ kind, metadata }) => `${kind}/${metadata.name}`);
  };
  const everything = (): string[] =>
    site.server.kinds.flatMap((kind) =>
      site.server.objects.list(kind, '').map(({ metadata }) => `${kind.kind}/${metadata.name}`),
    );
  const exists = (node: string, path: string): Promise<boolean> =>
    access(join(site.rootOf(node), path)).then(
      () => true,
      () => false,
    );
  const put = (name: string, phase: string): void => {
    const api = { apiVersion: upgradeBundleApi, kind: 'UpgradeBundle' };
    const digest = `sha256:${'a'.repeat(64)}`;
    site.server.put({ ...api, metadata: { name }, spec: { bundle: { digest } }, status: { phase } });
  };
  const pin = (): void => {
    const metadata = { name: 'pins-worker', labels: { 'app.kubernetes.io/managed-by': 'oc-upgrade-bundle' } };
    site.server.put({ apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'PinnedImageSet', metadata, spec: {} });
  };

  it('leaves the cluster and its nodes as they were before, with the OSImageStream that the cluster uses', async () => {
    site.server.kinds.push(osImageStreamKind);
    const apiVersion = 'machineconfiguration.openshift.io/v1';
    const spec = { defaultStream: 'rhel-9' };
    site.server.put({ apiVersion, kind: 'OSImageStream', metadata: { name: 'cluster' }, spec });
    const before = everything();
    await bring();
    put('done', 'Completed');
    pin();
    for (const node of siteNodes) await writeFile(join(site.rootOf(node), state, 'state.json'), '{}');
    const gone = await remove({ removePins: true });
    expect(gone.slice(0, 2)).to.deep.equal(['DaemonSet/controller', 'DaemonSet/agent']);
    expect(gone.at(-1)).to.equal('Namespace/oc-upgrade-bundle');
    expect(gone).to.include.members(['UpgradeBundle/done', 'PinnedImageSet/pins-worker', 'Secret/bundle-token']);
    expect(everything()).to.deep.equal(before);
    for (const node of siteNodes) expect(await exists(node, state), node).to.equal(false);
    expect(await remove()).to.deep.equal([]);
  });

  it('waits for no node that no agent ran on, even if an earlier version put a pod there, and names it', async () => {
    await bring();
    for (const each of nodesWithoutAgent) site.server.put(each);
    await remove();
    expect(site.context.lines.filter((line) => line.includes('no agent ran'))).to.deep.equal([
      'info: no agent ran on aci-0 (virtual kubelet), admiralty-0 (virtual kubelet), kwok-0 (virtual kubelet), ' +
        'tainted-0 (virtual kubelet), win-0 (Windows)',
    ]);
    expect(everything()).not.to.include('Namespace/oc-upgrade-bundle');
  });

  it('lists in a dry run what it would remove, and removes nothing', async () => {
    await bring();
    const before = everything();
    for (const dryRun of ['client', 'server'] as const) {
      expect(await remove({ dryRun })).to.include.members(['DaemonSet/agent', 'Namespace/oc-upgrade-bundle']);
    }
    expect(everything()).to.deep.equal(before);
    for (const node of siteNodes) expect(await exists(node, state)).to.equal(true);
  });

  it('refuses while an update is running, unless it is forced', async () => {
    await bring();
    put('going', 'Loading');
    const error = await failureOf(remove(), 'conflict');
    expect(error.message).to.equal('going is under way: Loading');
    expect(await exists('worker-0', state)).to.equal(true);
    expect(await remove({ force: true })).to.include('UpgradeBundle/going');
  });

  it('keeps pins by default, and the content of the nodes if it must not wait', async () => {
    await bring();
    pin();
    const gone = await remove({ timeout: undefined });
    expect(gone).not.to.include('PinnedImageSet/pins-worker');
    expect(everything()).to.include('PinnedImageSet/pins-worker');
    for (const node of siteNodes) expect(await exists(node, state)).to.equal(true);
  });

  it('keeps the list of pins of CRI-O on the nodes by default', async () => {
    const write = async (path: string): Promise<void> => {
      const file = join(site.rootOf('worker-0'), path);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, 'x');
    };
    await bring();
    await write(pinFile);
    for (const path of [mirrorFile, holdFile]) await write(path);
    await remove();
    expect(await exists('worker-0', pinFile)).to.equal(true);
    for (const path of [mirrorFile, holdFile]) expect(await exists('worker-0', path), path).to.equal(false);
    await bring();
    await remove({ removePins: true });
    expect(await exists('worker-0', pinFile)).to.equal(false);
  });

  it('keeps the setting that keeps images, unless pins are removed too', async () => {
    await bring();
    const machines = 'machineconfiguration.openshift.io/v1';
    const metadata = { name: '98-worker-oc-upgrade-bundle-store' };
    site.server.put({ apiVersion: machines, kind: 'MachineConfig', metadata, spec: {} });
    await remove();
    expect(site.server.find(machines, 'MachineConfig', metadata.name)).not.to.equal(undefined);
    await bring();
    await remove({ removePins: true, timeout: undefined });
    expect(site.server.find(machines, 'MachineConfig', metadata.name)).to.equal(undefined);
  });

  it('names the node that could not be cleaned up, keeps the objects, and resumes in the next run', async () => {
    await bring();
    site.kubelets.troubles.set('worker-1', 'ContainerCannotRun');
    const error = await failureOf(remove({ timeout: 500 }), 'not-ready');
    expect(error.message).to.match(/^cannot clean up some nodes: .*worker-1: ContainerCannotRun/);
    expect(everything()).to.include('Namespace/oc-upgrade-bundle');
    site.kubelets.troubles.clear();
    await remove();
    expect(await exists('worker-1', state)).to.equal(false);
  });

  it('waits for the kind, whose objects may be held, and meanwhile nothing is installed', async () => {
    await bring();
    put('held', 'Completed');
    const held = { apiVersion: upgradeBundleApi, kind: 'UpgradeBundle', metadata: { name: 'held' } };
    const hold = (finalizers: string[]) => site.cluster.patch(held, { metadata: { finalizers } });
    await hold(['example.com/hold']);
    const isAsked = ({ method, path }: { method: string; path: string }): boolean =>
      method === 'GET' && path.endsWith('/customresourcedefinitions/upgradebundles.upgrade-bundle.openshift.io');
    // It asks for nothing else while it waits for the kind.
    const waits = (): boolean => site.server.requests.slice(-2).every(isAsked);
    const error = await runOutOfTime(120_000, waits, () => failureOf(remove(), 'not-ready'));
    const kind = 'customresourcedefinition/upgradebundles.upgrade-bundle.openshift.io';
    expect(error.message).to.equal(`${kind} is not gone yet. CustomResource deletion is in progress`);
    expect(error.hint).to.contain(`oc get ${kind} -o yaml`);
    expect((await failureOf(bring(), 'not-ready')).message).to.equal(`${kind}: it is being deleted, and would be lost`);
    await hold([]);
    await bring();
    expect(everything()).to.include(`CustomResourceDefinition/${kind.split('/')[1]}`);
  });

  it('empties a folder that is a mount point, and leaves it', async function () {
    await bring();
    const folder = join(site.rootOf('worker-0'), state);
    if (spawnSync('mount', ['-t', 'tmpfs', 'none', folder]).status !== 0) this.skip();
    try {
      await writeFile(join(folder, 'state.json'), '{}');
      await remove();
      expect(await readdir(folder)).to.deep.equal([]);
    } finally {
      spawnSync('umount', [folder]);
    }
  });

  it('touches no other file of a node', async () => {
    await bring();
    const other = join(site.rootOf('worker-0'), 'var/lib/other');
    await writeFile(other, 'somebody else’s');
    await remove();
    expect(await exists('worker-0', 'var/lib/other')).to.equal(true);
  });
});

describe('uninstall, while an update is under way', () => {
  it('restores objects that the controller has paused', async () => {
    await using rollout = await RolloutSite.start({ openshift: '4.18.3' });
    await using connected = await connectTo(rollout.server);
    const { cluster, context } = connected;
    const kinds = ['MachineHealthCheck', 'ClusterAutoscaler', 'MachineConfigPool'];
    const others = (): unknown[] =>
      kinds.flatMap((kind) =>
        rollout
          .all(kind)
          .map(({ metadata, spec }) => ({ name: metadata.name, of: metadata['annotations'] ?? {}, spec })),
      );
    const before = others();
    rollout.facts = makeFacts({ previous: ['4.18.3'] });
    rollout.site.updating = false;
    rollout.server.put(upgradeBundle());
    const controller = await rollout.control();
    await rollout.untilPhase('Upgrading');
    expect(JSON.stringify(others())).to.match(/paused-for.*paused-for.*paused-for.*paused-for/);
    controller.crash();
    const refused = await failureOf(
      uninstallAgents(cluster, { force: false, removePins: false, timeout: undefined }, context),
      'conflict',
    );
    expect(refused.hint).to.contain('restores what the update has paused');
    await uninstallAgents(cluster, { force: true, removePins: false, timeout: undefined }, context);
    expect(others()).to.deep.equal(before);
    const restored = context.lines.filter((line) => line.startsWith('info: restored '));
    expect(restored).to.have.members([
      'info: restored machinehealthcheck/workers',
      'info: restored clusterautoscaler/default',
      'info: restored machineconfigpool/master',
      'info: restored machineconfigpool/worker',
    ]);
  });
});

/** Returns the script that runs on each node when an installation is removed. */
function cleanScript(): string {
  const [agents] = agentObjects({ image: 'i', executables: {}, admission: undefined, rules: true }).slice(-1);
  const set = cleaningSet(agents ?? expect.fail('there is no DaemonSet'), { removePins: false });
  const pod = fieldsOf(fieldsOf(fieldsOf(set['spec'])['template'])['spec']);
  return textsOf(listOf(pod['containers'])[0]?.['command'])[2] ?? '';
}

describe('the cleanup of a node', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await makeFolder();
    await mkdir(join(folder, 'bin'));
    await writeFile(join(folder, 'bin/chroot'), '#!/bin/bash\nshift\necho "$*" >> "$RECORD"\n', { mode: 0o755 });
  });
  afterEach(() => removeFolder(folder));

  /** Runs it until it waits, with a folder in the place of the node. */
  const clean = async (): Promise<string> => {
    const script = cleanScript().replaceAll('/host', join(folder, 'host'));
    const record = join(folder, 'record');
    const waiting = script.replace('exec sleep infinity', 'echo done >> "$RECORD"\nexec sleep infinity');
    const env = { PATH: `${join(folder, 'bin')}:${String(process.env['PATH'])}`, RECORD: record };
    const child = spawn('/bin/bash', ['-c', waiting], { env, stdio: 'ignore' });
    const read = (): Promise<string> => readFile(record, 'utf8').catch(() => '');
    await until(async () => (await read()).includes('done'));
    const ended = once(child, 'close');
    child.kill();
    await ended;
    return read();
  };
  const put = async (path: string, text: string): Promise<void> => {
    await mkdir(dirname(join(folder, 'host', path)), { recursive: true });
    await writeFile(join(folder, 'host', path), text);
  };

  it('removes the text of the login screen, and redraws it', async () => {
    await put(screenFile, 'Do not switch off.');
    await put('/etc/issue.d/22_clhm_eth0.issue', 'eth0');
    await symlink('../../run/x', join(folder, 'host', screenLinks.etc));
    await put(`${nodeStateFolder}/bin/x`, '');
    expect(await clean()).to.equal('agetty --reload\ndone\n');
    expect(await readdir(join(folder, 'host/etc/issue.d'))).to.deep.equal(['22_clhm_eth0.issue']);
    expect(await readdir(join(folder, 'host/run'))).to.deep.equal([]);
  });

  it('removes the link also if nothing was said since the boot', async () => {
    await mkdir(join(folder, 'host/etc/issue.d'), { recursive: true });
    await symlink('../../run/x', join(folder, 'host', screenLinks.etc));
    expect(await clean()).to.equal('done\n');
    expect(await readdir(join(folder, 'host/etc/issue.d'))).to.deep.equal([]);
  });
});
