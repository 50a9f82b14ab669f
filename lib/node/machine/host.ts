import { join } from 'node:path';

/**
 * A machine whose image store and configuration are used: this machine, or one whose file system is mounted below a
 * folder.
 */
export interface Host {
  /** The root of its file system: `/`, or `/host` in a container that mounts it there. */
  readonly root: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** Converts an absolute path of the host to a path of this process. Follows no link. */
export function pathOnHost(host: Host, path: string): string {
  return join(host.root, path);
}

/** Returns `this machine`, or `the machine at` and the path of its root folder. */
export function describeHost(host: Host): string {
  return host.root === '/' ? 'this machine' : `the machine at ${host.root}`;
}

/** The storage configuration that container runtimes read instead of `vendorStorageFile`. */
export const storageFile = '/etc/containers/storage.conf';

/** The storage configuration of the operating system. */
export const vendorStorageFile = '/usr/share/containers/storage.conf';

/** The configuration of registries for container runtimes. */
export const registriesFile = '/etc/containers/registries.conf';

/**
 * The drop-in that redirects container runtimes to the mirror. It is read after all other files, whose settings for
 * other prefixes stay.
 */
export const mirrorFile = `${registriesFile}.d/999-oc-upgrade-bundle.conf`;

/** The drop-in of a drill, which sends every registry to a port of the node. It is read after `mirrorFile`. */
export const drillFile = `${registriesFile}.d/9999-oc-upgrade-bundle-drill.conf`;

/** The main configuration of CRI-O. */
export const crioFile = '/etc/crio/crio.conf';

/**
 * The drop-in with the pins of this program. CRI-O reads drop-ins by name, and a list replaces the earlier lists. So
 * 50-pinned-images, which the machine-config-operator writes for PinnedImageSets, overrides this one.
 */
export const pinFile = `${crioFile}.d/10-oc-upgrade-bundle-pins.conf`;

/**
 * The drop-in that holds the images of an update until the cluster pins them. CRI-O reads it after all others, so its
 * list has their pins too.
 */
export const holdFile = `${crioFile}.d/zz-oc-upgrade-bundle-hold.conf`;

/** The list of the machine config operator, for PinnedImageSets (pkg/daemon/pinned_image_set.go). */
export const clusterPinFile = `${crioFile}.d/50-pinned-images`;

/** The folder of the agent on its node, with its executable and its state. Uninstallation removes it. */
export const nodeStateFolder = '/var/lib/oc-upgrade-bundle';

/** The path of the agents’ executable on a node. */
export const executablePath = `${nodeStateFolder}/bin/oc-adm_upgrade_bundle`;

/** The folder with the certificate and the settings of a control plane node’s mirror. It exists only with a mirror. */
export const mirrorFolder = `${nodeStateFolder}/mirror`;

/** The file with the state of the mirror of a control plane node, which its unit may write. */
export const mirrorStateFile = '/run/oc-upgrade-bundle-mirror/state.json';

/** The folder of a drill on its node. It exists only while the drill runs. */
export const drillFolder = `${nodeStateFolder}/drill`;

/**
 * The folder with the temporary files of a run that loads images into a main store, without the suffix for the store.
 */
export const loadFolder = '/var/tmp/oc-upgrade-bundle';

/** The default folder for mounts of media, and the folder above it, which only this program uses. */
export const mountFolder = '/run/oc-adm-upgrade-bundle/media';

/** The folder of backups on a control plane node, below the folder that OpenShift’s documentation uses for backups. */
export const backupFolder = '/home/core/assets/backup/oc-upgrade-bundle';

/** The folder in /run of what an agent says to a person in front of its node. It is empty after a boot. */
export const screenFolder = '/run/oc-upgrade-bundle';

/** The text for the login screen of a node. */
export const screenFile = `${screenFolder}/login.issue`;

/**
 * The links to `screenFile`: agetty reads the folder in /etc if there is /etc/issue, and the folder in /run otherwise.
 * Files are read in the order of their names.
 */
export const screenLinks = {
  etc: '/etc/issue.d/90-oc-upgrade-bundle.issue',
  run: '/run/issue.d/90-oc-upgrade-bundle.issue',
} as const;
