import { expect } from 'chai';
import { registryCommandsIn } from '../../../lib/readiness/lint/registryCommand.ts';
import { listCommands } from '../../../lib/readiness/lint/shell.ts';

/** Scripts with a command that contacts a registry. */
const contacting = [
  'skopeo copy "$SRC" docker-archive:/x',
  'podman pull quay.io/x/y',
  'sudo -n podman --root /x pull $IMAGE',
  'if ! crictl pull "$1"; then exit 1; fi',
  'x=$(skopeo inspect docker://quay.io/x/y | jq .Digest)',
  'skopeo copy "$SRC" "$DST"',
  'oc image extract quay.io/x/y --path /:/x',
  'oc --kubeconfig=/k adm release info quay.io/x/y',
  'rpm-ostree rebase --experimental ostree-unverified-registry:quay.io/x/y',
  'timeout 30 bash -c "podman pull quay.io/x/y"',
  'podman run --pull=always quay.io/x/y',
  'bootc switch quay.io/x/y',
  'ctr -n k8s.io images pull quay.io/x/y',
  'curl -s https://quay.io/v2/x/y/manifests/latest',
  'cat <<EOF\n$(podman pull quay.io/x/y)\nEOF',
  'pod\\\nman \\\n  pull quay.io/x/y',
  'podman build --pull .',
  'buildah bud --pull-always -t x .',
  'podman image build --pull=newer .',
  'oras pull quay.io/x/y:1',
  'crane digest quay.io/x/y',
  'cosign verify quay.io/x/y',
  'podman compose pull',
  'helm upgrade x oci://quay.io/x/chart',
];

/** Scripts that look like them, and contact none. */
const local = [
  'buildah bud .',
  '# a; podman pull quay.io/x/y',
  'echo "podman pull quay.io/x/y"',
  'podman run quay.io/x/y',
  'podman image exists "$I" || podman pull "$I"',
  'skopeo inspect containers-storage:quay.io/x/y',
  'skopeo inspect docker://localhost:5000/x',
  'oc image extract file://x',
  'oc get image pull',
  'rpm-ostree rebase ostree-unverified-image:containers-storage:x',
  'rpm-ostree status',
  'podman pull oci:/x',
  'buildah pull dir:/x',
  'crictl images',
  'podman exec x pull',
  'bootc switch --transport containers-storage x',
  'podman pull --policy=missing x',
  'curl http://127.0.0.1:5000/v2/',
  'mypodman pull x',
  "echo 'a; podman pull x'",
  'podman build .',
  'podman build --pull=missing .',
  'helm upgrade x ./chart',
  'podman compose up',
  'oras pull localhost:5000/x:1',
  'cosign version',
];

const find = (script: string): string[] => registryCommandsIn(listCommands(script)).map((words) => words.join(' '));

describe('registryCommandsIn', () => {
  for (const script of contacting)
    it(`finds ${script.replaceAll('\n', ' ')}`, () => {
      expect(find(script)).to.have.length(1);
    });

  for (const script of local)
    it(`leaves out ${script.replaceAll('\n', ' ')}`, () => {
      expect(find(script)).to.deep.equal([]);
    });

  it('returns the call without keywords, assignments, wrappers and shells', () => {
    expect(find('if ! A=b sudo -n timeout 30 bash -c "podman pull x/y"; then exit; fi')).to.deep.equal([
      'podman pull x/y',
    ]);
  });

  it('lists the calls in the order of the script', () => {
    expect(find('crictl pull b; podman pull a')).to.deep.equal(['crictl pull b', 'podman pull a']);
  });

  it('leaves out a pull only if the script asks for the same image', () => {
    expect(find('podman image exists a || podman pull b')).to.deep.equal(['podman pull b']);
  });
});
