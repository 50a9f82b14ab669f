import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { runProgram } from '../../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';

const api = { apiVersion: 'upgrade-bundle.openshift.io/v1alpha1', kind: 'UpgradeBundle' };
const name = '4.19.4-x86-64';
const digests = ['a', 'b'].map((digit) => `sha256:${digit.repeat(64)}`);

describe('a dry run', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let kubeconfig: string;
  let bundle: TestBundle;

  before(async () => {
    bundle = await makeBundle({ version: '4.19.4' });
  });
  after(() => bundle.remove());
  beforeEach(async () => {
    server = await startApiServer({ openshift: '4.19.3' });
    server.put(upgradeBundleDefinition());
    kubeconfigs = await makeKubeconfigFolder();
    kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
  });
  afterEach(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });
  const run = (verb: string, ...args: string[]): Promise<Execution> =>
    runProgram(kubeconfigs.folder, verb, [kubeconfig, ...args]);
  const put = (phase: string, fields: object = {}, of = name): void => {
    const spec = { bundle: { digest: digests[0] }, hold: true, ...fields };
    server.put({ ...api, metadata: { name: of }, spec, status: { phase } });
  };
  const apply = (...args: string[]): Promise<Execution> =>
    run(
      ...(['apply', bundle.path, `--signature-keyring=${bundle.keyFile}`] as const),
      `--trust-fingerprint=${bundle.key.fingerprint}`,
      ...args,
    );

  for (const mode of ['client', 'server'] as const) {
    it(`of apply shows what would change, and changes nothing (${mode})`, async () => {
      const { revision } = server.objects;
      const created = await apply('--hold', `--dry-run=${mode}`);
      expect(created.code, created.stderr).to.equal(0);
      expect(created.stdout)
        .to.match(/^upgradebundle\/4\.19\.4-x86-64 created \((server )?dry run\)$/m)
        .and.to.match(/^\+ {2}hold: true$/m)
        .and.not.to.contain('Follow it');
      expect(server.objects.revision).to.equal(revision);
      const { diff } = JSON.parse((await apply(`--dry-run=${mode}`, '-o', 'json')).stdout) as { diff: string };
      expect(diff).to.contain('\n+spec:\n');
      put('Detected', { backupTo: '/var/mnt/usb', bundle: { digest: digests[1] } });
      const before = server.objects.revision;
      const corrected = await apply('--backup-to=/var/mnt/other', `--dry-run=${mode}`);
      expect(corrected.stdout)
        .to.match(/^-.*b{64}$/m)
        .and.to.match(/^- {2}backupTo: \/var\/mnt\/usb$/m)
        .and.to.match(/^\+ {2}backupTo: \/var\/mnt\/other$/m)
        .and.to.match(/^ {3}hold: true$/m);
      expect(server.objects.revision).to.equal(before);
    });

    it(`of resume, abort and clean changes nothing, and says what would be (${mode})`, async () => {
      put('Held');
      put('Completed', {}, 'done');
      const { revision } = server.objects;
      const option = `--dry-run=${mode}`;
      const note = mode === 'client' ? ' (dry run)' : ' (server dry run)';
      expect((await run('resume', option)).stdout).to.equal(`upgradebundle/${name} is no longer held${note}: Held\n`);
      expect((await run('abort', option)).stdout).to.equal(`upgradebundle/${name} is being aborted${note}\n`);
      expect((await run('clean', option)).stdout).to.equal(`upgradebundle/done deleted${note}\n`);
      expect(server.objects.revision).to.equal(revision);
      expect((await run('abort', option, 'done')).code).to.equal(1);
    });
  }

  it('of apply shows maintenance windows, and refuses windows that no update fits into', async () => {
    const window = '--window=Sat 22:00-04:00 Europe/Berlin';
    const { stdout, stderr } = await apply(window, '--window-needs=90m', '--dry-run=server');
    expect(stdout, stderr)
      .to.contain('+  windows:\n+    - Sat 22:00-04:00 Europe/Berlin\n')
      .and.to.contain('+  windowNeeds: 90m\n')
      .and.to.match(/^Maintenance window: (?:open until|the update begins from) .* Europe\/Berlin(?: on)?\.$/m);
    for (const args of [
      [window, '--window-needs=7h'],
      [window, '--window=always'],
      ['--window=Sat 22:00'],
      ['--window-needs=2d'],
    ]) {
      const refused = await apply(...args);
      expect([refused.code, refused.stdout], refused.stderr).to.deep.equal([2, '']);
    }
    put('Loading', { hold: false, windows: ['daily 01:00-04:00 UTC'] });
    expect((await run('status')).stdout).to.match(/^ {2}Window +(open until|the update begins from) .* UTC( on)?$/m);
    expect((await run('apply', `--digest=${String(digests[0])}`, '--window=always', '--dry-run')).stdout).to.contain(
      '-    - daily 01:00-04:00 UTC\n',
    );
  });

  it('of apply takes the file beside a bundle from the standard input', async () => {
    const stdin = await readFile(`${bundle.path}.yaml`, 'utf8');
    for (const words of [['-f', '-'], ['-']]) {
      const args = ['apply', kubeconfig, ...words, '--dry-run'];
      const { code, stdout, stderr } = await executeProgram('oc-adm_upgrade_bundle', args, { stdin });
      expect(code, stderr).to.equal(0);
      expect(stdout).to.match(/^upgradebundle\/4\.19\.4-x86-64 created \(dry run\)$/m);
      expect(stderr).to.contain('the standard input only states 4.19.4');
    }
  });

  it('on a server shows refusals of the server', async () => {
    put('Upgrading', { hold: false });
    const { code, stderr } = await run('apply', `--digest=${String(digests[0])}`, '--hold', '--dry-run=server');
    expect(code).to.equal(1);
    expect(stderr).to.contain('the update has begun');
  });
});

describe('status without an update', () => {
  it('ends with exit code 0, with an empty list for programs', async () => {
    await using server = await startApiServer({ openshift: '4.19.3' });
    server.put(upgradeBundleDefinition());
    const kubeconfigs = await makeKubeconfigFolder();
    const kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
    const status = (...args: string[]) => runProgram(kubeconfigs.folder, 'status', [kubeconfig, ...args]);
    expect(await status('-o', 'json')).to.deep.equal({ code: 0, stdout: '[]\n', stderr: '' });
    expect(await status('-o', 'name')).to.deep.equal({ code: 0, stdout: '', stderr: '' });
    expect((await status()).stdout).to.match(/^No bundle has been detected or applied\.\nInsert a USB drive/);
    server.put({
      ...api,
      metadata: { name },
      spec: { bundle: { digest: digests[0] }, hold: true },
      status: {
        phase: 'Loading',
        conditions: [{ type: 'Loaded', status: 'False', reason: 'Loading', message: 'm', lastTransitionTime: '' }],
        nodes: [
          { name: 'a', phase: 'Loading', imagesLoaded: 1, imagesTotal: 2, bytes: 1, free: 2 ** 30, size: 2 ** 31 },
          { name: 'b', phase: 'Loaded', imagesLoaded: 2, imagesTotal: 2, bytes: 1 },
        ],
      },
    });
    expect((await status('-o', 'name')).stdout).to.equal(`upgradebundle.upgrade-bundle.openshift.io/${name}\n`);
    expect((await status('-o', 'wide')).stdout)
      .to.match(/^NODE .* BLOBS +FREE +DISK +ETCD/m)
      .and.to.match(/^a .* 1\.0 GiB +2\.0 GiB +-/m);
    expect((await status('-o', 'jsonpath={.status.nodes[*].name}')).stdout).to.equal('a b\n');
    await server.stop();
    expect((await status('-o', 'jsonpath={.a')).stderr).to.match(/^error \(usage\): --output: json/);
    await kubeconfigs.remove();
  });
});
