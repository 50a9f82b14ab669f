import { readFile, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute } from 'node:path';
import { detectInstallation } from '../../lib/mirror-registry/detect/detect.ts';
import { HostFiles } from '../../lib/machine/hostFiles.ts';
import { HostCommands } from '../../lib/machine/hostCommands.ts';
import type { Installation } from '../../lib/mirror-registry/installation.ts';
import type { DetectedInstallation } from '../../lib/mirror-registry/detect/detect.ts';
import type { ExecutionRequest } from '../../lib/mirror-registry/change/restart.ts';
import { isHost, type RenewalOptions } from '../../lib/mirror-registry/certificates/renewal.ts';
import type { DetectOptions } from '../../lib/mirror-registry/detect/scopes.ts';
import {
  locateInstallation,
  type LocatedInstallation,
  type UninstallRequest,
} from '../../lib/mirror-registry/change/uninstall.ts';
import { PluginError } from '../../lib/errors.ts';
import { describeReadError } from '../../lib/files/fileContent.ts';
import { checkFile } from '../cli/checks.ts';
import type { Arguments, OptionRecord } from '../cli/command.ts';

const host = 'Host:';
const certificates = 'Certificates:';

/** Options that say where the mirror registry is. */
export const registryHostOptions = {
  root: {
    type: 'string',
    default: '/',
    describe: 'Folder that stands for the root of the host',
    suggest: 'folders',
    group: host,
  },
  scope: {
    type: 'string',
    default: 'auto',
    choices: ['auto', 'system', 'user'],
    describe: 'Whose systemd runs the registry: that of the system, or that of a user',
    group: host,
  },
  'user-home': { type: 'string', describe: 'Home of that user, instead of $HOME', suggest: 'folders', group: host },
  'quay-root': {
    type: 'string',
    describe: 'Folder that holds quay-config, where the units do not tell, as the host has it',
    suggest: 'folders',
    check: checkAbsolute,
    group: host,
  },
} as const satisfies OptionRecord;

/** Finds the mirror registry that the options point at. Throws as `detectInstallation`. */
export async function findInstallation(
  args: Arguments<typeof registryHostOptions>,
  environment: NodeJS.ProcessEnv,
): Promise<DetectedInstallation & { files: HostFiles }> {
  const files = new HostFiles(args.root);
  return { ...(await detectInstallation(files, detectOptionsOf(args, environment))), files };
}

/** Where the options say that an installation is to be looked for. */
function detectOptionsOf(
  { scope, userHome, quayRoot }: Arguments<typeof registryHostOptions>,
  environment: NodeJS.ProcessEnv,
): DetectOptions {
  return { scope, home: userHome ?? (environment['HOME'] || homedir()), quayRoot };
}

function checkAbsolute(path: string): void {
  if (isAbsolute(path)) return;
  throw new PluginError('usage', `“${path}” is no absolute path`, { hint: 'Give it as the host has it, from / on.' });
}

/** Options that say which certificates are renewed, and how. */
export const renewalOptions = {
  'renew-before': {
    type: 'number',
    default: 90,
    range: [0, 3650],
    describe: 'Renew what ends within this many days',
    group: certificates,
  },
  'cert-days': {
    type: 'number',
    default: 397,
    range: [1, 3650],
    describe: 'Days that a new certificate is good for',
    group: certificates,
  },
  'ca-days': {
    type: 'number',
    default: 1024,
    range: [1, 36500],
    describe: 'Days that a renewed authority is good for',
    group: certificates,
  },
  'ssl-cert': {
    type: 'string',
    suggest: 'files',
    describe: 'Certificate of your own, with its chain, that takes the place of the present one, whosever that is',
    check: checkFile,
    group: certificates,
  },
  'ssl-key': {
    type: 'string',
    suggest: 'files',
    describe: 'The key of --ssl-cert',
    check: checkFile,
    group: certificates,
  },
  'rotate-key': {
    type: 'boolean',
    describe: 'Renew the certificate of the installer on a new key; a key of RSA below 2048 bits gets a new one anyway',
    group: certificates,
  },
  'add-san': {
    type: 'string',
    repeatable: true,
    describe: 'One more name or address of the registry for its certificate',
    check: checkHost,
    group: certificates,
  },
} as const satisfies OptionRecord;

/** What the options say about renewing. Throws `usage` for what does not go together, and `not-readable`. */
export async function renewalOf(args: Arguments<typeof renewalOptions>, now: Date): Promise<RenewalOptions> {
  const { renewBefore, certDays, caDays, addSan, sslCert, sslKey, rotateKey } = args;
  if ((sslCert === undefined) !== (sslKey === undefined)) {
    throw new PluginError('usage', '--ssl-cert and --ssl-key go together');
  }
  if (rotateKey && sslCert !== undefined) {
    throw new PluginError('usage', '--rotate-key does not go with --ssl-cert', {
      hint: 'A certificate of your own comes with its key.',
    });
  }
  if (renewBefore >= certDays || certDays > caDays) {
    throw new PluginError('usage', '--renew-before must be less than --cert-days, and that not more than --ca-days', {
      hint: 'Otherwise every run would renew what it renewed before.',
    });
  }
  const own =
    sslCert === undefined || sslKey === undefined
      ? undefined
      : { certificate: await readText(sslCert), key: await readText(sslKey) };
  return { now, renewBefore, certDays, caDays, addHosts: addSan, force: false, rotateKey, own };
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw describeReadError(error, path);
  }
}

function checkHost(text: string): void {
  if (isHost(text)) return;
  throw new PluginError('usage', `“${text}” is neither a host name nor an address`);
}

/** The option that names podman. */
export const podmanOption = {
  podman: { type: 'string', default: 'podman', describe: 'The podman of the host', suggest: 'files', group: host },
} as const satisfies OptionRecord;

/** Options of what changes a host and starts its registry again. */
export const executionOptions = {
  'health-timeout': {
    type: 'number',
    default: 300,
    range: [1, 3600],
    describe: 'Seconds that the registry may take to come up before everything is put back',
    group: host,
  },
  restart: {
    type: 'boolean',
    default: true,
    describe: 'Start again what has changed, and wait until it is well; --no-restart leaves both to you',
    group: host,
  },
  force: {
    type: 'boolean',
    describe:
      'Continue although the registry is not healthy, its files were changed since, or a rollback lacks an old image',
    group: host,
  },
  'keep-backups': { type: 'number', default: 3, range: [1, 100], describe: 'How many backups are kept', group: host },
  ...podmanOption,
  systemctl: {
    type: 'string',
    describe: 'The systemctl of the host, needed with --root',
    suggest: 'files',
    group: host,
  },
} as const satisfies OptionRecord;

/** Makes out of the options how a registry is changed. Throws `usage`, and what `detectInstallation` throws. */
export async function requestOf(
  args: Arguments<typeof executionOptions & typeof registryHostOptions>,
  environment: NodeJS.ProcessEnv,
): Promise<ExecutionRequest> {
  const { root, podman, systemctl, healthTimeout, keepBackups, restart, force } = args;
  if (root !== '/' && systemctl === undefined && restart) {
    throw new PluginError('usage', '--systemctl is missing: with --root, that of this machine is not the one', {
      hint: 'Name the program that starts and stops the units of that host, or leave it to others with --no-restart.',
    });
  }
  const { files, ...detected } = await findInstallation(args, environment);
  const { installation } = detected;
  if (installation.scope === 'user') await requireOwner(files, installation);
  const commands = new HostCommands({ podman, systemctl: systemctl ?? 'systemctl', environment }, installation.scope);
  const detect = detectOptionsOf(args, environment);
  const times = { now: new Date(), healthTimeout, keepBackups };
  return { files, detected, commands, detect, ...times, noRestart: !restart, force };
}

/** Options of `uninstall`. */
export const uninstallOptions = { podman: executionOptions.podman, systemctl: executionOptions.systemctl } as const;

/** Makes out of the options what is uninstalled, even if the configuration is missing. Throws `usage`, and as `locateInstallation`. */
export async function uninstallRequestOf(
  args: Arguments<typeof uninstallOptions & typeof registryHostOptions>,
  environment: NodeJS.ProcessEnv,
): Promise<UninstallRequest & { readonly located: LocatedInstallation }> {
  const { root, podman, systemctl } = args;
  if (root !== '/' && systemctl === undefined) throw missingSystemctl();
  const files = new HostFiles(root);
  const detect = detectOptionsOf(args, environment);
  const located = await locateInstallation(files, detect);
  if (located.scope === 'user') await requireOwner(files, located);
  const commands = new HostCommands({ podman, systemctl: systemctl ?? 'systemctl', environment }, located.scope);
  return { files, detect, commands, located };
}

function missingSystemctl(): PluginError {
  return new PluginError('usage', '--systemctl is missing: with --root, that of this machine is not the one', {
    hint: 'Name the program that starts and stops the units of that host.',
  });
}

/** The systemd and the podman of a user, and new files, are those of the user who runs this. */
async function requireOwner(
  files: HostFiles,
  { quayRoot, unitFolder }: Pick<Installation, 'quayRoot' | 'unitFolder'>,
): Promise<void> {
  const paths = [quayRoot.value, unitFolder];
  const found = await Promise.all(
    paths.map(async (path) => stat(files.locate(await files.resolve(path))).catch(() => undefined)),
  );
  const uid = found.find((each) => each !== undefined && each.uid !== process.getuid?.())?.uid;
  if (uid === undefined) return;
  throw new PluginError('unsupported', `the registry in ${quayRoot.value} is run by another user, ${uid}`, {
    hint: `Run this as that user: 'sudo -u "#${uid}" …'.`,
  });
}
