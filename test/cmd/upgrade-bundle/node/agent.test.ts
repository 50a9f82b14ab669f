import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { PluginError } from '../../../../lib/errors.ts';
import { reportKind } from '../../../../lib/update/record/nodeReport.ts';
import { upgradeBundleDefinition } from '../../../../lib/update/record/upgradeBundleDefinition.ts';
import { node } from '../../../fakes/cluster/site.ts';
import { startApiServer, type TestApiServer } from '../../../fakes/kubernetes/apiServer.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../../support/kubeconfig.ts';
import { executeProgram, type Execution } from '../../../support/program/execution.ts';
import { until } from '../../../support/until.ts';

describe('agent', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let options: string[];

  beforeEach(async () => {
    server = await startApiServer({ openshift: '4.19.3' });
    for (const name of ['oc-upgrade-bundle', 'oc-upgrade-bundle-reports'])
      server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    server.put(upgradeBundleDefinition());
    server.put(node('worker-0', 'worker'));
    kubeconfigs = await makeKubeconfigFolder();
    const { folder } = kubeconfigs;
    // Below this root are no programs, so that it finds no media of this machine.
    options = [
      `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`,
      ...[`--root=${folder}`, '--interval=1', '--console=off'],
    ];
  });
  afterEach(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });
  /** Runs the agent with a token. */
  const run = async (
    env: NodeJS.ProcessEnv,
    words: readonly string[],
    signal?: AbortSignal,
    token = '0123456789abcdef0123',
  ): Promise<Execution> => {
    const file = join(kubeconfigs.folder, 'token');
    await writeFile(file, `${token}\n`);
    const args = ['agent', ...options, `--token-file=${file}`, ...words];
    return await executeProgram('oc-adm_upgrade_bundle', args, { env, ...(signal && { signal }) });
  };

  it('reports as the named node until it is stopped, and searches media only with the programs of its root', async () => {
    for (const [name, words] of [
      ['worker-0', []],
      ['worker-1', ['--node-name=worker-1']],
    ] as const) {
      const stop = new AbortController();
      const listen = '--listen=127.0.0.1:0';
      const ended = run({ NODE_NAME: 'worker-0', POD_IP: '192.0.2.1' }, [listen, ...words], stop.signal);
      const { apiVersion, kind, namespace } = reportKind;
      const find = () => server.find(apiVersion, kind, `agent-${name}`, namespace);
      await until(find);
      stop.abort(new PluginError('interrupted', 'Interrupted.'));
      const { code, stderr } = await ended;
      expect([code, stderr.includes(`the machine at ${kubeconfigs.folder} has no mount`)], stderr).to.deep.equal([
        0,
        true,
      ]);
      expect(JSON.stringify(find())).to.match(/https?:\/\/127\.0\.0\.1:\d+/);
    }
  });

  it('listens on port 8080 of the address of its pod', async () => {
    // No machine has these addresses.
    for (const [address, place] of [
      ['192.0.2.1', '192.0.2.1:8080'],
      ['2001:db8::1', '[2001:db8::1]:8080'],
    ] as const) {
      const { code, stderr } = await run({ POD_IP: address }, []);
      expect(code).to.equal(1);
      expect(stderr).to.contain(`cannot listen at ${place}: `);
    }
  });

  it('needs the token of the agents', async () => {
    const { code, stderr } = await run({}, [], undefined, 'short');
    expect([code, server.requests.filter(({ method }) => method !== 'GET')]).to.deep.equal([1, []]);
    expect(stderr).to.match(/ERROR \(invalid-file\) .*does not hold a token/);
  });
});
