/** Objects and kinds as an API server stores and serves them. */
export { formatObjectName, readClusterVersionInfo } from './objects/compatibility.ts';
export { referenceOf, type ObjectReference } from './objects/discovery.ts';
export { checkKinds, listServed, readMatching } from './objects/compatibility.ts';
export {
  conditionsOf,
  controllerOf,
  isObjectName,
  isSelected,
  timeOfEvent,
  type StoredObject,
} from './objects/storedObject.ts';
