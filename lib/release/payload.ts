/** What the manifests of a release payload say: gates, features, filters, operating systems. */
export {
  describeGate,
  listGates,
  listRequiredGates,
  readPayloadGates,
  adminGate,
  gateConditions,
  type AdminGate,
  type GateConditions,
  type GatedRelease,
  type RequiredGate,
} from './payload/adminGates.ts';
export { makeManifestFilter, readFeatureSets, readPayloadPolicies } from './payload/metadata.ts';
export { exclusionOf, releaseMarksOf, selfManaged, type ManifestFilter } from './payload/manifestFilter.ts';
export {
  formatOSImageStream,
  installedVersionOf,
  isReadForStreams,
  listSystemImages,
  needsStreams,
  noStreamsAdvice,
  type OSImageStream,
  type OSImageStreams,
  type OSImageStreamSet,
  readOSImageStreams,
  readStreamsOf,
  readStreamTarget,
  streamAnnotations,
} from './payload/osImageStreams.ts';
export { readPayloadFiles, type PayloadFiles } from './payload/payload.ts';
