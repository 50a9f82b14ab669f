/** Mirroring of releases, catalogs and other images to a registry or a directory. */
export { isImageConfig, type Applied, type ImageConfig } from './mirror/clusterConfig.ts';
export type { WrittenFile } from './mirror/configFiles.ts';
export { formatPlace, formatTarget, parseDestination, releaseName, type MirrorImage } from './mirror/destination.ts';
export type { MirrorMeasure } from './mirror/measure.ts';
export { listMapping, mirrorRelease, type MirrorOutcome } from './mirror/mirroring.ts';
export { FilledRepositories, type MirrorResult } from './mirror/plan.ts';
export { listReleases, readStoredReleases } from './mirror/releases.ts';
export type { MirroringRequest, ReleaseChoice } from './mirror/request.ts';
