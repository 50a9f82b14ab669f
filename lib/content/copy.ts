/** Copies of images from any store to any other, in the order that a registry needs. */
export { CopyFailure, copyImages, describeFailures, type CopyOptions, type Image } from './copy/copy.ts';
export { keepAttachments } from './copy/keepAttachments.ts';
export { copyReleasesLast, type CopiedImages, type CopyGuard, type OrderedImage } from './copy/releaseOrder.ts';
export { CopyTally, type CopyCounts } from './copy/tally.ts';
