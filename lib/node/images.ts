/** The image store of a node: loading, checking and repairing it. */
export { stayAboveFloor } from './images/diskFloor.ts';
export { HostStorage } from './images/hostStorage.ts';
export { StoreIndex, type StoreImage } from './images/imageStore.ts';
export { LayerCheck, type DamagedImage } from './images/layerCheck.ts';
export {
  completeToLoad,
  isUnsynced,
  listMissingBaseBlobs,
  loadBundle,
  type LoadOptions,
  type LoadResult,
} from './images/load.ts';
export { storeImagesOf } from './images/loadPlan.ts';
export { removeDamagedImages } from './images/storeRepair.ts';
