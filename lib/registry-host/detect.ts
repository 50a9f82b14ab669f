/** What is installed on a host. */
export { detectInstallation, type DetectedInstallation } from './detect/detect.ts';
export { listChangedUnits, readState } from './detect/registryState.ts';
export type { DetectOptions } from './detect/scopes.ts';
