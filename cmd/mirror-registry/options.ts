import { homedir } from 'node:os';
import { detectInstallation } from '../../lib/host/detect.ts';
import { HostFiles } from '../../lib/host/hostFiles.ts';
import type { DetectedInstallation } from '../../lib/host/installation.ts';
import type { Arguments, OptionRecord } from '../command.ts';

const host = 'Host:';

/** Options that say where the mirror registry is. */
export const hostOptions = {
  root: { type: 'string', default: '/', describe: 'Folder that stands for the root of the host', group: host },
  scope: {
    type: 'string',
    default: 'auto',
    choices: ['auto', 'system', 'user'],
    describe: 'Whose systemd runs the registry: that of the system, or that of a user',
    group: host,
  },
  'user-home': { type: 'string', describe: 'Home of that user, instead of $HOME', group: host },
} as const satisfies OptionRecord;

/** Finds the mirror registry that the options point at. Throws as `detectInstallation`. */
export async function findInstallation(
  { root, scope, userHome }: Arguments<typeof hostOptions>,
  environment: NodeJS.ProcessEnv,
): Promise<DetectedInstallation & { files: HostFiles }> {
  const files = new HostFiles(root);
  const home = userHome ?? (environment['HOME'] || homedir());
  return { ...(await detectInstallation(files, { scope, home })), files };
}
