/** The mirrors on the nodes: installing, checking and serving them. */
export { checkMirrors, checkQuota } from './mirror/mirrorCheck.ts';
export { removeMirror } from './mirror/mirrorInstallation.ts';
export { runMirrorServer } from './mirror/mirrorServer.ts';
export { describeSilentMirrors, silentAdvice } from './mirror/mirrorSite.ts';
export { mirrorPort, mirrorSecretFolder } from './mirror/mirrorUnit.ts';
export { retainBundle, type Retention } from './mirror/retainedBundles.ts';
