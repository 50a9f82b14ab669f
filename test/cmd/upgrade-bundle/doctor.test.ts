import { createHash } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { createMessage, sign } from 'openpgp';
import type { Diagnosis } from '../../../cmd/upgrade-bundle/doctor.ts';
import { recordVersion } from '../../../lib/update/install/executable.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { makeSigningKey } from '../../support/release/signing.ts';

const executable = fileURLToPath(new URL('../../../cmd/oc-adm_upgrade_bundle.ts', import.meta.url));

describe('oc adm-upgrade-bundle doctor', () => {
  let folder: KubeconfigFolder;
  let server: TestApiServer;
  before(async () => {
    folder = await makeKubeconfigFolder();
    server = await startApiServer({ openshift: '4.16.3' });
    await folder.write({ cluster: { server: server.url } });
    await mkdir(join(folder.folder, 'bin'));
    await program('oc-adm_upgrade_bundle');
    await program('kubectl-adm_release_mirror_config');
    await program('oc', `[ "$*" = 'version --client --output=json' ] && echo '{ "releaseClientVersion": "4.16.9" }'`);
    await program('kubectl', 'exit 1');
    await program('skopeo');
  });
  after(async () => {
    await server.stop();
    await folder.remove();
  });

  const doctor = async (args: readonly string[], kubeconfig: string): Promise<string> => {
    const env = { PATH: join(folder.folder, 'bin'), HOME: folder.folder, KUBECONFIG: kubeconfig };
    const { code, stdout, stderr } = await executeProgram(executable, ['doctor', ...args], { env });
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    return stdout;
  };
  const program = (name: string, text = ''): Promise<void> =>
    writeFile(join(folder.folder, 'bin', name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });

  it('tells which plugins, clients, cluster and tools there are', async () => {
    const path = (name: string): string => join(folder.folder, 'bin', name);
    const diagnosis = JSON.parse(await doctor(['-o', 'json'], join(folder.folder, 'config'))) as Diagnosis;
    expect(diagnosis.plugins).to.deep.equal([
      { name: 'oc adm-upgrade-bundle', path: path('oc-adm_upgrade_bundle') },
      { name: 'oc adm-release-mirror-config', path: path('kubectl-adm_release_mirror_config') },
      { name: 'oc adm-mirror-registry' },
    ]);
    expect(diagnosis.clients).to.deep.equal([
      { name: 'oc', path: path('oc'), version: '4.16.9' },
      { name: 'kubectl', path: path('kubectl') },
    ]);
    expect(diagnosis.cluster).to.deep.equal({ name: 'test', server: server.url, version: 'OpenShift 4.16.3' });
    expect(diagnosis.nodeTools.filter((tool) => tool.path !== undefined).map(({ name }) => name)).to.deep.equal([
      'skopeo',
    ]);
    expect(diagnosis.program).to.include({ executable, runtime: `Node.js ${process.versions.node}` });
  });

  it('finds the executable in signed checksums, and fails for any doubt', async () => {
    const key = await makeSigningKey({ name: 'Project' });
    const at = (name: string): string => join(folder.folder, name);
    const publish = async (text: string): Promise<void> => {
      await writeFile(at('SHA256SUMS'), text);
      const message = await createMessage({ binary: Buffer.from(text) });
      const date = new Date('2024-01-01');
      const signature: unknown = await sign({ message, signingKeys: key.privateKey, detached: true, date });
      await writeFile(at('SHA256SUMS.asc'), String(signature));
    };
    const options = ['--checksums=SHA256SUMS', '--signature-keyring=key.asc'];
    const trust = `--trust-fingerprint=${key.fingerprint}`;
    const run = (...args: string[]) =>
      executeProgram(executable, ['doctor', ...options, ...args], {
        cwd: folder.folder,
        env: { PATH: '', HOME: folder.folder },
      });
    const sum = createHash('sha256')
      .update(await readFile(executable))
      .digest('hex');
    await writeFile(at('key.asc'), key.publicKey);
    await publish(`${'0'.repeat(64)}  other\n${sum}  linux-amd64/oc-disconnected\n`);
    const found = JSON.parse((await run(trust, '-o', 'json')).stdout) as Diagnosis;
    const userId = 'Project <release@example.com>';
    expect(found.release).to.deep.equal({ name: 'linux-amd64/oc-disconnected', userId, fingerprint: key.fingerprint });
    const { stdout } = await run(trust);
    expect(stdout).to.contain(`  Released   as linux-amd64/oc-disconnected, signed by ${userId} (${key.fingerprint})`);
    expect((await run()).stderr).to.match(/^error \(untrusted\): no trusted key signed SHA256SUMS\n.*\ntry: --sig/);
    await writeFile(at('SHA256SUMS'), `${sum}  added\n`);
    expect((await run(trust)).stderr).to.match(/^error \(untrusted\): no trusted key signed SHA256SUMS\n/);
    await publish(`${'0'.repeat(64)}  other\n`);
    expect(await run(trust)).to.include({ code: 1, stdout: '' });
    expect((await run(trust)).stderr).to.contain(` is not in SHA256SUMS: its digest is sha256:${sum}\n`);
    await writeFile(at('SHA256SUMS.asc'), 'not a signature');
    expect((await run(trust)).stderr).to.match(/^error \(untrusted\): SHA256SUMS\.asc is not an OpenPGP signature: /);
    await rm(at('SHA256SUMS.asc'));
    expect((await run(trust)).stderr).to.match(/^error \(unsigned\): SHA256SUMS has no signature: .*does not exist\n/);
  });

  it('tells the same in words', async () => {
    const text = await doctor([], join(folder.folder, 'config'));
    expect(text).to.match(/^ {2}Version {4}OpenShift 4\.16\.3$/m);
    expect(text).to.match(/^ {2}oc adm-mirror-registry +not on the PATH$/m);
    expect(text).to.match(/^ {2}skopeo +\S+\/bin\/skopeo {2}\(copies images into the image store\)$/m);
  });

  it('prints the version of the agents in the cluster, with advice if it differs', async () => {
    const own = await startApiServer({ openshift: '4.16.3' });
    try {
      own.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
      const metadata = { name: 'agent', namespace: 'oc-upgrade-bundle', annotations: recordVersion('0.0.1') };
      own.put({ apiVersion: 'apps/v1', kind: 'DaemonSet', metadata, spec: {} });
      await folder.write({ file: 'agents', cluster: { server: own.url } });
      const kubeconfig = join(folder.folder, 'agents');
      const { cluster } = JSON.parse(await doctor(['-o', 'json'], kubeconfig)) as Diagnosis;
      expect(cluster.agents).to.have.property('version', '0.0.1');
      const difference = /^the agents \(0\.0\.1\) are older than this program .* install/;
      expect(cluster.agents).to.have.property('difference').that.matches(difference);
      expect(await doctor([], kubeconfig)).to.match(/^ {2}Agents {5}the agents \(0\.0\.1\) are older/m);
    } finally {
      await own.stop();
    }
  });

  it('explains why there is no cluster, and still succeeds', async () => {
    expect(await doctor([], join(folder.folder, 'none'))).to.match(/^ {2}Problem {4}no cluster is configured/m);
    await folder.write({ file: 'gone', cluster: { server: 'http://127.0.0.1:9' } });
    expect(await doctor([], join(folder.folder, 'gone'))).to.match(
      /^ {2}Server {5}http:\/\/127\.0\.0\.1:9\n {2}Problem {4}\S/m,
    );
  });
});
