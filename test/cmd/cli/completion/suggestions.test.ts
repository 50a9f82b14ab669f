import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { suggestionsFrom } from '../../../../cmd/cli/completion/suggestions.ts';
import { upgradeBundleKind } from '../../../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../../../lib/update/record/upgradeBundleDefinition.ts';
import { startApiServer, type TestApiServer } from '../../../fakes/kubernetes/apiServer.ts';
import { makeAuthority } from '../../../support/certificates.ts';
import { makeBundle, type TestBundle } from '../../../support/content/bundle.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../../support/kubeconfig.ts';
import { requirePeer, run } from '../../../support/peers.ts';
import { executeProgram, type Execution } from '../../../support/program/execution.ts';

describe('findClusterNames', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  before(async () => {
    server = await startApiServer({ openshift: '4.19.3', tokens: new Map([['right-token', 'admin']]) });
    server.put(upgradeBundleDefinition());
    for (const name of ['worker-1', 'master-0']) server.put({ apiVersion: 'v1', kind: 'Node', metadata: { name } });
    server.put({ ...upgradeBundleKind, metadata: { name: '4.19.4-x86-64' }, spec: { bundle: {} } });
    kubeconfigs = await makeKubeconfigFolder();
    await kubeconfigs.write({ cluster: { server: server.url } });
  });
  after(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });
  afterEach(() => {
    server.clearFaults();
  });
  const minute = 60_000;
  const values = { kubeconfig: ['~/config'], token: ['right-token'] };
  const find = (kind: 'nodes' | 'upgrade-bundles', typed: Readonly<Record<string, string[]>>, timeout = minute) =>
    suggestionsFrom({ HOME: kubeconfigs.folder }, timeout)(kind, typed, '');

  it('finds nodes and UpgradeBundles, with the identity of the command line', async () => {
    expect(await find('nodes', values)).to.deep.equal(['master-0', 'worker-1']);
    expect(await find('upgrade-bundles', { ...values, name: ['4'] })).to.deep.equal(['4.19.4-x86-64']);
  });

  it('takes all values of an option that can be repeated, and the last one of others', async () => {
    const typed = { token: ['wrong-token', 'right-token'], as: ['carol'], 'as-group': ['a', 'b'] };
    expect(await find('nodes', { ...values, ...typed })).to.have.length(2);
    const { 'impersonate-group': groups } = server.requests.at(-1)?.headers ?? {};
    expect(groups).to.match(/^a, ?b$/);
  });

  it('verifies the certificate of the cluster, unless the command line says not to', async () => {
    await using authority = await makeAuthority();
    const { key, certificate: cert } = await authority.issue();
    await using secure = await startApiServer({ openshift: '4.19.3', tls: { key, cert } });
    const kubeconfig = [await kubeconfigs.write({ file: 'secure', cluster: { server: secure.url } })];
    const option = 'insecure-skip-tls-verify';
    expect(await find('nodes', { kubeconfig, [option]: ['false', 'true'] })).to.deep.equal([]);
    expect(await find('nodes', { kubeconfig, [option]: ['false'] }).catch(String)).to.match(/is not trusted/);
  });

  it('fails soon if the cluster refuses, does not exist, or does not respond', async () => {
    expect(await find('nodes', { ...values, token: ['wrong-token'] }).catch(String)).to.match(/^PluginError: http/);
    expect(await find('nodes', {}).catch(String)).to.match(/no cluster is configured/);
    server.fault(/nodes/, { noAnswer: 'hold' });
    expect(await find('nodes', values, 1).catch(String)).to.match(/interrupted/);
  });
});

const root = fileURLToPath(new URL('../../../..', import.meta.url));

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: admin
contexts:
  - { name: admin, context: { cluster: site, user: kube } }
  - { name: default/api:6443/kube, context: { cluster: site, user: kube } }
clusters: [{ name: site, cluster: { server: https://192.0.2.1:6443 } }]
users: [{ name: kube, user: { token: sha256~secret } }]
`;

describe('the answers of a plugin to a shell', () => {
  let folder: string;
  let bundle: TestBundle;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'completion-'));
    bundle = await makeBundle({ version: '4.12.4' });
    await mkdir(join(folder, 'bin'));
    for (const prefix of ['kubectl-', 'kubectl_complete-', 'oc_complete-'])
      await symlink(join(root, 'cmd/oc-adm_upgrade_bundle.ts'), join(folder, `bin/${prefix}adm_upgrade_bundle`));
    await writeFile(join(folder, 'kubeconfig'), kubeconfig);
    await writeFile(join(folder, 'broken'), 'contexts: [');
  });
  after(async () => {
    await rm(folder, { recursive: true, force: true });
    await bundle.remove();
  });

  const environment = (more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv => ({
    PATH: [join(folder, 'bin'), dirname(process.execPath), process.env['PATH']].join(delimiter),
    HOME: folder,
    ...more,
  });
  const call = (program: string, words: readonly string[], env?: NodeJS.ProcessEnv): Promise<Execution> =>
    executeProgram(program, ['__complete', ...words], { env: environment(env) });
  const suggested = async (words: readonly string[], program = 'oc-adm_upgrade_bundle', env?: NodeJS.ProcessEnv) => {
    const { code, stdout, stderr } = await call(program, words, env);
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    return stdout;
  };

  it('has the bundles of the typed folder, volumes by their common name, and else leaves files to the shell', async () => {
    const [home, place] = [folder, join(folder, 'usb')];
    await mkdir(place);
    for (const name of [
      'a b.tar',
      'a.tar',
      'c.tar.000',
      'c.tar.001',
      'c.tar.sha256',
      '.d.tar',
      'e.tar.partial',
      'notes.txt',
    ])
      await writeFile(join(place, name), '');
    for (const command of [['verify'], ['push', '--to=r.test/a'], ['verify', '--base']])
      expect(await suggested([...command, `${place}/`])).to.equal(`${place}/a.tar\n${place}/c.tar\n:0\n`);
    expect(await suggested(['verify', '~/usb/c'], undefined, { HOME: home })).to.equal('~/usb/c.tar\n:0\n');
    expect(await suggested(['verify', `${place}/n`])).to.equal(':0\n');
    const bundles = await executeProgram('oc-adm_upgrade_bundle', ['__complete', 'verify', ''], { cwd: place });
    expect(bundles.stdout).to.equal('a.tar\nc.tar\n:0\n');
  });

  it('is in the lines that shells and kubectl read', async () => {
    expect(await suggested(['insp'])).to.equal('inspect\tShow the contents of a bundle\n:4\n');
    expect(await suggested(['create', '--arc'])).to.equal(
      '--arch\tArchitecture of the release, multi for all (default: that of --release-image, else x86_64)\n:4\n',
    );
    expect(await suggested(['inspect', '/nonexistent/'])).to.equal(':0\n');
    expect(await suggested(['create', '--output='])).to.equal(':16\n');
  });

  it('has names of the kubeconfig', async () => {
    const file = join(folder, 'kubeconfig');
    const expected = 'admin\ndefault/api:6443/kube\n:4\n';
    expect(await suggested(['preflight', '--context='], undefined, { KUBECONFIG: file })).to.equal(expected);
    expect(await suggested(['preflight', '--kubeconfig', '~/kubeconfig', '--context', ''])).to.equal(expected);
    expect(await suggested(['preflight', `--kubeconfig=${file}`, '--user=k'])).to.equal('kube\n:4\n');
    expect(await suggested(['preflight', `--kubeconfig=${file}`, '--cluster='])).to.equal('site\n:4\n');
  });

  it('has the components of a bundle', async () => {
    const components = (await suggested(['load', bundle.path, '--images='])).split('\n');
    expect(components).to.include.members(['release', ...Object.keys(bundle.result.metadata.components), ':4']);
  });

  it('has versions: of bundles in the folder, in a mirror directory or bundle, and of the mirror registry', async () => {
    expect(await suggested(['create', `--output=${bundle.folder}`, '--version='])).to.equal('4.12.4\n:4\n');
    expect(await suggested(['create', `--from-dir=${bundle.path}`, '--version=4.1'])).to.equal('4.12.4\n:4\n');
    const unpacked = await bundle.unpack();
    expect(await suggested([`--from-dir=${unpacked}`, '4'], 'oc-adm_release_mirror_config')).to.equal('4.12.4\n:4\n');
    expect(await suggested(['plan', '--version=2.0.1'], 'oc-adm_mirror_registry')).to.match(
      /^2\.0\.11\n2\.0\.10\n2\.0\.1\n:4/,
    );
  });

  it('reaches oc and kubectl by the links that completion prints, beside each plugin on the path', async () => {
    const places = { 'first place': 'oc-adm_upgrade_bundle', second: 'kubectl-adm_mirror_registry' };
    for (const [place, name] of Object.entries(places)) {
      await mkdir(join(folder, place));
      await writeFile(join(folder, place, name), '', { mode: 0o755 });
    }
    const env = (...names: string[]) => ({ env: { PATH: names.map((name) => join(folder, name)).join(delimiter) } });
    const { code, stdout } = await executeProgram(
      'oc-adm_mirror_registry',
      ['completion'],
      env('first place', 'second'),
    );
    expect(code).to.equal(0);
    expect(stdout).to.equal(
      [
        `ln -sf oc-adm_upgrade_bundle '${folder}/first place/oc_complete-adm_upgrade_bundle'`,
        `ln -sf oc-adm_upgrade_bundle '${folder}/first place/kubectl_complete-adm_upgrade_bundle'`,
        `ln -sf kubectl-adm_mirror_registry ${folder}/second/oc_complete-adm_mirror_registry`,
        `ln -sf kubectl-adm_mirror_registry ${folder}/second/kubectl_complete-adm_mirror_registry`,
        '',
      ].join('\n'),
    );
    const none = await executeProgram('oc-adm_mirror_registry', ['completion'], env());
    expect(none.stderr).to.match(/^error \(not-found\): no plugin is on the path/);
  });

  it('is empty, without an error, after a failure', async () => {
    expect(await suggested(['preflight', '--context='], undefined, { KUBECONFIG: join(folder, 'broken') })).to.equal(
      ':4\n',
    );
    expect(await suggested(['load', '/no/such', '--images='])).to.equal(':4\n');
    // The URL of another machine may be a bundle to load, but it is not requested.
    expect(await suggested(['load', 'https://192.0.2.1:5000', '--images='])).to.equal(':4\n');
    expect(await suggested(['dance', ''])).to.equal(':4\n');
    expect(await suggested([])).to.include('create\t');
  });

  it('is the output of programs named oc_complete-… and kubectl_complete-…, and kubectl uses it', async function () {
    const answer = 'json\nyaml\nwide\nhtml\n:4\n';
    for (const prefix of ['oc', 'kubectl']) {
      const completer = join(folder, `bin/${prefix}_complete-adm_upgrade_bundle`);
      const own = await run(completer, ['inspect', 'b', '-o', ''], { env: environment() });
      expect(own, prefix).to.deep.equal({ code: 0, stdout: answer, stderr: '' });
    }
    requirePeer(this, 'kubectl');
    const kubectl = await run('kubectl', ['__complete', 'adm-upgrade-bundle', 'inspect', 'b', '-o', ''], {
      env: environment(),
    });
    expect(kubectl.stdout).to.equal(answer);
  });
});
