import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import type { Diagnosis } from '../../../cmd/upgrade-bundle/diagnosis.ts';
import { TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';

const executable = fileURLToPath(new URL('../../../cmd/oc-adm_upgrade_bundle.ts', import.meta.url));

describe('oc adm-upgrade-bundle doctor', () => {
  let folder: KubeconfigFolder;
  let server: TestApiServer;
  before(async () => {
    folder = await makeKubeconfigFolder();
    server = new TestApiServer({ openshift: '4.16.3' });
    await server.start();
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

  it('tells the same in words', async () => {
    const text = await doctor([], join(folder.folder, 'config'));
    expect(text).to.match(/^ {2}Version {4}OpenShift 4\.16\.3$/m);
    expect(text).to.match(/^ {2}oc adm-mirror-registry +not on the PATH$/m);
    expect(text).to.match(/^ {2}skopeo +\S+\/bin\/skopeo {2}\(copies images into the image store\)$/m);
  });

  it('explains why there is no cluster, and still succeeds', async () => {
    expect(await doctor([], join(folder.folder, 'none'))).to.match(/^ {2}Problem {4}No cluster is configured/m);
    await folder.write({ file: 'gone', cluster: { server: 'http://127.0.0.1:9' } });
    expect(await doctor([], join(folder.folder, 'gone'))).to.match(
      /^ {2}Server {5}http:\/\/127\.0\.0\.1:9\n {2}Problem {4}\S/m,
    );
  });
});
