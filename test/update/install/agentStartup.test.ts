import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { executablePath } from '../../../lib/node/machine/host.ts';
import { uploadExecutable } from '../../../lib/update/install/agentStartup.ts';
import type { Executable } from '../../../lib/update/install/executable.ts';
import { pod } from '../../fakes/cluster/site.ts';
import { offered } from '../../fakes/kubernetes/apiExec.ts';
import type { TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { hasty, startCluster, type StartedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('uploadExecutable', () => {
  const content = randomBytes(3_000_000);
  let folder: string;
  let server: TestApiServer;
  let connected: StartedCluster;
  let executable: Executable;

  beforeEach(async () => {
    folder = await makeFolder();
    await mkdir(join(folder, 'node'));
    const path = join(folder, 'executable');
    await writeFile(path, content);
    const digest = createHash('sha256').update(content).digest('hex');
    executable = { path, architecture: 'amd64', size: content.length, digest };
    connected = await startCluster();
    ({ server } = connected);
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
    server.put(pod('agent-1', 'oc-upgrade-bundle'));
    server.nodeRoots.set('worker-0', join(folder, 'node'));
  });
  afterEach(async () => {
    offered.protocols = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];
    await connected.close();
    await removeFolder(folder);
  });
  const onNode = (): string => join(folder, 'node', executablePath);
  const files = (): Promise<string[]> => readdir(dirname(onNode()));
  const bring = (sent: Executable = executable): Promise<boolean> =>
    uploadExecutable(connected.cluster, { pod: 'agent-1', node: 'worker-0' }, sent, connected.context, hasty);
  const sentBytes = (): number => server.requests.reduce((sum, { bytesReceived }) => sum + bytesReceived, 0);

  for (const protocol of ['v5', 'v4']) {
    it(`uploads the executable, and does nothing if it exists (${protocol})`, async () => {
      offered.protocols = [`${protocol}.channel.k8s.io`];
      expect(await bring()).to.equal(true);
      expect(await readFile(onNode())).to.deep.equal(content);
      expect((await stat(onNode())).mode & 0o777).to.equal(0o755);
      expect(await files()).to.deep.equal(['oc-adm_upgrade_bundle']);
      const sent = sentBytes();
      expect(await bring()).to.equal(false);
      expect(sentBytes()).to.equal(sent);
    });
  }

  it('resumes after a lost connection', async () => {
    const cut = server.fault(/exec.*stdin=true/, { resetUploadAfter: 1_000_000 }, { times: 2 });
    expect(await bring()).to.equal(true);
    expect(cut.hits).to.equal(2);
    expect(await readFile(onNode())).to.deep.equal(content);
    expect(sentBytes()).to.be.below(content.length * 1.5);
    expect(await files()).to.deep.equal(['oc-adm_upgrade_bundle']);
  });

  it('resumes while the node still writes the bytes of a lost connection', async () => {
    server.fault(/exec.*stdin=true/, { resetUploadAfter: 1_000_000 }, { times: 1 });
    server.fault(/exec.*stdin=true/, { resetUploadAfter: 1_000_000, lateUpload: true }, { times: 1, after: 1 });
    expect(await bring()).to.equal(true);
    expect(await readFile(onNode())).to.deep.equal(content);
  });

  it('begins again if more has come than was sent', async () => {
    await mkdir(dirname(onNode()), { recursive: true });
    await writeFile(`${onNode()}.${executable.digest}.partial`, Buffer.alloc(content.length + 1));
    expect(await bring()).to.equal(true);
    expect(await readFile(onNode())).to.deep.equal(content);
  });

  it('gives up when the connection is cut again and again, and leaves nothing with the final name', async () => {
    server.fault(/exec.*stdin=true/, { resetUploadAfter: 1000 });
    const error = await failureOf(bring(), 'unreachable');
    expect(error.message).to.contain('agent-1');
    expect(await files()).not.to.include('oc-adm_upgrade_bundle');
  });

  it('replaces another one only after the new one is complete, and removes partial files', async () => {
    await mkdir(dirname(onNode()), { recursive: true });
    await writeFile(onNode(), 'old', { mode: 0o755 });
    await writeFile(`${onNode()}.${'0'.repeat(64)}.partial`, 'of another version');
    await failureOf(bring({ ...executable, digest: 'f'.repeat(64) }), 'digest-mismatch');
    expect(await readFile(onNode(), 'utf8')).to.equal('old');
    expect(await files()).to.deep.equal(['oc-adm_upgrade_bundle']);
    expect(await bring()).to.equal(true);
    expect(await readFile(onNode())).to.deep.equal(content);
  });

  it('says when the user may not run commands in pods, and when the node refuses the file', async () => {
    const refused = server.fault(/exec/, { answer: { status: 403 } });
    await failureOf(bring(), 'denied');
    expect(refused.hits).to.equal(1);
    server.clearFaults();
    await writeFile(join(folder, 'node', 'var'), 'a file where a folder should be');
    expect((await failureOf(bring(), 'command-failed')).message).to.match(
      /^worker-0 cannot take the executable: .*var/,
    );
  });
});
