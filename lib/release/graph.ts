/** The update graph: channels, paths between versions, and its archive. */
export { resolveArchivedPath, type ReachableRelease } from './graph/archivedPath.ts';
export { namesWith, readArchivedChannels, readServedChannels, requirePatch, versionsOf } from './graph/channels.ts';
export { resolveVersion, type ClusterUpdates } from './graph/graph.ts';
export { buildGraphDataImage } from './graph/graphArchive.ts';
export type { UpdateRisk } from './graph/updateGraph.ts';
export {
  describeRisk,
  formatRisk,
  nameRisks,
  requireAccepted,
  resolveChannelRanges,
  resolveUpdatePath,
  type ChannelRange,
  type PathStep,
  type UpdatePath,
} from './graph/updatePath.ts';
