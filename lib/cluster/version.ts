/** The ClusterVersion, and what stops an update. */
export {
  clusterVersionReference,
  listNeededReleases,
  readClusterVersion,
  type ClusterVersionPatch,
  type DesiredUpdate,
} from './version/clusterVersion.ts';
export { blocks, platformStops } from './version/platformStops.ts';
