/**
 * The version of Quay in each release of the mirror registry (quay/mirror-registry, `.env` of each tag; 2.0.8 by its
 * release notes). A host has only the tag of the image. 1.2.4 was released again as 1.2.5.
 */
const quayVersions: Readonly<Record<string, string>> = {
  '1.0.0': '3.6.1',
  '1.1.0': '3.6.4',
  '1.2.0': '3.7.1',
  '1.2.1': '3.7.2',
  '1.2.2': '3.7.3',
  '1.2.3': '3.7.4',
  '1.2.5': '3.7.5',
  '1.2.4': '3.7.5',
  '1.2.6': '3.7.7',
  '1.2.7': '3.7.8',
  '1.2.8': '3.7.9',
  '1.2.9': '3.7.10',
  '1.3.0': '3.8.1',
  '1.3.1': '3.8.3',
  '1.3.2': '3.8.4',
  '1.3.3': '3.8.5',
  '1.3.4': '3.8.6',
  '1.3.5': '3.8.7',
  '1.3.6': '3.8.8',
  '1.3.7': '3.8.10',
  '1.3.8': '3.8.11',
  '1.3.9': '3.8.12',
  '1.3.10': '3.8.14',
  '1.3.11': '3.8.15',
  '2.0.0': '3.12.0',
  '2.0.1': '3.12.1',
  '2.0.2': '3.12.2',
  '2.0.3': '3.12.3',
  '2.0.4': '3.12.4',
  '2.0.5': '3.12.5',
  '2.0.6': '3.12.8',
  '2.0.7': '3.12.10',
  '2.0.8': '3.12.12',
  '2.0.10': '3.12.14',
  '2.0.11': '3.12.18',
};

/** Returns the version of the mirror registry with a version of Quay; undefined if unknown. */
export function mirrorRegistryVersion(quay: string): string | undefined {
  return Object.entries(quayVersions).find(([, version]) => version === quay)?.[0];
}

/** Returns the version of Quay in a tag (`…/quay-rhel8:v3.12.10`); undefined for an image without such a tag. */
export function quayVersionOf(image: string): string | undefined {
  return /:v?(\d+\.\d+\.\d+)(?:-\d+)?$/.exec(image.replace(/@.*$/, ''))?.[1];
}

/**
 * Compares tags such as `v3.12.10` or `1-1766406130` by their numbers: negative if the first is older, 0 if they are
 * equal.
 */
export function compareTags(a: string, b: string): number {
  const numbers = (tag: string): number[] => (tag.match(/\d+/g) ?? []).map(Number);
  const [left, right] = [numbers(a), numbers(b)];
  for (let index = 0; index < Math.max(left.length, right.length); index += 1) {
    const difference = (left[index] ?? 0) - (right[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** Lists the releases of the mirror registry with known images, newest first. */
export function knownVersions(): string[] {
  return Object.keys(quayVersions)
    .filter((version) => imagesOfVersion(version) !== undefined)
    .sort((a, b) => compareTags(b, a));
}

/**
 * Returns the images of a release of the mirror registry, by tag: of 1.3.0 to 1.3.10, and since 2.0.0. Undefined if
 * unknown.
 */
export function imagesOfVersion(version: string): { quay: string; redis: string; pause: string } | undefined {
  const quay = quayVersions[version];
  const isOld = /^1\.3\.(?:\d|10)$/.test(version);
  if (quay === undefined || !(isOld || version.startsWith('2.'))) return undefined;
  const redis = isOld ? '1-92.1669834635' : compareTags(version, '2.0.10') >= 0 ? '1-1766406130' : '1-190';
  return {
    quay: `registry.redhat.io/quay/quay-rhel8:v${quay}`,
    redis: `registry.redhat.io/rhel8/redis-6:${redis}`,
    pause: `registry.access.redhat.com/ubi8/pause:${isOld ? '8.7-6' : '8.10-5'}`,
  };
}
