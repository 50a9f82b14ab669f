/** Copies of images from any store to any other, in the order that a registry needs. */
export {
  CopyFailure,
  copyImages,
  copyReleasesLast,
  describeFailures,
  type CopiedImages,
  type CopyGuard,
  type CopyOptions,
  type Image,
  type OrderedImage,
} from './copy/copy.ts';
export { keepAttachments } from './copy/keepAttachments.ts';
export { CopyTally, type CopyCounts } from './copy/tally.ts';
