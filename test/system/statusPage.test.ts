import { expect } from 'chai';
import { formatNodeReport } from '../../lib/update/record/nodeReport.ts';
import { upgradeBundleDefinition } from '../../lib/update/record/upgradeBundleDefinition.ts';
import { startApiServer, type TestApiServer } from '../fakes/kubernetes/apiServer.ts';
import { openInBrowser, type BrowserPage } from '../support/browser.ts';
import { runProgram, startProgram, type Running } from '../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../support/kubeconfig.ts';
import { requirePeer } from '../support/peers.ts';
import { until } from '../support/until.ts';

const name = '4.19.4-x86-64';
const api = { apiVersion: 'upgrade-bundle.openshift.io/v1alpha1', kind: 'UpgradeBundle' };

describe('status --web in Chromium', function () {
  requirePeer(this, 'chromium');
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let running: Running;
  let url = '';
  let page: BrowserPage;

  before(async () => {
    server = await startApiServer({ openshift: '4.19.3' });
    server.put(upgradeBundleDefinition());
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle-reports' } });
    const progress = { name: 'master-0', phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 } as const;
    const mirror = { versions: ['4.19.3'], requests: 57, lacking: ['a/b@sha256:c'] };
    server.put(formatNodeReport({ bundle: '', progress, mirror }));
    kubeconfigs = await makeKubeconfigFolder();
    const kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
    running = startProgram(kubeconfigs.folder, 'status', [kubeconfig, '--web']);
    running.child.stdout?.on('data', (chunk: Buffer) => (url += chunk.toString().trim()));
    await until(() => url !== '');
    page = await openInBrowser(url, 390);
  });
  after(async () => {
    // There is none if the suite is skipped.
    (running as Running | undefined)?.child.kill('SIGKILL');
    await (page as BrowserPage | undefined)?.close();
    await (server as TestApiServer | undefined)?.stop();
    await (kubeconfigs as KubeconfigFolder | undefined)?.remove();
  });

  const put = (status: object): void => {
    const object = { ...api, metadata: { name }, spec: { bundle: { digest: `sha256:${'a'.repeat(64)}` } }, status };
    const before = server.find(api.apiVersion, api.kind, name);
    const kind = server.kinds.find((each) => each.kind === 'UpgradeBundle');
    if (!before || !kind) return void server.put(object);
    server.objects.replace(
      { kind, namespace: '', name },
      { ...before, status },
      { manager: 'controller', dryRun: false, status: true },
    );
  };
  const shows = async (text: string): Promise<void> => {
    await until(async () => (await page.evaluate<string>('document.body?.innerText ?? ""')).includes(text));
  };

  it('follows the phases, bars and messages of all nodes, without a reload', async () => {
    await shows('Waiting for a bundle');
    await shows('lacks a/b@sha256:c');
    await page.evaluate('window.sameDocument = true');
    const node = { phase: 'Loading', imagesTotal: 190, bytes: 8_589_934_592 };
    const message = '<img src=x onerror=alert(1)> from master-0';
    put({ phase: 'Loading', nodes: [{ ...node, name: 'worker-0', imagesLoaded: 95, message }] });
    await shows('95 of 190 images');
    await shows(message);
    expect(await page.evaluate('document.querySelector("progress").value')).to.equal(0.5);
    expect(await page.evaluate('document.querySelector(".busy") !== null')).to.equal(true);
    // Fits a phone.
    expect(await page.evaluate('document.documentElement.scrollWidth')).to.equal(390);
    put({
      phase: 'Loading',
      nodes: [{ ...node, phase: 'Failed', name: 'worker-0', imagesLoaded: 95, message: 'full' }],
    });
    await shows('Problem: worker-0: full');
    expect(await page.evaluate('document.querySelector("progress").className')).to.equal('bad');
    expect(await page.evaluate('document.querySelector("h1").className')).to.equal('bad');
    const lastTransitionTime = '2026-11-23T01:00:00Z';
    const updated = { type: 'Updated', status: 'True', reason: 'Done', message: 'the cluster runs 4.19.4' };
    const conditions = [{ ...updated, lastTransitionTime }];
    put({ phase: 'Completed', conditions, nodes: [{ ...node, phase: 'Loaded', name: 'worker-0', imagesLoaded: 190 }] });
    await shows('190 of 190 images');
    await shows('the cluster runs 4.19.4');
    expect(await page.evaluate('document.querySelector("td").className')).to.equal('good');
    expect(await page.evaluate('document.querySelector("#problem").hidden')).to.equal(true);
    expect(await page.evaluate('document.title')).to.match(/^4\.19\.4-x86-64: Completed/);
    expect(await page.evaluate('window.sameDocument')).to.equal(true);
    expect(page.errors).to.deep.equal([]);
  });

  it('ends with Ctrl-C, and the page says so', async () => {
    running.child.kill('SIGINT');
    expect((await running.outcome).code).to.equal(0);
    await shows('No answer since');
    await shows('190 of 190 images');
  });

  it('excludes other outputs', async () => {
    for (const other of ['-w', '-o=json']) {
      const { code, stderr } = await runProgram(kubeconfigs.folder, 'status', ['--web', other]);
      expect([code, stderr]).to.deep.equal([2, stderr]);
      expect(stderr).to.contain('--web excludes --watch and --output');
    }
  });
});
