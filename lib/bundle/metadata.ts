/** The metadata of a bundle, its images, and the configuration that it carries. */
export { parseConfig, readBundledSignatures, readConfigFolder, type ConfigText } from './metadata/bundledConfig.ts';
export { checkConfig, type ConfigVerdict } from './metadata/configCheck.ts';
export {
  extraImageTag,
  listContainerImages,
  listNamedImages,
  resolveExtraImage,
  type BundleImage,
} from './metadata/images.ts';
export {
  describeSignatures,
  encodeMetadata,
  metadataPath,
  metadataSizeLimit,
  parseMetadata,
  smallestReportSpace,
  splitReleases,
  type BlobRecord,
  type BundleBase,
  type BundleMetadata,
  type BundledRelease,
  type SkippedImage,
} from './metadata/metadata.ts';
export {
  additionalImagesPath,
  formatAdditionalImages,
  formatReleaseRepositories,
  readAdditionalImages,
  readReleaseRepositories,
  repositoriesPath,
  type AdditionalImageName,
} from './metadata/originalNames.ts';
