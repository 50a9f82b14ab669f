import { mkdir, rename, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Host } from '../../../lib/node/machine/host.ts';

/**
 * What the script of the etcd operator does (openshift/cluster-etcd-operator, bindata/etcd/cluster-backup.sh), without
 * etcd: writes a snapshot, which ends with its SHA-256, and an archive of the static pods.
 */
const script = `#!/bin/bash
set -o errexit -o pipefail
folder=$1
mkdir -p "$folder"
stamp=$(date +%F_%H%M%S)
snapshot=$folder/snapshot_$stamp.db
resources=$(mktemp -d)
trap 'rm -rf "$resources"' EXIT
for pod in kube-apiserver kube-controller-manager kube-scheduler etcd; do
  mkdir -p "$resources/static-pod-resources/$pod-pod-7"
  echo "$pod" > "$resources/static-pod-resources/$pod-pod-7/$pod-pod.yaml"
done
tar -czf "$folder/static_kuberesources_$stamp.tar.gz" -C "$resources" static-pod-resources
head -c 8192 /dev/urandom > "$snapshot"
digest=$(sha256sum "$snapshot")
printf "$(sed 's/../\\\\x&/g' <<< "\${digest:0:64}")" >> "$snapshot"
echo "snapshot db and kube resources are successfully saved to $folder"
`;

/** Runs a program in the namespaces of the test instead of those of process 1. */
const nsenter = `#!/bin/bash
until [[ $1 == -- ]]; do shift; done
shift
exec "$@"
`;

/** Writes the programs of a control plane node that back it up. `content`: another script than that of the operator. */
export async function writeBackupPrograms(folder: string, content = script): Promise<void> {
  await writeProgram(join(folder, 'cluster-backup.sh'), content);
  await writeProgram(join(folder, 'nsenter'), nsenter);
}

/** Replaces a program. The kernel refuses writes to the file of one that starts (ETXTBSY). */
async function writeProgram(path: string, text: string): Promise<void> {
  await writeFile(`${path}.new`, text, { mode: 0o755 });
  await rename(`${path}.new`, path);
}

/** Runs a program of a folder that stands for a root directory, with the paths of that root. */
const chroot = `#!/bin/bash
root=$1 program=$2
shift 2
args=()
for arg; do
  [[ $arg == /* ]] && arg=$root$arg
  args+=("$arg")
done
exec "$root$program" "\${args[@]}"
`;

/** Makes a folder the root directory of a control plane node that can be backed up. `content`: another script. */
export async function makeBackupHost(root: string, content?: string): Promise<Host> {
  const [bin, own] = [join(root, 'usr/bin'), join(root, 'own')];
  for (const folder of [bin, own]) await mkdir(folder, { recursive: true });
  await writeBackupPrograms(bin, content);
  for (const name of ['tar', 'cp', 'nice', 'ionice'])
    await symlink(`/usr/bin/${name}`, join(bin, name)).catch(() => undefined);
  await writeProgram(join(own, 'chroot'), chroot);
  return { root, environment: { PATH: `${own}:${process.env['PATH'] ?? ''}` } };
}
