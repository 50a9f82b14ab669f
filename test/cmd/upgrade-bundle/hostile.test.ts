import { copyFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { startApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeKubeconfigFolder } from '../../support/kubeconfig.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';
import { extraImage } from '../../support/release/extraImage.ts';

/** The output of commands for a bundle of an untrusted author. */
describe('commands on a bundle with images that the release signature does not cover', () => {
  const extra = extraImage();
  let bundle: TestBundle;
  before(async () => {
    bundle = await makeBundle({ extraImages: [extra] });
  });
  after(() => bundle.remove());
  const run = (verb: string, ...args: string[]): Promise<Execution> =>
    executeProgram('oc-adm_upgrade_bundle', [verb, bundle.path, ...args]);
  const trusting = (): string[] => [
    `--signature-keyring=${bundle.keyFile}`,
    `--trust-fingerprint=${bundle.key.fingerprint}`,
  ];
  const words = '1 image not covered by the release signature';

  it('count and name them', async () => {
    for (const args of [[], ['-o', 'json']]) {
      const verified = await run('verify', ...trusting(), ...args);
      expect(verified.code, verified.stderr).to.equal(0);
      const inspected = await run('inspect', ...args);
      for (const { stdout } of [verified, inspected]) {
        if (args.length === 0) expect(stdout).to.contain(words).and.contain(extra.pullspec);
        else expect((JSON.parse(stdout) as { extraImages: unknown }).extraImages).to.deep.equal([extra.pullspec]);
      }
    }
  });

  it('refuse them with --require-signed-images', async () => {
    const registry = ['--to=127.0.0.1:1/site/release', '--insecure'];
    for (const [verb, ...more] of [['verify'], ['serve'], ['push', ...registry]] as const) {
      const { code, stderr } = await run(verb, ...trusting(), ...more, '--require-signed-images');
      expect(code, verb).to.equal(1);
      expect(stderr).to.contain('extra images');
    }
    const server = await startApiServer({ openshift: '4.12.3' });
    await using kubeconfigs = await makeKubeconfigFolder();
    const kubeconfig = await kubeconfigs.write({ cluster: { server: server.url } });
    const apply = ['apply', bundle.path, ...trusting(), '--require-signed-images', `--kubeconfig=${kubeconfig}`];
    for (const program of ['oc-adm_upgrade_bundle', 'oc-adm_release_mirror_config']) {
      const { code, stderr } = await executeProgram(program, apply);
      expect(code, program).to.equal(1);
      expect(stderr).to.contain(words).and.contain(extra.pullspec);
    }
    expect(server.requests.filter(({ method }) => method !== 'GET')).to.deep.equal([]);
    await server.stop();
  });

  it('print no command that a file name changes', async () => {
    const odd = join(bundle.folder, 'upgrade-$(touch pwned);\n.tar');
    await copyFile(bundle.path, odd);
    const { stderr } = await executeProgram('oc-adm_upgrade_bundle', ['inspect', `${bundle.folder}/absent.tar`]);
    expect(stderr).to.contain(`$'upgrade-$(touch pwned);\\012.tar'`);
  });
});
