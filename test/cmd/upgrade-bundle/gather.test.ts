import { mkdir, readdir, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { list as listTar } from 'tar';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { furnish, platformImage } from '../../fakes/cluster/site.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { startHostileServer } from '../../fakes/kubernetes/hostileServer.ts';
import { runProgram } from '../../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import type { Execution } from '../../support/program/execution.ts';

const jwt = 'eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl';
const key = `-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----`;

describe('oc adm-upgrade-bundle gather', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let kubeconfig: string;
  const namespace = 'oc-upgrade-bundle';

  const start = async (allow: (attempt: { resource: string }) => boolean = () => true): Promise<void> => {
    server = await startApiServer({ openshift: '4.19.3', tokens: new Map([['t', 'admin']]), allow });
    server.put(upgradeBundleDefinition());
    furnish(server);
    for (const name of [namespace, `${namespace}-reports`, 'openshift-machine-config-operator'])
      server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    server.put({ ...upgradeBundle(), status: { phase: 'Loading', version: '4.19.4' } });
    const progress = { name: 'worker-0', phase: 'Loading', imagesLoaded: 1, imagesTotal: 3, bytes: 5 } as const;
    server.put({ ...formatNodeReport({ bundle: 'x', progress }) });
    server.put({
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'bundle-token', namespace },
      data: { token: 'c2VjcmV0' },
    });
    const env = [
      { name: 'PULL_SECRET', value: 'hunter2' },
      { name: 'NODE_NAME', value: 'worker-0' },
    ];
    server.put({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'agent-x', namespace, annotations: { note: jwt } },
      spec: { nodeName: 'worker-0', containers: [{ name: 'agent', image: platformImage('d'), env }] },
      status: { phase: 'Running', containerStatuses: [{ name: 'agent', restartCount: 1 }] },
    });
    server.podLogs.set(`${namespace}/agent-x`, ['loading 1 of 3', `proxy http://joe:pw123@proxy:3128 ${key}`]);
    server.put({ apiVersion: 'v1', kind: 'Event', metadata: { name: 'e', namespace: 'default' }, reason: 'Loading' });
    kubeconfigs = await makeKubeconfigFolder();
    kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url }, user: { token: 't' } })}`;
  };
  afterEach(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });
  const run = (...args: string[]): Promise<Execution> =>
    runProgram(kubeconfigs.folder, 'gather', [kubeconfig, ...args]);

  it('writes records, reports, images, events and logs, without secrets', async () => {
    await start();
    const folder = join(kubeconfigs.folder, 'state');
    const { code, stdout, stderr } = await run(`--dest-dir=${folder}`, '-o', 'json');
    expect(code, stderr).to.equal(0);
    expect(JSON.parse(stdout)).to.deep.include({ output: folder, failures: [] });
    const names = await readdir(folder, { recursive: true });
    expect(names).to.include.members([
      'failures.txt',
      'nodes/worker-0-images.txt',
      'objects/upgradebundle.json',
      'objects/event-default.json',
      `objects/lease-${namespace}-reports.json`,
      `logs/${namespace}/agent-x/agent.log`,
      `logs/${namespace}/agent-x/agent.previous.log`,
    ]);
    const files = names.filter((name) => /\.\w+$/.test(name));
    const texts = await Promise.all(files.map((name) => readFile(join(folder, name), 'utf8')));
    const all = texts.join('\n');
    expect(all).to.contain('loading 1 of 3').and.to.contain(platformImage('a')).and.to.contain('NODE_NAME');
    for (const secret of ['c2VjcmV0', 'hunter2', 'pw123', 'MHcCAQEE', jwt, 'managedFields'])
      expect(all, secret).not.to.contain(secret);
    expect(server.requests.some(({ path }) => path.includes('/secrets'))).to.equal(false);
    expect((await run(`--dest-dir=${folder}`)).stderr).to.contain('cannot be created as a new folder');
  });

  it('writes one tar, and lists the unreadable objects', async () => {
    await start(({ resource }) => resource !== 'poddisruptionbudgets' && resource !== 'pods/log');
    const path = join(kubeconfigs.folder, 'state');
    const { code, stdout, stderr } = await run(`--dest-dir=${path}`, '--tar');
    expect(code, stderr).to.equal(0);
    expect(stdout).to.match(/^wrote \d+ files to .*state\.tar\nredacted /);
    expect(stderr).to.contain('warning: 3 parts could not be read: see failures.txt');
    const names: string[] = [];
    await listTar({ file: `${path}.tar`, onReadEntry: (entry) => void names.push(entry.path) });
    expect(names).to.include('upgrade-bundle-gather/objects/upgradebundle.json');
    expect(names.at(-1)).to.equal('upgrade-bundle-gather/failures.txt');
    expect((await readFile(`${path}.tar`, 'utf8')).includes('PodDisruptionBudget: ')).to.equal(true);
  });

  it('prints the number of redactions by kind, and with --review each redacted line and no tar', async () => {
    await start();
    const folder = join(kubeconfigs.folder, 'the state');
    const { code, stdout, stderr } = await run(`--dest-dir=${folder}`, '--review');
    expect(code, stderr).to.equal(0);
    expect(stdout).to.match(/^objects\/pod-oc-upgrade-bundle\.json:\d+: "value": "REDACTED"$/m);
    expect(stdout).to.match(/^logs\/.*\/agent\.log:2: proxy http:\/\/REDACTED@proxy:3128 REDACTED$/m);
    expect(stdout)
      .to.match(/^redacted environment variable: 1$/m)
      .and.to.match(/^redacted private key: 2$/m);
    expect(stdout.trimEnd().split('\n').at(-1)).to.equal(`To pack it: tar -cf '${folder}.tar' '${folder}'`);
    expect((await stat(folder)).mode & 0o777).to.equal(0o700);
    expect((await stat(join(folder, 'failures.txt'))).mode & 0o777).to.equal(0o600);
    const data = await run(`--dest-dir=${folder}2`, '--review', '-o', 'json');
    const { redacted } = JSON.parse(data.stdout) as { redacted: object[] };
    expect(redacted).to.deep.include({ what: 'environment variable', count: 1 });
    expect((await run('--tar', '--review')).stderr).to.contain('--review packs nothing, so it excludes --tar');
  });

  it('writes below its folder only, also if names of a cluster are paths', async () => {
    await start();
    await using hostile = await startHostileServer(['../../x', '..', '/etc', 'a\0b\nc', 'n'.repeat(300), 'worker-0']);
    const config = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: hostile.url } })}`;
    const folder = join(kubeconfigs.folder, 'a', 'b', 'state');
    await mkdir(dirname(folder), { recursive: true });
    const { code, stderr } = await runProgram(kubeconfigs.folder, 'gather', [config, `--dest-dir=${folder}`]);
    expect(code, stderr).to.equal(0);
    expect(await readdir(dirname(folder))).to.deep.equal(['state']);
    expect(await readdir(join(kubeconfigs.folder, 'a'))).to.deep.equal(['b']);
    const tar = await runProgram(kubeconfigs.folder, 'gather', [config, `--dest-dir=${folder}`, '--tar']);
    expect(tar.code, tar.stderr).to.equal(0);
    const members: string[] = [];
    await listTar({ file: `${folder}.tar`, onReadEntry: (entry) => void members.push(entry.path) });
    expect(members).to.have.length.above(10);
    const outside = members.filter(
      (path) => !path.startsWith('upgrade-bundle-gather/') || /\/\.\.?(?:\/|$)/.test(path),
    );
    expect(outside).to.deep.equal([]);
  });
});
