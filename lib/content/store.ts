/** Stores of content: interfaces, mirror directories, OCI layouts, and the graph of an image. */
export {
  Overlay,
  deriveImage,
  listPlatforms,
  type BaseImage,
  type DerivedImage,
  type Layer,
} from './store/derivedImage.ts';
export {
  Directory,
  digestNamed,
  directoryLock,
  isTagFile,
  listManifests,
  listRepositories,
  releaseRepository,
  removeEmptyFolders,
  removeFromDirectory,
  type RemovedContent,
} from './store/directory.ts';
export {
  ImageGraphReader,
  blobsOf,
  isAttachment,
  walkManifests,
  type ImageGraph,
  type StoredManifest,
  type StoredManifests,
} from './store/imageGraph.ts';
export { openLocation, parseLocation, type Location, type OpenedLocation } from './store/location.ts';
export { OciLayout, ociLayoutFile } from './store/ociLayout.ts';
export {
  Verifier,
  isDamage,
  readContent,
  readImageManifest,
  verifyStream,
  type ContentPlace,
  type ContentSource,
  type ContentStore,
  type LocalContent,
} from './store/store.ts';
