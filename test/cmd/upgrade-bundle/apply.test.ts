import { copyFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import { agentObjects } from '../../../lib/update/install/agentObjects.ts';
import { gatherTrust, noTrust, type AgentTrust } from '../../../lib/update/install/agentTrust.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { platformImage } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { repack } from '../../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { digestOfFile, runProgram } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import type { Execution } from '../../support/program/execution.ts';
import { extraImage } from '../../support/release/extraImage.ts';
import { imagePolicyFiles } from '../../support/release/imagePolicy.ts';

const digest = `sha256:${'a'.repeat(64)}` as const;

describe('oc adm-upgrade-bundle apply', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let kubeconfig: string;
  let bundle: TestBundle;

  before(async () => {
    bundle = await makeBundle({ version: '4.19.4', attachments: () => true, files: imagePolicyFiles() });
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
  const api = { apiVersion: 'upgrade-bundle.openshift.io/v1alpha1', kind: 'UpgradeBundle' };
  const trusting = () => [`--signature-keyring=${bundle.keyFile}`, `--trust-fingerprint=${bundle.key.fingerprint}`];
  const spec = () => server.find(api.apiVersion, api.kind, '4.19.4-x86-64')?.['spec'];

  function putAgents(trust: AgentTrust): void {
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
    const options = { image: platformImage('d'), executables: {}, admission: undefined, rules: true, trust };
    const [agents] = agentObjects(options).slice(-1);
    if (agents) server.put({ ...agents });
  }

  it('warns of acknowledgements that a later update requires, and allows them by name', async () => {
    const gates = { kind: 'ConfigMap', metadata: { name: 'admin-gates' }, data: { 'ack-4.20-x': 'Check this.' } };
    const files = { 'gates.json': JSON.stringify(gates, null, 1) };
    await using several = await makeBundle({
      version: '4.21.1',
      earlier: [{ version: '4.20.3', previous: ['4.19.3'], files }],
    });
    const trust = [`--signature-keyring=${several.keyFile}`, `--trust-fingerprint=${several.key.fingerprint}`];
    const { stderr } = await run('apply', '-f', several.path, ...trust);
    expect(stderr).to.contain(
      'warning: the update to 4.21.1 requires the acknowledgement ack-4.20-x: “Check this.”. To allow it, add ' +
        '--acknowledge=ack-4.20-x\n',
    );
    const allowed = await run('apply', several.path, ...trust, '--acknowledge=ack-4.20-x');
    expect(allowed.stdout).to.contain(' configured\n');
    expect(allowed.stderr).not.to.contain('ack-4.20-x');
    expect(server.find(api.apiVersion, api.kind, '4.21.1-x86-64')?.['spec']).to.deep.include({
      acknowledge: ['ack-4.20-x'],
    });
    for (const [option, answer] of [
      ['--acknowledge=x', /: “x” is not the name of an acknowledgement\nhint: It begins with ack-/],
      ['--backup-to=nfs://x/y', /: “nfs:\/\/x\/y” is not an absolute path of a node\nhint: Mount it on the node first/],
    ] as const) {
      const { code, stderr } = await run('apply', several.path, ...trust, option);
      expect(code).to.equal(2);
      expect(stderr)
        .to.match(/^error \(usage\): --/)
        .and.to.match(answer);
    }
  });

  it('warns of risks that the metadata of a bundle states, and accepts them by name', async () => {
    await using several = await makeBundle({
      version: '4.21.1',
      earlier: [{ version: '4.20.3', previous: ['4.19.3'] }],
    });
    const trust = [`--signature-keyring=${several.keyFile}`, `--trust-fingerprint=${several.key.fingerprint}`];
    const path = join(kubeconfigs.folder, 'upgrade-4.21.1-x86_64-via-4.20.3.tar');
    const risky = await repack(several.path, path, (made) => {
      const risks = [{ name: 'SlowDisks', message: 'Disks are slow.', url: '' }];
      made.metadata = { ...made.metadata, releases: made.metadata.releases?.map((each) => ({ ...each, risks })) };
    });
    const claim =
      'the bundle says, not covered by its signature: the update to 4.20.3 has the risk SlowDisks: Disks are slow.; ';
    expect((await runProgram(kubeconfigs.folder, 'verify', [risky, ...trust])).stderr).to.contain(
      `warning: ${claim}to accept it, give apply --accept-risk=SlowDisks\n`,
    );
    const specOf = (): unknown => server.find(api.apiVersion, api.kind, '4.21.1-x86-64')?.['spec'];
    expect((await run('apply', risky, ...trust)).stderr).to.contain(
      `warning: ${claim}to accept it, add --accept-risk=SlowDisks\n`,
    );
    expect(specOf()).not.to.have.property('acceptRisks');
    const accepted = await run('apply', risky, ...trust, '--accept-risk=SlowDisks', '--accept-risk=SlowDisks');
    expect(accepted.stderr).to.contain(`${claim}it is accepted\n`).and.not.to.contain(`warning: ${claim}`);
    expect(specOf()).to.deep.include({ acceptRisks: ['SlowDisks'] });
    const byDigest = await run('apply', `--digest=${await digestOfFile(risky)}`, '--accept-risk=Another');
    expect(byDigest.code, byDigest.stderr).to.equal(0);
    expect(specOf()).to.deep.include({ acceptRisks: ['Another'] });
    const overruled = ['--ignore=nodes:node/worker-3', '--ignore=drains'];
    expect((await run('apply', risky, ...trust, ...overruled)).code).to.equal(0);
    expect(specOf()).to.deep.include({ ignore: ['nodes:node/worker-3', 'drains'] });
    const trusted = await run('apply', risky, ...trust, '--ignore=path');
    expect([trusted.code, trusted.stderr]).to.deep.equal([2, trusted.stderr]);
    expect(trusted.stderr).to.contain('findings of path cannot be ignored: they are about trust');
  });

  it('allows nothing if the file beside a bundle is of another genuine bundle, and names both', async () => {
    await using later = await makeBundle({ version: '4.19.5', seed: 'later' });
    const path = join(later.folder, basename(bundle.path));
    await copyFile(bundle.path, path);
    const [own, other] = [await digestOfFile(path), await digestOfFile(later.path)];
    await writeFile(`${path}.sha256`, `${hexOf(other)}  ${basename(path)}\n`);
    const { code, stderr } = await run('apply', path, ...trusting());
    expect(code).to.equal(1);
    expect(stderr).to.contain(`${path}.sha256 states the digest ${other}, and ${path} has ${own}\n`);
    expect(spec()).to.equal(undefined);
    await writeFile(`${path}.sha256`, `${hexOf(own)}  ${basename(path)}\n`);
    expect((await run('apply', path, ...trusting())).code).to.equal(0);
    const stated = { digest: own, version: '4.19.4', releaseDigest: bundle.release.digest };
    expect(spec()).to.deep.include({ bundle: stated });
  });

  it('allows a bundle by the file beside it, and holds it', async () => {
    const { code, stdout, stderr } = await run('apply', `${bundle.path}.yaml`, '--hold');
    expect(code, stderr).to.equal(0);
    expect(stderr).to.contain(
      `warning: nothing is verified: ${bundle.path}.yaml only states 4.19.4, ${bundle.result.digest ?? ''}. ` +
        `Give the bundle itself to check it\n`,
    );
    expect(stdout).to.equal(
      `upgradebundle/4.19.4-x86-64 created\nThe agents look for it now. The update waits for oc ` +
        `adm-upgrade-bundle resume ${kubeconfig}. Follow it: oc adm-upgrade-bundle status -w ${kubeconfig}\n`,
    );
    expect(spec()).to.deep.include({ hold: true });
    expect((await run('apply', bundle.path, ...trusting())).stdout).to.match(
      /^upgradebundle\/4\.19\.4-x86-64 unchanged\n/,
    );
  });

  it('prints how many images of a bundle have the sigstore signatures that policies require', async () => {
    const count = bundle.release.images.size + 1;
    const { stdout, stderr } = await run('apply', bundle.path, ...trusting());
    expect(stdout, stderr).to.match(
      new RegExp(` created\\nSigstore: ${count} of ${count} images verified, policy openshift, unknown key SHA256:`),
    );
  });

  it('refuses a bundle without a trusted signature before any change of the cluster, unless that is allowed', async () => {
    const { code, stderr } = await run('apply', bundle.path);
    expect(code).to.equal(1);
    expect(stderr).to.match(new RegExp(`^error \\([a-z-]+\\): ${bundle.release.digest} `));
    expect(server.requests.filter(({ method }) => method !== 'GET')).to.deep.equal([]);
    const allowed = await run('apply', bundle.path, '--allow-unsigned');
    expect(allowed.stdout).to.match(/^upgradebundle\/4\.19\.4-x86-64 created\n/);
    expect(allowed.stderr).to.contain('continuing, because unsigned releases are allowed');
  });

  it('allows nothing that the agents would refuse, and says how they come to trust it', async () => {
    putAgents(noTrust);
    const { code, stdout, stderr } = await run('apply', bundle.path, ...trusting());
    expect([code, stdout]).to.deep.equal([1, '']);
    expect(spec()).to.equal(undefined);
    const { fingerprint } = bundle.key;
    expect(stderr).to.match(
      new RegExp(
        `^error \\([a-z-]+\\): the agents would refuse the bundle: they do not trust the key ${fingerprint} \\(`,
        'm',
      ),
    );
    expect(stderr).to.match(
      new RegExp(`: oc adm-upgrade-bundle install --trust-fingerprint=${fingerprint}\nmore: .*\n$`),
    );
    // The file beside the bundle does not name its signer.
    const beside = await run('apply', `${bundle.path}.yaml`, ...trusting());
    expect(beside.stderr).to.match(
      new RegExp(`^warning: the agents do not trust the key ${fingerprint}\\. Run this`, 'm'),
    );
    expect(beside.code).to.equal(0);
    expect((await run('apply', bundle.path, '--allow-unsigned')).stderr).to.match(
      / install --allow-unsigned\nmore: .*\n$/,
    );
  });

  it('trusts the keys of the agents, with and without options of its own', async () => {
    const { fingerprint } = bundle.key;
    const wanted = { fingerprints: [fingerprint], keyrings: [], allowUnsigned: false };
    putAgents(await gatherTrust(wanted, noTrust, makeContext()));
    expect((await run('apply', bundle.path, ...trusting())).stdout).to.contain(' created\n');
    const taken = await run('apply', bundle.path);
    expect(taken.stdout).to.contain(' unchanged\n');
    expect(taken.stderr).to.contain(`trusting the keys that the agents trust: ${fingerprint}\n`);
    const checked = await run('preflight', bundle.path);
    expect(checked.stderr).to.contain(`trusting the keys that the agents trust: ${fingerprint}\n`);
    expect(checked.stdout).not.to.match(/blocker +bundle/);
    expect((await run('apply', bundle.path, '--allow-unsigned')).stdout).to.contain(' unchanged\n');
  });

  it('allows the bundle on a device of a node', async () => {
    const { stdout } = await run('apply', '--device=/dev/sdb', `--digest=${digest}`);
    const again = await run('apply', '--device=/dev/sdb', `--digest=${hexOf(digest)}`, '-o', 'json');
    const [, name] = /^upgradebundle\/(\S+) created\n/.exec(stdout) ?? [];
    expect(JSON.parse(again.stdout)).to.include({ name, outcome: 'unchanged' });
    expect(stdout).to.match(/^upgradebundle\/bundle-aaaaaaaaaaaa created\n/);
    const made = server.find(api.apiVersion, api.kind, 'bundle-aaaaaaaaaaaa');
    expect(made?.['spec']).to.deep.include({ bundle: { digest, file: '/dev/sdb' } });
  });

  it('allows extra images by digest, or all images of the bundle, and names the images that are left out', async () => {
    const extra = extraImage();
    await using other = await makeBundle({ version: '4.19.5', extraImages: [extra] });
    const allowed = (): unknown =>
      (server.find(api.apiVersion, api.kind, '4.19.5-x86-64')?.['spec'] as Json | undefined)?.['allowExtraImages'];
    const trust = [`--signature-keyring=${other.keyFile}`, `--trust-fingerprint=${other.key.fingerprint}`];
    const none = await run('apply', other.path, ...trust);
    expect(none.stderr).to.contain(`does not cover ${extra.pullspec}: it is not loaded; to load it, add`);
    expect(allowed()).to.equal(undefined);
    const all = await run('apply', other.path, ...trust, '--allow-extra-images=all');
    expect(all.stderr).to.contain(`does not cover ${extra.pullspec}: it is loaded`);
    expect(allowed()).to.deep.equal([extra.digest]);
    const one = await run('apply', `${other.path}.yaml`, `--allow-extra-images=${digest}`);
    expect(one.stdout).to.contain(' configured\n');
    expect(allowed()).to.deep.equal([digest]);
    for (const [file, wanted] of [
      [`${other.path}.yaml`, 'all'],
      [other.path, 'quay.io/x:v1'],
    ] as const)
      expect((await run('apply', file, ...trust, `--allow-extra-images=${wanted}`)).code).to.equal(2);
  });
});
