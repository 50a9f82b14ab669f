/** Installing and removing agents and the controller. */
export { executablePort, tokenPath } from './install/agentScript.ts';
export { describeClocks, describeSilence } from './install/agentSurvey.ts';
export { addAgentTrust, checkAgents } from './install/agentTrustCheck.ts';
export { compareAgents, readAgentVersion } from './install/executable.ts';
export { readExecutables } from './install/executable.ts';
export { install, planManifests, type InstallResult } from './install/install.ts';
export { uninstallAgents } from './install/uninstall.ts';
