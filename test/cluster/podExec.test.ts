import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { PodCommand } from '../../lib/cluster/podExec.ts';
import { pod } from '../fakes/cluster/site.ts';
import { offered } from '../fakes/kubernetes/apiExec.ts';
import { startApiServer, type TestApiServer } from '../fakes/kubernetes/apiServer.ts';
import { makeAuthority } from '../support/certificates.ts';
import { connectTo, startCluster, type StartedCluster } from '../support/cluster.ts';
import { failureOf } from '../support/program/failure.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';

describe('PodExec', () => {
  let server: TestApiServer;
  let connected: StartedCluster;
  let folder: string;

  beforeEach(async () => {
    folder = await makeFolder();
    connected = await startCluster();
    ({ server } = connected);
    furnish(server);
  });
  afterEach(async () => {
    offered.protocols = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];
    await connected.close();
    await removeFolder(folder);
  });
  const furnish = (with_: TestApiServer): void => {
    with_.put(pod('agent', 'default'));
    with_.nodeRoots.set('worker-0', folder);
  };
  const run = (command: readonly string[], input?: PodCommand['input']) =>
    connected.cluster.exec({ namespace: 'default', pod: 'agent', container: 'main', command, ...(input && { input }) });
  async function* pieces(count: number): AsyncGenerator<Buffer> {
    for (let index = 0; index < count; index += 1) yield await Promise.resolve(Buffer.alloc(64 * 1024, index));
  }

  it('returns the output of a command, and its exit code', async () => {
    expect(await run(['/bin/bash', '-c', 'echo yes; echo no >&2; exit 3'])).to.deep.equal({
      code: 3,
      stdout: 'yes\n',
      stderr: 'no\n',
    });
    expect(await run(['/bin/bash', '-c', 'head -c 1000000 /dev/zero']))
      .to.have.property('stdout')
      .with.length(65_536);
  });

  for (const protocol of ['v5', 'v4']) {
    it(`hands over all of an input that is larger than any buffer (${protocol})`, async () => {
      offered.protocols = [`${protocol}.channel.k8s.io`];
      const script = 'head -c 6553600 > /host/there; sha256sum < /host/there';
      const { code, stdout } = await run(['/bin/bash', '-c', script], pieces(100));
      expect(code).to.equal(0);
      expect(stdout).to.match(/^[0-9a-f]{64} /);
      expect((await readFile(join(folder, 'there'))).length).to.equal(6_553_600);
    });
  }

  it('closes the input of the command if the server supports that', async () => {
    expect(await run(['/bin/bash', '-c', 'wc -c'], pieces(2))).to.include({ code: 0, stdout: '131072\n' });
  });

  it('does not wait for a command that reads no input', async () => {
    expect(await run(['/bin/bash', '-c', 'exit 4'], pieces(1000))).to.include({ code: 4 });
  });

  it('says that a connection was cut, and that a program could not be run', async () => {
    server.fault(/exec/, { resetUploadAfter: 200_000 }, { times: 1 });
    const cut = await failureOf(run(['/bin/bash', '-c', 'head -c 6553600 > /host/there'], pieces(100)), 'unreachable');
    expect(cut.message).to.equal('the connection to the pod agent of test was cut');
    const absent = await failureOf(run(['/absent/program']), 'command-failed');
    expect(absent.message).to.match(/^\/absent\/program could not be run in the pod agent: .*ENOENT/);
  });

  it('throws “interrupted” for a command that is requested after an interruption', async () => {
    const within = connected.cluster.within(AbortSignal.abort());
    const command = { namespace: 'default', pod: 'agent', container: 'main', command: ['touch', '/host/there'] };
    await failureOf(within.exec(command), 'interrupted');
    expect(await readdir(folder)).to.deep.equal([]);
  });

  it('reports a refusal in the words of the server', async () => {
    const gone = await failureOf(
      connected.cluster.exec({ namespace: 'default', pod: 'gone', container: 'main', command: ['true'] }),
      'not-found',
    );
    expect(gone.message).to.equal('pods "gone" not found');
    server.nodeRoots.clear();
    expect((await failureOf(run(['true']), 'server-error')).message).to.contain('error dialing backend');
    await server.stop();
    await failureOf(run(['true']), 'unreachable');
  });

  it('logs in as every request does: over TLS, with a token, and again if that is refused', async () => {
    await using authority = await makeAuthority();
    const { key, certificate: cert } = await authority.issue();
    const tokens = new Map([['good', 'me']]);
    const allow = ({ resource }: { resource: string }): boolean => resource === 'pods/exec';
    await using secure = await startApiServer({ tls: { key, cert }, tokens, allow });
    furnish(secure);
    const ca = { 'certificate-authority-data': Buffer.from(authority.certificate).toString('base64') };
    await using insider = await connectTo(secure, { cluster: { server: secure.url, ...ca }, user: { token: 'good' } });
    await using stranger = await connectTo(secure, { cluster: { server: secure.url, ...ca }, user: { token: 'bad' } });
    const request = { namespace: 'default', pod: 'agent', container: 'main', command: ['true'] };
    expect(await insider.cluster.exec(request)).to.include({ code: 0 });
    await failureOf(stranger.cluster.exec(request), 'unauthorized');
  });
});
