import { once } from 'node:events';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { backupFolder } from '../../../lib/node/machine/host.ts';
import { AgentBackup } from '../../../lib/update/agent/agentBackup.ts';
import type { BackupReport } from '../../../lib/update/record/nodeReport.ts';
import type { UpgradeBundle } from '../../../lib/update/record/upgradeBundle.ts';
import { makeBackupHost } from '../../fakes/cluster/backupPrograms.ts';
import { furnish } from '../../fakes/cluster/site.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { connectTo, type ConnectedCluster } from '../../support/cluster.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('AgentBackup', () => {
  let root: string;
  let server: TestApiServer;
  let connected: ConnectedCluster;
  const open: AgentBackup[] = [];
  let context: TestContext;

  beforeEach(async () => {
    root = await makeFolder();
    context = makeContext();
    server = await startApiServer({ openshift: '4.19.3' });
    furnish(server);
    connected = await connectTo(server);
  });
  afterEach(async () => {
    for (const each of open.splice(0)) await each.close();
    await connected.close();
    await server.stop();
    await removeFolder(root);
  });

  const make = async (script?: string): Promise<AgentBackup> => {
    const backup = new AgentBackup(connected.cluster, await makeBackupHost(root, script), context);
    open.push(backup);
    return backup;
  };
  const record = (backupNode: string | undefined, version = '4.19.4'): UpgradeBundle => {
    const made = upgradeBundle(undefined, {}, { uid: 'one' }) as object as UpgradeBundle;
    return { ...made, status: { phase: 'Pinned', version, ...(backupNode !== undefined && { backupNode }) } };
  };
  const until = async (backup: AgentBackup, bundle = record('master-0')): Promise<BackupReport> => {
    for (;;) {
      const found = await backup.advance(bundle, 'master-0');
      if (found) return found;
      if (!backup.ended.aborted) await once(backup.ended, 'abort');
    }
  };

  it('makes the backup once if the controller asks this node, and finds it again after a restart', async () => {
    const backup = await make();
    const first = await until(backup);
    expect(first.made).to.include({ version: '4.19.3' });
    const again = await make('#!/bin/sh\nexit 1\n');
    expect(await again.advance(record('master-0'), 'master-0')).to.deep.equal(first);
    expect(await readdir(join(root, backupFolder))).to.have.length(1);
    // Another update needs another backup.
    expect(await again.advance(record('master-0', '4.20.1'), 'master-0')).to.equal(undefined);
  });

  it('makes another backup if the last one is old, or of another version than the cluster has', async () => {
    const backup = await make();
    const { made } = await until(backup);
    const marker = join(root, made?.path ?? '', 'backup.json');
    const noted = JSON.parse(await readFile(marker, 'utf8')) as object;
    for (const change of [{ time: new Date(Date.now() - 7 * 3600_000).toISOString() }, { version: '4.19.2' }]) {
      await writeFile(marker, JSON.stringify({ ...noted, ...change }));
      expect(await (await make('#!/bin/sh\nexit 1\n')).advance(record('master-0'), 'master-0')).to.equal(undefined);
    }
  });

  it('does nothing if the cluster has no version', async () => {
    const found = server.find('config.openshift.io/v1', 'ClusterVersion', 'version') ?? expect.fail();
    server.put({ ...found, status: {} });
    const backup = await make();
    expect(await backup.advance(record('master-0'), 'master-0')).to.equal(undefined);
    expect(context.lines).to.deep.equal([]);
  });

  it('does nothing if another node is asked', async () => {
    const backup = await make();
    for (const node of [undefined, 'master-1'])
      expect(await backup.advance(record(node), 'master-0')).to.equal(undefined);
    expect(await readdir(root)).not.to.include('home');
  });

  it('reports why it fails, and forgets it when it is no longer asked', async () => {
    const backup = await make('#!/bin/sh\necho no etcd >&2\nexit 1\n');
    expect((await until(backup)).failure).to.match(/^cluster-backup\.sh failed: no etcd/);
    expect(await backup.advance(record('master-1'), 'master-0')).to.equal(undefined);
    await writeFile(join(root, 'usr/bin/cluster-backup.sh'), '#!/bin/sh\nexit 3\n');
    expect((await until(backup)).failure).to.match(/failed/);
  });
});
