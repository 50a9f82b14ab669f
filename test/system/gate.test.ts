import { readFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { parse, stringify } from 'yaml';
import { digestOf } from '../../lib/content/oci/reference.ts';
import { drillNode } from '../../lib/drill/drill.ts';
import { DrillSite, drilled } from '../fakes/cluster/drillSite.ts';
import { SimulatedCluster, gatherTrustIn } from '../fakes/cluster/simulatedCluster.ts';
import { requireRoot } from '../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { requirePeer } from '../support/peers.ts';
import { executeProgram, type Execution } from '../support/program/execution.ts';
import { pullspecsOf } from '../support/release/release.ts';

// The recipe of docs/how-to/gate-a-release.md, on synthetic releases.
describe('the gate of a release', function () {
  requirePeer(this, 'unshare', 'systemd-analyze', 'skopeo', 'podman');
  let previous: TestBundle;
  let next: TestBundle;
  const program = async (...args: string[]): Promise<Execution> => executeProgram('oc-adm_upgrade_bundle', args);

  before(async function () {
    await requireRoot(this);
    previous = await makeBundle({ version: '4.19.3', layerSize: 20_000 });
    next = await makeBundle({ version: '4.19.4', previous: ['4.19.3'], layerSize: 20_000 });
  });
  after(async () => {
    // There are none if the suite is skipped.
    await (previous as TestBundle | undefined)?.remove();
    await (next as TestBundle | undefined)?.remove();
  });

  it('lints the release against the baseline of the previous one, and verifies its bundle', async () => {
    const baseline = join(previous.folder, 'baseline.yaml');
    const { code } = await program('lint', previous.path, `--write-baseline=${baseline}`, '--fail-on=warning');
    expect(code).to.equal(0);
    const { findings = [] } = parse(await readFile(baseline, 'utf8')) as { findings?: object[] };
    const accepted = findings.map((each) => ({ ...each, reason: 'known', until: '2099-12-31' }));
    await writeFile(baseline, stringify({ findings: accepted }));
    expect((await program('lint', next.path, `--baseline=${baseline}`, '--fail-on=warning')).code).to.equal(0);
    const trust = [`--signature-keyring=${next.keyFile}`, `--trust-fingerprint=${next.key.fingerprint}`];
    expect((await program('verify', next.path, ...trust)).code).to.equal(0);
  });

  it('updates a simulated cluster from the bundle without a registry', async () => {
    const trust = await gatherTrustIn(next);
    await using cluster = await SimulatedCluster.start({ trust });
    cluster.allow(digestOf(await readFile(next.path)));
    const [master] = await Promise.all(
      ['master-0', 'worker-0', 'worker-1'].map((name) => cluster.addNode(name, ['--disk-floor=1Mi'])),
    );
    await master?.putFile(next.path, basename(next.path));
    await cluster.until(() => cluster.phase() === 'Completed');
    expect(cluster.site.requests).to.deep.equal([{ image: next.release.pullspec, version: '4.19.4', force: false }]);
  });

  it('reboots a node that has the images of the bundle while every registry answers nothing', async () => {
    await using site = await DrillSite.start();
    const images = pullspecsOf(next.release);
    const { node } = site;
    await node.copy(next.path, '/var/lib/upgrade.tar');
    await node.copy(next.keyFile, '/var/lib/key.asc');
    const trust = `--signature-keyring=/var/lib/key.asc --trust-fingerprint=${next.key.fingerprint}`;
    const plugin = '/var/lib/oc-upgrade-bundle/bin/oc-adm_upgrade_bundle';
    const loaded = await node.tryRun(
      'sh',
      '-c',
      `${plugin} load /var/lib/upgrade.tar ${trust} 2>&1; echo "ended with $?"`,
    );
    expect(loaded).to.contain('ended with 0');
    const missing = 'quay.io/site/tool:1';
    const pods = [...images.map((image) => `missing ${image}`), `always ${images[0] ?? ''}`, `missing ${missing}`];
    await node.tryRun('sh', '-c', `printf '%s\\n' ${pods.map((line) => `'${line}'`).join(' ')} > /etc/crio-pods`);
    const { cluster, context } = site.connected;
    const options = { reboot: true, single: false, timeout: 60_000, interval: 500 };
    const drill = await drillNode(cluster, drilled, options, context);
    expect(drill.result, drill.message).to.equal('passed');
    await site.until(async () => ((await node.read('/var/log/crio-pods')) ?? '').includes(missing));
    const created = [...((await node.read('/var/log/crio-pods')) ?? '').matchAll(/^created (.*)$/gm)].map(
      (match) => match[1],
    );
    expect(created).to.deep.equal(images);
    expect(await site.traces()).to.deep.equal([]);
  });
});
