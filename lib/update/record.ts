/** The record of an update, the UpgradeBundle, and the reports of nodes. */
export {
  abortUpdate,
  allowBundle,
  awaitAbort,
  chooseRecord,
  cleanRecords,
  followRecord,
  listRecords,
  readElapsed,
  resumeUpdate,
  type BundleRequest,
} from './record/bundleRecord.ts';
export { planClusterRestore, type ClusterRestore, type RestoreStep } from './record/clusterRestore.ts';
export { checkWindow, findWindow, formatWindowTime, readNeeds, usualNeeds } from './record/maintenanceWindow.ts';
export { mirrorContents } from './record/mirrorContent.ts';
export { listMirrorStates, type NodeMirror } from './record/nodeReport.ts';
export {
  planOSImageStream,
  readStreamSite,
  writeOSImageStream,
  type StreamImages,
} from './record/osImageStreamWrite.ts';
export {
  agentNamespace,
  backupModes,
  hasEnded,
  isAbortRequested,
  isAtLeast,
  isWaitingForWindow,
  phaseOf,
  summarizeNodes,
  upgradeBundleApi,
  upgradeBundleKind,
  withdrawAbort,
  type NodePhase,
  type NodeProgress,
  type Phase,
  type UpgradeBundle,
} from './record/upgradeBundle.ts';
export { fitsSpec } from './record/upgradeBundleDefinition.ts';
