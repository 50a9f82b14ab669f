import type { Finding } from '#cluster/finding';
import { blocks } from '#cluster/version';
import { fieldsAt, fieldsOf } from '#fields';
import type { ClusterNode } from './node.ts';

const gibibyte = 1024 ** 3;
/** The free space that the machine config operator requires to pin images, in bytes (its pinned_image_set.go). */
const pinFloor = 16 * gibibyte;
/** The part of a disk that agents leave free, and below which the kubelet evicts pods (`imagefs.available`). */
const evictionShare = 0.15;
/**
 * The part of the disk that stays free on a node that keeps bundles for a mirror. Kubelets remove images from 85 % on.
 */
export const retentionShare = 0.25;
/** Layers are compressed in a bundle, and about twice as large in a node’s storage. */
export const unpackedFactor = 2;

const advice = {
  space: 'Make room, or give the node a larger disk; oc adm prune and crictl rmi remove images that no container uses.',
  stats: 'Check it on the node (df /var/lib/containers), or run this as a user with the right to get nodes/proxy.',
};

/** The bytes of a file system. `size` is undefined if nothing reports it. */
export interface FileSystem {
  readonly free: number;
  readonly size?: number;
}

/** The file systems of a node that an update fills. */
export interface NodeDisks {
  /** The one with the images, which is `/var/lib/containers`. */
  readonly images: FileSystem;
  /** The one with the copy of the bundle, the backups and the kubelet’s folder, if it is another one. */
  readonly system?: FileSystem;
}

/** The bytes that an update adds to a node. */
export interface DiskNeeds {
  /** The blobs of the images that the node lacks, as they are in the bundle. */
  readonly blobs: number;
  readonly backups: number;
  /** Whether the node keeps bundles for a mirror. */
  readonly retains: boolean;
}

/**
 * Reads the file systems of a node from the kubelet’s Summary API (`stats/summary`). Of a split image file system,
 * `imageFs` has the layers of images (Kubernetes, KEP-4191). Undefined if it reports none.
 */
export function readDisks(summary: unknown): NodeDisks | undefined {
  const { runtime, fs } = fieldsAt(summary, 'node');
  const [images, system] = [readFileSystem(fieldsAt(runtime, 'imageFs')), readFileSystem(fieldsOf(fs))];
  if (!images) return system && { images: system };
  const inodes = [fieldsAt(runtime, 'imageFs'), fieldsOf(fs)].map((each) => each['inodes']);
  const isShared = !system || (images.size === system.size && inodes[0] === inodes[1]);
  return isShared ? { images } : { images, system };
}

function readFileSystem({ availableBytes, capacityBytes }: Readonly<Record<string, unknown>>): FileSystem | undefined {
  if (typeof availableBytes !== 'number') return undefined;
  return { free: availableBytes, ...(typeof capacityBytes === 'number' && { size: capacityBytes }) };
}

/**
 * Checks that each file system of a node has room for what is written to it, and keeps free what agents leave free.
 * `disks` undefined: the node does not report them, and only the size of its disk is known.
 */
export function checkNodeDisks(node: ClusterNode, disks: NodeDisks | undefined, needs: DiskNeeds): Finding[] {
  const images = needs.blobs * unpackedFactor;
  // The blobs stay on the disk until every node has unpacked them.
  const files = needs.blobs + needs.backups;
  const share = needs.retains ? retentionShare : evictionShare;
  // A node that has all images writes none, so what agents leave free does not count.
  const reserve = ({ size }: FileSystem, part = share): number => (needs.blobs === 0 ? 0 : reserveOf(size, part));
  if (!disks) return checkUnknown(node, images + files, { ...needs, share });
  const { images: own, system } = disks;
  if (!system) {
    const what = describeNeeds(images + needs.blobs, 'images', needs.backups);
    return checkFileSystem(node, own.free, images + files + reserve(own), what);
  }
  const [imagesPlace, systemPlace] = [' at /var/lib/containers', ' on its system disk'];
  return [
    ...checkFileSystem(
      node,
      own.free,
      images + reserve(own, evictionShare),
      describeNeeds(images, 'images'),
      imagesPlace,
    ),
    ...checkFileSystem(
      node,
      system.free,
      files + reserve(system),
      describeNeeds(needs.blobs, 'copy of the bundle', needs.backups),
      systemPlace,
    ),
  ];
}

function checkFileSystem(node: ClusterNode, free: number, needed: number, what: string, where = ''): Finding[] {
  return free < needed ? [findLack(node, `has ${compare(free, needed)[0]} only${where}`, free, needed, what)] : [];
}

function checkUnknown(
  node: ClusterNode,
  added: number,
  { blobs, backups, share }: DiskNeeds & { readonly share: number },
): Finding[] {
  const needed = added + reserveOf(node.capacity, share);
  const what = describeNeeds(blobs * (1 + unpackedFactor), 'images', backups);
  const room = node.allocatable;
  if (room !== undefined && room < needed)
    return [findLack(node, `has a disk of which pods may use ${compare(room, needed)[0]} only`, room, needed, what)];
  const message =
    `does not tell how much is free; ${inGibibytes(needed)} of free space are needed (${what}, the rest stays ` +
    'free)';
  return [{ check: 'space', severity: 'info', subject: subjectOf(node), message, advice: advice.stats }];
}

function findLack(node: ClusterNode, has: string, free: number, needed: number, what: string): Finding {
  const message = `${has}; ${compare(free, needed)[1]} of free space are needed (${what}, the rest stays free)`;
  return { check: 'space', ...blocks('space'), subject: subjectOf(node), message, advice: advice.space };
}

function describeNeeds(bytes: number, what: string, backups = 0): string {
  return (
    `${inGibibytes(bytes)} for the ` +
    `${what}${backups > 0 ? `, ${inGibibytes(backups)} for two backups of etcd` : ''}`
  );
}

/** Without the size of a file system, only what the machine config operator requires is certain. */
function reserveOf(size: number | undefined, share: number): number {
  return Math.max(pinFloor, share * (size ?? 0));
}

function subjectOf({ name }: ClusterNode): Finding['subject'] {
  return { kind: 'Node', name };
}

/** Formats two amounts with as many decimals as they need to differ. */
function compare(less: number, more: number): readonly [string, string] {
  const digits = [0, 1, 2, 3].find((each) => inGibibytes(less, each) !== inGibibytes(more, each)) ?? 3;
  return [inGibibytes(less, digits), inGibibytes(more, digits)];
}

function inGibibytes(bytes: number, digits = 0): string {
  return `${(bytes / gibibyte).toFixed(Math.max(digits, bytes < 10 * gibibyte ? 1 : 0))} GiB`;
}
