/** Objects and kinds as an API server stores and serves them. */
export {
  checkKinds,
  formatObjectName,
  listServed,
  readClusterVersionInfo,
  readMatching,
} from './objects/compatibility.ts';
export { referenceOf, type ObjectReference } from './objects/discovery.ts';
export {
  conditionsOf,
  controllerOf,
  isObjectName,
  isSelected,
  timeOfEvent,
  type StoredObject,
} from './objects/storedObject.ts';
