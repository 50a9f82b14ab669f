/** Checks of a cluster before an update. */
export { acknowledgements, adminGates, listDueAcknowledgements } from './preflight/acknowledgements.ts';
export { machineConfigDaemon, probeName, readDaemonImage } from './preflight/admissionCheck.ts';
export { checkDrains, guardsPod } from './preflight/drainCheck.ts';
export {
  lastDrillAnnotation,
  readRunningDrill,
  runningDrillAnnotation,
  type DrillOutcome,
  type DrillRecord,
  type RunningDrill,
} from './preflight/drillRecord.ts';
export { lacksPullSecret, pullSecret } from './preflight/mirroredStreams.ts';
export {
  checkEtcdMembers,
  checkOperators,
  checkPools,
  describeDegraded,
  topologyOf,
} from './preflight/operatorCheck.ts';
export {
  checkPreviewStreams,
  checkStreams,
  controllerPods,
  findWaitingController,
  type WaitingController,
} from './preflight/osImageStreamCheck.ts';
export { keyOf, readPodTemplate, type PodTemplate } from './preflight/podTemplate.ts';
export { findLeftOut, refuseHostedControlPlane, runPreflight, type Preflight } from './preflight/preflight.ts';
export { readSite } from './preflight/site.ts';
export {
  featureSetOf,
  hasMirrors,
  isImageOf,
  isOwnMirrorSet,
  keepsBundles,
  keptAnnotation,
  ownMirrorSet,
  surveyCluster,
  surveyedKinds,
  type ClusterSurvey,
  type DigestMirrors,
} from './preflight/survey.ts';
export { checkPath, checkState, takesLocalSystem } from './preflight/versionCheck.ts';
export { checkWebhooks, dependsOnPods, listServiceNamespaces } from './preflight/webhookCheck.ts';
