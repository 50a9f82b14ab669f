import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream';
import { expect } from 'chai';
import { stringify } from 'yaml';
import { digestOf, digestIn } from '../../../lib/content/oci/reference.ts';
import { mirrorPort } from '../../../lib/update/mirror/mirrorUnit.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { SimulatedCluster, gatherTrustIn } from '../../fakes/cluster/simulatedCluster.ts';
import { startApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { requireRoot, storageIn } from '../../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeKubeconfigFolder } from '../../support/kubeconfig.ts';
import { requireLoopDevices } from '../../support/loopDevice.ts';
import { makeMirror, trustMirror } from '../../support/mirror.ts';
import { requirePeer, run, runSuccessfully, type RunResult } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';
import { makeArchive, soundFiles } from '../../support/release/graphArchive.ts';

const ignore = (): void => undefined;
const registryName = 'registry.site.test';

describe('a machine without an IPv4 address', function () {
  requirePeer(this, 'docker-registry', 'skopeo', 'podman', 'curl');
  let made: TestBundle;
  let folder: string;
  before(async function () {
    await requireRoot(this);
    made = await makeBundle({ version: '4.19.4', previous: ['4.19.3'], components: ['cli', 'etcd'] });
  });
  after(() => (made as TestBundle | undefined)?.remove());
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'ipv6-'));
    await writeFile(join(folder, 'hosts'), `::1 localhost\nfd53::1 ${registryName}\n`);
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  const product = (name: string, ...args: string[]): string =>
    [process.execPath, executableOf(name), ...args].map((word) => `'${word}'`).join(' ');
  const trusting = (): string[] => [
    `--signature-keyring=${made.keyFile}`,
    `--trust-fingerprint=${made.key.fingerprint}`,
  ];
  /** Runs a script in a network namespace that has only IPv6 addresses, also for loopback. */
  const runInside = async (...lines: string[]): Promise<RunResult> => {
    const script = [
      'set -e',
      'ip link set lo up && ip addr del 127.0.0.1/8 dev lo && ip addr add fd53::1/128 dev lo nodad',
      '[ -z "$(ip -4 -o addr)" ]',
      `mount --bind '${folder}/hosts' /etc/hosts`,
      "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT",
      'await() { for i in $(seq 100); do curl -skg -o /dev/null "$1" && return; sleep 0.1; done; return 1; }',
      ...lines,
    ];
    const env = { ...process.env, ...(await storageIn(join(folder, 'store'))), HOME: folder };
    return run('unshare', ['-nm', 'bash', '-c', script.join('\n')], { env });
  };
  /** Lets podman find the images of the release at a host, as a mirror set does. */
  const writeMirror = async (host: string, repository: string, hasTls = false): Promise<void> => {
    const tables = made.result.metadata.images.map((image) => {
      const source = image.split('@')[0] ?? '';
      return (
        `[[registry]]\nprefix = "${source}"\nlocation = "${source}"\n[[registry.mirror]]\nlocation = ` +
        `"${host}/${repository}"\ninsecure = ${!hasTls}\n`
      );
    });
    await writeFile(join(folder, 'registries.conf'), [...new Set(tables)].join('\n'));
    await writeFile(join(folder, 'policy.json'), '{"default":[{"type":"insecureAcceptAnything"}]}');
  };
  const pull = (image: string): string =>
    `CONTAINERS_REGISTRIES_CONF='${folder}/registries.conf' podman pull -q ` +
    `--signature-policy='${folder}/policy.json' '${image}'`;
  const startRegistry = async (): Promise<string> => {
    await mkdir(join(folder, 'registry'));
    const storage = { filesystem: { rootdirectory: join(folder, 'registry') } };
    await writeFile(
      join(folder, 'registry.yaml'),
      stringify({ version: '0.1', storage, http: { addr: '[fd53::1]:5000', secret: 'x' } }),
    );
    return `docker-registry serve '${folder}/registry.yaml' >/dev/null 2>&1 & await 'http://[fd53::1]:5000/v2/'`;
  };

  it('pushes to a registry by its name, from which podman pulls', async () => {
    const to = `${registryName}:5000/ocp/release`;
    await writeMirror(`${registryName}:5000`, 'ocp/release');
    const { code, stdout, stderr } = await runInside(
      await startRegistry(),
      product('oc-adm_upgrade_bundle', 'push', made.path, `--to=${to}`, '--insecure', ...trusting()),
      pull(made.result.metadata.components['etcd'] ?? ''),
      'podman images --digests --format "{{.Digest}}"',
    );
    expect(code, stderr).to.equal(0);
    expect(stdout).to.contain(digestIn(made.result.metadata.components['etcd'] ?? ''));
  });

  it('mirrors to an address, without a mirror set or an update service that would name it', async () => {
    await writeFile(join(folder, 'graph.tar'), makeArchive(soundFiles));
    const { code, stdout, stderr } = await runInside(
      await startRegistry(),
      `mkdir '${folder}/m' && tar -xf '${made.path}' -C '${folder}/m'`,
      product(
        'oc-adm_release_mirror_config',
        `--from-dir=${folder}/m`,
        'file://openshift/release:4.19.4-x86_64',
        '--to=[fd53::1]:5000/ocp/release',
        `--config-to-dir=${folder}/config`,
        `--graph-data=${folder}/graph.tar`,
        '--insecure',
        ...trusting(),
      ),
      `ls '${folder}/config'`,
    );
    expect(code, stderr).to.equal(0);
    for (const what of ['mirror sets', 'an update service'])
      expect(stderr).to.contain(
        `${what} cannot name the IPv6 address in [fd53::1]:5000/ocp/release, so none is written`,
      );
    expect(stdout.trim().split('\n').at(-1)).to.equal('signature');
    expect(stdout).not.to.match(/^(?:mirrors|update-service)$/m);
  });

  it('serves a bundle to podman, by the name of the machine', async () => {
    await writeMirror(`${registryName}:5001`, 'openshift/release');
    const image = made.result.metadata.components['cli'] ?? '';
    const { code, stdout, stderr } = await runInside(
      `${product('oc-adm_upgrade_bundle', 'serve', made.path, '--listen=[::]:5001', `--host=${registryName}`, ...trusting())} ` +
        `>/dev/null 2>'${folder}/served' & await 'http://[fd53::1]:5001/v2/'`,
      pull(image),
      'podman images --digests --format "{{.Digest}}"',
    );
    expect(code, `${stderr}\n${await readFile(join(folder, 'served'), 'utf8')}`).to.equal(0);
    expect(stdout).to.contain(digestIn(image));
  });

  it('serves a bundle to itself, at the loopback address of IPv6', async () => {
    // skopeo and podman before 2023 read no reference with an IPv6 address.
    const url = `http://[::1]:5002/v2/openshift/release/manifests/${made.release.digest}`;
    const { code, stdout, stderr } = await runInside(
      `${product('oc-adm_upgrade_bundle', 'serve', made.path, '--listen=[::1]:5002', '--host=::1', ...trusting())} ` +
        ">/dev/null 2>&1 & await 'http://[::1]:5002/v2/'",
      `curl -sgf '${url}' | sha256sum`,
    );
    expect(code, stderr).to.equal(0);
    expect(`sha256:${stdout.split(' ')[0] ?? ''}`).to.equal(made.release.digest);
  });

  it('shows status --web at the loopback address of IPv6, from an API server at an IPv6 address', async () => {
    const server = await startApiServer({ openshift: '4.19.3' });
    server.put(upgradeBundleDefinition());
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle-reports' } });
    // The namespace reaches the server by a socket of the file system.
    const socket = join(folder, 'api');
    const { port } = new URL(server.url);
    const bridge = createServer((client) => void pipeline(client, connect(Number(port), '127.0.0.1'), client, ignore));
    bridge.listen(socket);
    await writeFile(
      join(folder, 'bridge.mjs'),
      `import { connect, createServer } from 'node:net';
createServer((client) => client.pipe(connect('${socket}')).pipe(client)).listen(7000, '::1');`,
    );
    const cluster = { server: 'http://[::1]:7000' };
    await using kubeconfigs = await makeKubeconfigFolder();
    const kubeconfig = await kubeconfigs.write({ cluster });
    const { stdout, stderr } = await runInside(
      `'${process.execPath}' '${folder}/bridge.mjs' & await '${cluster.server}/version'`,
      `${product('oc-adm_upgrade_bundle', 'status', '--web', `--kubeconfig=${kubeconfig}`)} >'${folder}/url' & ` +
        `for i in $(seq 100); do [ -s '${folder}/url' ] && break; sleep 0.1; done`,
      `curl -sgf "$(cat '${folder}/url')" | head -c 15; echo; cat '${folder}/url'`,
    );
    bridge.close();
    await server.stop();
    const [page, url] = stdout.split('\n');
    expect(page, stderr).to.equal('<!doctype html>');
    expect(url).to.match(/^http:\/\/\[::1\]:\d+\//);
  });

  describe('with a mirror of a control plane node', () => {
    const image = (component: string): string => made.result.metadata.components[component] ?? expect.fail();
    let serve: string;
    beforeEach(async () => {
      const folders = await makeMirror(folder, made.path, [registryName]);
      // The listening address of the unit (mirrorUnit).
      serve =
        `${product('oc-adm_upgrade_bundle', 'mirror-serve', `--listen=[::]:${mirrorPort}`, ...folders)} ` +
        `>/dev/null 2>'${folder}/served' & await 'https://[::1]:${mirrorPort}/v2/'`;
      await writeMirror(`${registryName}:${mirrorPort}`, 'openshift-release-dev/ocp-v4.0-art-dev', true);
    });
    it('pulls by the name of the mirror, which the CA and the certificate permit', async () => {
      await trustMirror(folder, join(folder, 'ca.crt'), [registryName]);
      const { code, stdout, stderr } = await runInside(
        serve,
        pull(image('etcd')),
        'podman images --digests --format "{{.Digest}}"',
      );
      expect(code, `${stderr}\n${await readFile(join(folder, 'served'), 'utf8')}`).to.equal(0);
      expect(stdout).to.contain(digestIn(image('etcd')));
    });

    it('pulls nothing if it does not have the CA', async () => {
      const { code, stderr } = await runInside(serve, pull(image('etcd')));
      expect(code).not.to.equal(0);
      expect(stderr).to.match(/x509|certificate/);
    });
  });
});

describe('agents with IPv6 addresses only', function () {
  requirePeer(this, 'skopeo', 'podman');
  const addresses = [1, 2, 3].map((number) => `fd53::${number}`);
  let made: TestBundle;
  before(async function () {
    await requireRoot(this);
    await requireLoopDevices(this);
    for (const address of addresses)
      await runSuccessfully('ip', ['addr', 'add', `${address}/128`, 'dev', 'lo', 'nodad']);
    made = await makeBundle({ version: '4.19.4', previous: ['4.19.3'], layerSize: 300_000 });
  });
  after(async () => {
    for (const address of addresses) await run('ip', ['addr', 'del', `${address}/128`, 'dev', 'lo']);
    await (made as TestBundle | undefined)?.remove();
  });

  it('give a bundle to each other, and update the cluster', async () => {
    const trust = await gatherTrustIn(made);
    await using cluster = await SimulatedCluster.start({ trust, addresses: 'fd53::' });
    await cluster.play(async () => {
      cluster.allow(digestOf(await readFile(made.path)));
      const nodes = await Promise.all(
        ['master-0', 'worker-0', 'worker-1'].map((name) => cluster.addNode(name, ['--disk-floor=1Mi'])),
      );
      const [, worker] = nodes;
      const image = (await worker?.drives.makeImage(8)) ?? '';
      await runSuccessfully('dd', [`if=${made.path}`, `of=${image}`, 'conv=notrunc', 'status=none']);
      await worker?.drives.plug(image);
      await cluster.until(() => cluster.phase() === 'Completed');
      expect(cluster.bundle()?.status).to.include({ nodesReady: '3/3', progress: '100%' });
    });
    expect([...new Set(cluster.denied)]).to.deep.equal([]);
  });
});
