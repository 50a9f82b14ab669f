/** What a bundle has, in numbers and names. */
export { inspectBundle, type InspectedImage, type Inspection } from './inspect/inspect.ts';
export {
  inspectRelease,
  readBundleInventory,
  type BundleInventory,
  type InventoryImage,
  type ReleaseInspection,
  type SourcedImage,
} from './inspect/release.ts';
