import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { mirrorPort } from '../../../lib/update/mirror/mirrorUnit.ts';
import { requireRoot, storageIn } from '../../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeMirror, trustMirror } from '../../support/mirror.ts';
import { requirePeer, run } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';

/**
 * What the machine config daemon of 4.22 and later does at the first boot of a node with skopeo before 1.22.2, up to
 * the deployment. `$1` is the image of the operating system. Source: machine-config-operator release-4.22,
 * pkg/daemon/update.go (isMultiArchImage, InplaceUpdateViaNewContainer).
 */
const firstBoot = `
if timeout 30 skopeo --registries-conf "$CONTAINERS_REGISTRIES_CONF" inspect --raw "docker://$1" >"$2/raw"; then
  case $(tr -d '[:space:]' <"$2/raw") in
    *'"mediaType":"application/vnd.docker.distribution.manifest.list.v2+json"'* | \\
    *'"mediaType":"application/vnd.oci.image.index.v1+json"'*) echo is a list ;;
    *) echo takes it from its own storage; exit 0 ;;
  esac
fi
podman pull -q --signature-policy="$2/policy.json" "$1" >/dev/null && echo pulled, and reboots again`;

describe('a node that joins a cluster of 4.22 or later', function () {
  requirePeer(this, 'skopeo', 'podman', 'curl');
  let made: TestBundle;
  let folder: string;
  let folders: string;
  before(async function () {
    await requireRoot(this);
    made = await makeBundle({ version: '4.22.3', components: ['etcd', 'rhel-coreos'], listOfOne: 'etcd' });
  });
  after(() => (made as TestBundle | undefined)?.remove());
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'joining-'));
    folders = (await makeMirror(folder, made.path, ['10.9.0.2', '10.9.0.3'])).join(' ');
    await trustMirror(folder, join(folder, 'ca.crt'), ['localhost', '10.9.0.2', '10.9.0.3']);
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  /** Boots a node whose mirrors are these, in their order: 10.9.0.2 is a control plane node, and 10.9.0.3 is off. */
  const boot = async (component: string, ...mirrors: string[]): Promise<string> => {
    const image = made.result.metadata.components[component] ?? expect.fail();
    const source = image.split('@')[0] ?? '';
    const tables = mirrors.map(
      (host) => `[[registry.mirror]]\nlocation = "${host}:${mirrorPort}/openshift-release-dev/ocp-v4.0-art-dev"\n`,
    );
    await writeFile(
      join(folder, 'registries.conf'),
      `[[registry]]\nprefix = "${source}"\nlocation = "${source}"\n${tables.join('')}`,
    );
    await writeFile(join(folder, 'policy.json'), '{"default":[{"type":"insecureAcceptAnything"}]}');
    await writeFile(join(folder, 'first-boot'), firstBoot);
    // As the unit of the mirror (mirrorUnit).
    const serve =
      `${process.execPath} ${executableOf('oc-adm_upgrade_bundle')} mirror-serve ` +
      `--listen=[::]:${mirrorPort} ${folders}`;
    const script = `set -e
ip link set lo up
ip link add m0 type veth peer name c0
unshare -n sleep 300 >/dev/null 2>&1 </dev/null & other=$!
trap 'kill $other $served 2>/dev/null || true' EXIT
sleep 0.5
ip link set m0 netns $other
nsenter -t $other -n sh -c 'ip link set lo up; ip addr add 10.9.0.2/24 dev m0; ip link set m0 up'
ip addr add 10.9.0.1/24 dev c0
ip link set c0 up
nsenter -t $other -n ${serve} >/dev/null 2>'${folder}/served' </dev/null & served=$!
for i in $(seq 100); do curl -sk -o /dev/null https://10.9.0.2:${mirrorPort}/v2/ && break; sleep 0.1; done
bash '${folder}/first-boot' '${image}' '${folder}'`;
    const env = {
      ...process.env,
      ...(await storageIn(join(folder, 'store'))),
      CONTAINERS_REGISTRIES_CONF: join(folder, 'registries.conf'),
      // The certs.d of this user is that of the node.
      HOME: folder,
    };
    const { stdout, stderr, code } = await run('unshare', ['-nm', 'bash', '-c', script], { env });
    expect(code, stderr).to.equal(0);
    return stdout.trim();
  };

  it('reads the manifest of its operating system from the second mirror, if the first one is off', async () => {
    expect(await boot('rhel-coreos', 'localhost', '10.9.0.3', '10.9.0.2')).to.equal('takes it from its own storage');
  });

  it('does not notice a mirror that is off behind the others', async () => {
    expect(await boot('rhel-coreos', 'localhost', '10.9.0.2', '10.9.0.3')).to.equal('takes it from its own storage');
  });

  it('pulls an image that is a list, and reboots again', async () => {
    expect(await boot('etcd', 'localhost', '10.9.0.2')).to.equal('is a list\npulled, and reboots again');
  });
});
