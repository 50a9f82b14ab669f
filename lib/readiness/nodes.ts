/** What nodes report, and what they can take. */
export { checkImageRetention, readConfigFile, retention } from './nodes/imageRetention.ts';
export {
  agentArchitectures,
  agentPlacement,
  isCovered,
  isPoolNode,
  mayHaveAgent,
  mayRunOn,
  nameWithoutAgent,
  readNode,
  type ClusterNode,
} from './nodes/node.ts';
export { checkNode, isArbiter, isControlPlane } from './nodes/nodeCheck.ts';
export { retentionShare, type NodeDisks } from './nodes/nodeDisks.ts';
export {
  isSameSet,
  listOwnSets,
  listUnpinnable,
  losesOnlyOwnPins,
  makePinnedImageSets,
  ownership,
  pinnedImageSetKind,
  poolRoles,
  readPinState,
  roleLabel,
  selectorOf,
  servesPins,
  type PinState,
} from './nodes/pinnedImageSets.ts';
