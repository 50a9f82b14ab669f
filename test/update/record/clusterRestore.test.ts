import { expect } from 'chai';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { furnish, node } from '../../fakes/cluster/site.ts';
import { makeBackup, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { runProgram } from '../../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import type { Execution } from '../../support/program/execution.ts';

const day = 86_400_000;
const daysAgo = (days: number): string => new Date(Date.now() - days * day).toISOString().replace(/\.\d+/, '');

describe('planClusterRestore', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let kubeconfig: string;
  const backup = { ...makeBackup('4.19.3'), node: 'master-1', pools: [{ name: 'master', config: 'rendered-1' }] };

  beforeEach(async () => {
    server = await startApiServer({ openshift: '4.19.3' });
    server.put(upgradeBundleDefinition());
    furnish(server);
    for (const name of ['master-0', 'master-1', 'master-2', 'worker-0', 'worker-1']) putNode(name, 60);
    putPool('rendered-1');
    putCreated(90);
    kubeconfigs = await makeKubeconfigFolder();
    kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
  });
  afterEach(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });
  const putNode = (name: string, days: number): void => {
    const { metadata, ...made } = node(name, name.startsWith('master') ? 'master' : 'worker');
    server.put({ ...made, metadata: { ...metadata, ...created(days) } });
  };
  const created = (days: number): Json => ({ creationTimestamp: daysAgo(days) });
  const putPool = (name: string): void => {
    const pool = { apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'MachineConfigPool' };
    server.put({ ...pool, metadata: { name: 'master' }, status: { configuration: { name } } });
  };
  const putRecord = (backups: object[], name = 'upgrade-4.19.4-amd64'): void => {
    server.put({ ...upgradeBundle(name), status: { phase: 'Pinned', version: '4.19.4', backups } });
  };
  const putCreated = (days: number): void => {
    const version = server.find('config.openshift.io/v1', 'ClusterVersion', 'version');
    server.put({ ...version, metadata: { name: 'version', ...created(days) } });
  };
  const run = (...args: string[]): Promise<Execution> =>
    runProgram(kubeconfigs.folder, 'status', ['--restore', kubeconfig, ...args]);

  it('prints the steps of OpenShift for the nodes and the folder of the last backup', async () => {
    putRecord([{ ...backup, version: '4.18.9', path: '/home/core/other' }, backup]);
    const { code, stdout, stderr } = await run();
    expect(code, stderr).to.equal(0);
    const commands = stdout.split('\n').flatMap((line) => /^ {5}(\S.*)$/.exec(line)?.[1] ?? []);
    expect(commands).to.deep.equal([
      'ssh core@master-0',
      'ssh core@master-1',
      'ssh core@master-2',
      `sudo sh -c 'sha256sum ${backup.path}/snapshot_*.db'`,
      'sudo -E /usr/local/bin/disable-etcd.sh',
      `sudo -E /usr/local/bin/cluster-restore.sh ${backup.path}`,
      `oc patch upgradebundle upgrade-4.19.4-amd64 --type=merge -p '{"spec":{"hold":true}}'`,
      'oc patch etcd/cluster --type=merge -p ' +
        `'{"spec":{"unsupportedConfigOverrides":{"useUnsupportedUnsafeNonHANonProductionUnstableEtcd":true}}}'`,
      'oc adm wait-for-stable-cluster',
      `oc patch etcd/cluster --type=merge -p '{"spec":{"unsupportedConfigOverrides":null}}'`,
      'oc adm-upgrade-bundle preflight',
    ]);
    expect(stdout).to.contain(`Folder     ${backup.path}\n`);
    expect(stdout).to.contain('Check the snapshot. Its SHA-256 is');
    expect(stdout).to.match(/3\. Stop etcd .* On master-0, master-1,\s+master-2:\n/);
    expect(stdout).to.match(/4\. Restore etcd .* On master-1:\n/);
    expect(stdout).not.to.contain('joined since').and.not.to.contain('not support');
  });

  it('makes no command of a backup that none of this program is', async () => {
    const folder = backup.path.replace(/[^/]*$/, '');
    const forged = [
      { path: '/var/lib/x y; touch PWNED #' },
      { path: `${folder}x'; touch PWNED #` },
      { path: `${folder}../../../etc` },
      { node: 'master-0; touch PWNED' },
      { node: '-oProxyCommand=touch' },
      { copy: '/mnt/usb\n\n  7. Run this to finish:\n     touch PWNED' },
    ].map((change, index) => ({ ...backup, path: `${backup.path}-${index}`, ...change }));
    putRecord(forged);
    const none = await run();
    expect(none.code).to.equal(1);
    expect(none.stderr).to.match(/has no backup\nhint: The record has 6 of another form/);
    putRecord([...forged, backup]);
    const { code, stdout, stderr } = await run();
    expect(code, stderr).to.equal(0);
    expect(stdout).to.contain('The record has 6 backups of another form').and.to.not.contain('PWNED');
    expect(stdout).to.contain(`cluster-restore.sh ${backup.path}`);
  });

  it('takes the newest record with a backup, which that of a retained bundle has not', async () => {
    const status = { phase: 'Completed', version: '4.19.4' };
    server.put({ ...upgradeBundle('4.19.4-x86-64', {}, created(1)), status: { ...status, backups: [backup] } });
    server.put({ ...upgradeBundle('retain-4.19.4-x86-64', {}, created(0)), status });
    expect((await run()).stdout).to.contain(`cluster-restore.sh ${backup.path}`);
  });

  it('stops no etcd and turns off no quorum guard on a cluster with one control plane node', async () => {
    for (const name of ['master-1', 'master-2']) {
      const kind = server.kinds.find((each) => each.kind === 'Node');
      if (kind) server.objects.delete({ kind, namespace: '', name }, {}, false);
    }
    putRecord([{ ...backup, node: 'master-0' }]);
    const { code, stdout, stderr } = await run('-o', 'json');
    expect(code, stderr).to.equal(0);
    const { steps } = JSON.parse(stdout) as { steps: { nodes: string[]; commands: string[] }[] };
    const text = JSON.stringify(steps);
    expect(text).to.contain(`cluster-restore.sh ${backup.path}`);
    expect(text).not.to.contain('disable-etcd.sh').and.not.to.contain('unsupportedConfigOverrides');
    expect(steps.flatMap(({ nodes }) => nodes)).to.deep.equal(['master-0', 'master-0']);
  });

  const cases: readonly (readonly [what: string, prepare: () => void, reason: RegExp, hasSteps?: true])[] = [
    [
      'of another release than the cluster runs',
      () => putRecord([{ ...backup, version: '4.19.2' }]),
      /is of 4\.19\.2, and the cluster runs or installs 4\.19\.3: OpenShift restores a backup of the same release only/,
      true,
    ],
    [
      'of another machine configuration',
      () => {
        putRecord([backup]);
        putPool('rendered-2');
      },
      /machine configuration changed since the backup: master \(rendered-1, now rendered-2\)/,
      true,
    ],
    [
      'whose certificates have expired',
      () => putRecord([{ ...backup, time: daysAgo(31) }]),
      /older than 30 days, so certificates in it have expired/,
      true,
    ],
    [
      'from before the first certificates were renewed',
      () => {
        putCreated(2);
        putRecord([{ ...backup, time: daysAgo(1.5) }]);
      },
      /first 24 hours of the cluster/,
      true,
    ],
    [
      'that its node has removed, because later updates made two more',
      () => {
        putRecord([{ ...backup, time: daysAgo(3) }]);
        putRecord(
          [1, 2].map((days) => ({ ...backup, path: `${backup.path}-${days}`, time: daysAgo(days) })),
          'later',
        );
      },
      /master-1 has removed .*: it keeps the last 2 backups/,
    ],
    [
      'on a node that is gone',
      () => putRecord([{ ...backup, node: 'master-7' }]),
      /master-7, which had the backup, is no longer in the cluster/,
    ],
    [
      'of a control plane of two nodes with fencing',
      () => {
        putRecord([backup]);
        const infrastructure = { apiVersion: 'config.openshift.io/v1', kind: 'Infrastructure' };
        const status = { controlPlaneTopology: 'DualReplica' };
        server.put({ ...infrastructure, metadata: { name: 'cluster' }, status });
      },
      /two nodes with fencing, whose etcd has no script for that before 4\.22/,
    ],
  ];
  for (const [what, prepare, reason, hasSteps = false] of cases) {
    it(`says why OpenShift does not support the restore of a backup ${what}`, async () => {
      prepare();
      const { code, stdout, stderr } = await run('upgrade-4.19.4-amd64', '-o', 'json');
      expect(code, stderr).to.equal(1);
      const { obstacles, steps } = JSON.parse(stdout) as { obstacles: string[]; steps: unknown[] };
      expect(obstacles).to.have.length(1);
      expect(obstacles[0]).to.match(reason);
      expect(steps.length > 0).to.equal(hasSteps);
      const { stdout: text } = await run('upgrade-4.19.4-amd64');
      expect(text.replaceAll(/\s+/g, ' ')).to.match(reason).and.to.contain('does not support its restore now:');
      expect(text.includes('cluster-restore.sh')).to.equal(hasSteps);
      expect(text.includes('for a case of the OpenShift support')).to.equal(hasSteps);
    });
  }

  it('prints the steps for two nodes with fencing, whose etcd pacemaker runs', async () => {
    const cluster = server.find('config.openshift.io/v1', 'ClusterVersion', 'version');
    const history = [{ state: 'Completed', version: '4.22.1', image: 'x' }];
    server.put({ ...cluster, status: { desired: { version: '4.22.1' }, history } });
    const kind = server.kinds.find((each) => each.kind === 'Node');
    if (kind) server.objects.delete({ kind, namespace: '', name: 'master-2' }, {}, false);
    putRecord([{ ...backup, version: '4.22.1' }]);
    const status = { controlPlaneTopology: 'DualReplica' };
    const metadata = { name: 'cluster' };
    server.put({ apiVersion: 'config.openshift.io/v1', kind: 'Infrastructure', metadata, status });
    const { code, stdout, stderr } = await run();
    expect(code, stderr).to.equal(0);
    const commands = stdout.split('\n').flatMap((line) => /^ {5}(\S.*)$/.exec(line)?.[1] ?? []);
    expect(commands.map((command) => command.replace(backup.path, 'PATH'))).to.deep.equal([
      'ssh core@master-0',
      'ssh core@master-1',
      "sudo sh -c 'sha256sum PATH/snapshot_*.db'",
      'sudo -E /usr/local/bin/cluster-restore.sh PATH',
      `oc patch upgradebundle upgrade-4.19.4-amd64 --type=merge -p '{"spec":{"hold":true}}'`,
      'oc adm wait-for-stable-cluster',
      `oc patch etcd cluster --type=merge -p '{"spec":{"forceRedeploymentReason":"restore"}}'`,
      'oc adm-upgrade-bundle preflight',
    ]);
  });

  it('takes a copy for a node that is gone, and names nodes that joined since', async () => {
    const record = { ...backup, node: 'master-7', copy: '/mnt/drive/backup', time: daysAgo(20) };
    putRecord([record]);
    putNode('worker-1', 1);
    const { code, stdout, stderr } = await run();
    expect(code, stderr).to.equal(0);
    const text = stdout.replaceAll(/\s+/g, ' ');
    expect(text).to.contain('master-7 is gone: copy /mnt/drive/backup to another control plane node');
    expect(text).to.contain('These nodes joined since and have to join again: worker-1.');
    expect(text).to.contain('older than 15 days');
  });

  it('says that there is no backup, and excludes a watch', async () => {
    putRecord([]);
    expect((await run()).stderr).to.contain('upgrade-4.19.4-amd64 has no backup');
    expect((await run('-w')).code).to.equal(2);
  });
});
