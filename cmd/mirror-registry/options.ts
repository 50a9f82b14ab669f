import { homedir } from 'node:os';
import { isAbsolute } from 'node:path';
import { readPem } from '#content/files';
import { PluginError } from '#errors';
import { HostFiles, HostCommands } from '#node/machine';
import { isHost, type RenewalOptions } from '#registry-host/certificates';
import { type ExecutionRequest, locateInstallation, type UninstallRequest } from '#registry-host/change';
import { detectInstallation, type DetectedInstallation, type DetectOptions } from '#registry-host/detect';
import { requireOwner } from '#registry-host/installation';
import type { Arguments, OptionRecord } from '../cli/command.ts';

const host = 'Host:';
const certificates = 'Certificates:';

/** Options of the location of the mirror registry. */
export const registryHostOptions = {
  root: {
    type: 'string',
    default: '/',
    describe: 'Root folder of the host',
    suggest: 'folders',
    group: host,
  },
  scope: {
    type: 'string',
    default: 'auto',
    choices: ['auto', 'system', 'user'],
    describe: 'Scope of the systemd that runs the registry',
    group: host,
  },
  'user-home': {
    type: 'string',
    describe: 'Home folder of that user (default: $HOME)',
    suggest: 'folders',
    group: host,
  },
  'quay-root': {
    type: 'string',
    describe: 'Folder with quay-config, as a path of the host, if the units do not name it',
    suggest: 'folders',
    check: checkAbsolute,
    group: host,
  },
} as const satisfies OptionRecord;

/** Detects the mirror registry that the options name. Throws the errors of `detectInstallation`. */
export async function findInstallation(
  args: Arguments<typeof registryHostOptions>,
  environment: NodeJS.ProcessEnv,
): Promise<DetectedInstallation & { files: HostFiles }> {
  const files = new HostFiles(args.root);
  return { ...(await detectInstallation(files, detectOptionsOf(args, environment))), files };
}

/** Returns the places to search for an installation. */
function detectOptionsOf(
  { scope, userHome, quayRoot }: Arguments<typeof registryHostOptions>,
  environment: NodeJS.ProcessEnv,
): DetectOptions {
  return { scope, home: userHome ?? (environment['HOME'] || homedir()), quayRoot };
}

function checkAbsolute(path: string): void {
  if (isAbsolute(path)) return;
  throw new PluginError('usage', `“${path}” is not an absolute path`, {
    hint: 'Give the path as the host has it, from / on.',
  });
}

/** Options of a renewal of certificates. */
export const renewalOptions = {
  'renew-before': {
    type: 'number',
    default: 90,
    range: [0, 3650],
    describe: 'Renew certificates that expire within this many days',
    group: certificates,
  },
  'cert-days': {
    type: 'number',
    default: 397,
    range: [1, 3650],
    describe: 'Validity of a new certificate in days',
    group: certificates,
  },
  'ca-days': {
    type: 'number',
    default: 1024,
    range: [1, 36500],
    describe: 'Validity of a renewed CA in days',
    group: certificates,
  },
  'ssl-cert': {
    type: 'string',
    suggest: 'files',
    describe: 'Your own certificate with its chain, to replace the present one',
    group: certificates,
  },
  'ssl-key': {
    type: 'string',
    suggest: 'files',
    describe: 'Key of --ssl-cert',
    group: certificates,
  },
  'rotate-key': {
    type: 'boolean',
    describe: 'Renew the certificate with a new key (always done for RSA keys below 2048 bits)',
    group: certificates,
  },
  'add-san': {
    type: 'string',
    repeatable: true,
    describe: 'Additional host name or IP address for the certificate',
    check: checkHost,
    group: certificates,
  },
} as const satisfies OptionRecord;

/** Returns the options of a renewal. Throws `usage` if they contradict each other, and `not-readable`. */
export async function renewalOf(args: Arguments<typeof renewalOptions>, now: Date): Promise<RenewalOptions> {
  const { renewBefore, certDays, caDays, addSan, sslCert, sslKey, rotateKey } = args;
  if ((sslCert === undefined) !== (sslKey === undefined)) {
    throw new PluginError('usage', '--ssl-cert and --ssl-key go together');
  }
  if (rotateKey && sslCert !== undefined) {
    throw new PluginError('usage', '--rotate-key does not go with --ssl-cert', {
      hint: 'Your own certificate comes with its key.',
    });
  }
  if (renewBefore >= certDays || certDays > caDays) {
    throw new PluginError('usage', '--renew-before must be less than --cert-days, which must not exceed --ca-days', {
      hint: 'Otherwise every run would renew the certificates again.',
    });
  }
  const own =
    sslCert === undefined || sslKey === undefined
      ? undefined
      : { certificate: await readPem(sslCert), key: await readPem(sslKey) };
  return { now, renewBefore, certDays, caDays, addHosts: addSan, force: false, rotateKey, own };
}

/** The arguments of `renewalOf` for a command without its options. */
export const defaultRenewal = {
  renewBefore: renewalOptions['renew-before'].default,
  certDays: renewalOptions['cert-days'].default,
  caDays: renewalOptions['ca-days'].default,
  addSan: [] as string[],
  sslCert: undefined,
  sslKey: undefined,
  rotateKey: false,
};

function checkHost(text: string): void {
  if (isHost(text)) return;
  throw new PluginError('usage', `“${text}” is not a host name or IP address`);
}

/** The option that names podman. */
export const podmanOption = {
  podman: { type: 'string', default: 'podman', describe: 'Name or path of podman', suggest: 'paths', group: host },
} as const satisfies OptionRecord;

/** Options of commands that change a host. */
export const executionOptions = {
  'health-timeout': {
    type: 'number',
    isTime: true,
    default: 300,
    range: [1, 3600],
    describe: 'Time to wait for a healthy registry before everything is restored',
    group: host,
  },
  restart: {
    type: 'boolean',
    default: true,
    describe: 'Restart changed units and wait for a healthy registry; --no-restart skips both',
    group: host,
  },
  force: {
    type: 'boolean',
    describe: 'Continue even if the registry is not healthy, its files were changed, or an old image is missing',
    group: host,
  },
  'keep-backups': { type: 'number', default: 3, range: [1, 100], describe: 'Number of backups to keep', group: host },
  ...podmanOption,
  systemctl: {
    type: 'string',
    describe: 'Name or path of systemctl (required with --root)',
    suggest: 'paths',
    group: host,
  },
} as const satisfies OptionRecord;

/** Returns the input of a change. Throws `usage`, and the errors of `detectInstallation`. */
export async function requestOf(
  args: Arguments<typeof executionOptions & typeof registryHostOptions>,
  environment: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<ExecutionRequest> {
  const { root, podman, systemctl, healthTimeout, keepBackups, restart, force } = args;
  if (root !== '/' && systemctl === undefined && restart) throw missingSystemctl(', or use --no-restart');
  const { files, ...detected } = await findInstallation(args, environment);
  const { installation } = detected;
  await requireOwner(files, installation);
  const programs = { podman, systemctl: systemctl ?? 'systemctl', environment, signal };
  const commands = new HostCommands(programs, installation.scope);
  const detect = detectOptionsOf(args, environment);
  const times = { now: new Date(), healthTimeout, keepBackups };
  return { files, detected, commands, detect, ...times, noRestart: !restart, force };
}

/** Options of `uninstall`. */
export const uninstallOptions = { podman: executionOptions.podman, systemctl: executionOptions.systemctl } as const;

/**
 * Returns the input of an uninstallation, even if the configuration is missing. Throws `usage`, and the errors of
 * `locateInstallation`.
 */
export async function uninstallRequestOf(
  args: Arguments<typeof uninstallOptions & typeof registryHostOptions>,
  environment: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<UninstallRequest> {
  const { root, podman, systemctl } = args;
  if (root !== '/' && systemctl === undefined) throw missingSystemctl('');
  const files = new HostFiles(root);
  const detect = detectOptionsOf(args, environment);
  const located = await locateInstallation(files, detect);
  await requireOwner(files, located);
  const programs = { podman, systemctl: systemctl ?? 'systemctl', environment, signal };
  const commands = new HostCommands(programs, located.scope);
  return { files, detect, commands };
}

function missingSystemctl(or: string): PluginError {
  const message = '--systemctl is missing: with --root, systemctl of this machine does not control the host';
  return new PluginError('usage', message, { hint: `Give the program that controls the units of that host${or}.` });
}
