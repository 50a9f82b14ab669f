/** Removable media: finding, mounting and writing them. */
export { HungDevices, firstEntryOf } from './media/blockDevices.ts';
export { checkDevice, writeDevice } from './media/deviceWriter.ts';
export { DeviceEvents, Media, type MediaEvent, type MediaOptions } from './media/media.ts';
export {
  examineFiles,
  identityOf,
  isFileOn,
  listFiles,
  readHead,
  withoutBases,
  type Findings,
  type FoundBundle,
  type Rejected,
  type RejectedKind,
} from './media/medium.ts';
export { mountLock } from './media/privateMounts.ts';
export { isRegion, readReports, reportRegionOf, scanReports, type Region } from './media/reportRegion.ts';
export { reportFile, type WrittenReport } from './media/reportWriter.ts';
