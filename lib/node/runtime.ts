/** The configuration of the container runtime: mirrors, pinned images, pull records. */
export {
  drillBootUnit,
  drillTraces,
  drillUnit,
  nextBootFile,
  requestsFile,
  runDrill,
  startArguments,
  type DrillPlan,
  type DrillRequest,
} from './runtime/drillRegistry.ts';
export { redirectRuntimes, refuseOthers, startMirror, type RuntimeMirrorRequest } from './runtime/mirror.ts';
export {
  holdImages,
  readHold,
  readPinnedReleases,
  releaseImages,
  unpinImages,
  unpinReleases,
  writePins,
  type PinResult,
} from './runtime/pins.ts';
export {
  findGuardedImages,
  findVerifyingPolicy,
  listVerified,
  pullPolicyFields,
  removeRecord,
  type GuardedImage,
} from './runtime/pullRecords.ts';
export { readRegistries } from './runtime/storageConfig.ts';
