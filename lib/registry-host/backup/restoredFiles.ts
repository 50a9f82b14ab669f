import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import { PluginError } from '../../errors.ts';
import type { HostFiles } from '../../node/machine/hostFiles.ts';
import { ChangedFiles } from '../changedFiles.ts';
import { certificatePathsOf } from '../certificatePaths.ts';
import { readCertificates } from '../certificates/certificates.ts';
import { renewCertificates, type Renewal, type RenewalOptions } from '../certificates/renewal.ts';
import type { FileChange } from '../fileChange.ts';
import { editQuayConfiguration, readQuayConfiguration, splitHostname } from '../detect/configuration.ts';
import { detectInstallation, type DetectedInstallation } from '../detect/detect.ts';
import { describeState } from '../detect/registryState.ts';
import type { DetectOptions } from '../detect/scopes.ts';
import type { Installation } from '../installation.ts';

/** Input of the files that a restore writes. */
export interface RestoredFilesRequest {
  readonly files: HostFiles;
  readonly detect: DetectOptions;
  /** The registry that the backup is restored into. */
  readonly detected: DetectedInstallation;
  /** The small files of the backup, by their paths in it. */
  readonly small: ReadonlyMap<string, Buffer>;
  /** The new name of the registry; that of the backup if undefined. */
  readonly hostname: string | undefined;
  readonly renewal: RenewalOptions;
}

/** The files that a restore writes, and the registry that they describe. */
export interface RestoredFiles {
  readonly installation: Installation;
  /** Without files that stay as they are. */
  readonly changes: readonly FileChange[];
  /** The renewal of the certificates in the backup; undefined if they are restored as they are. */
  readonly renewal: Renewal | undefined;
}

/** The passwords of Redis in Quay’s configuration. Units and podman’s secret have the same. */
const redisPasswords = [
  ['BUILDLOGS_REDIS', 'password'],
  ['USER_EVENTS_REDIS', 'password'],
] as const;

/** The account of Quay in PostgreSQL. The unit of PostgreSQL or podman’s secret has the same password. */
const postgresAccount = ['DB_URI'] as const;

/**
 * Adapts the configuration and certificates of a backup to a registry, which keeps its port and its accounts of Redis and PostgreSQL.
 * Renews the certificates on their own CA if clients could not use them. Writes nothing. Throws `invalid-file`,
 * `conflict` for another port, `unsupported` for certificates that cannot be renewed, and as `renewCertificates`.
 */
export async function planFiles(request: RestoredFilesRequest): Promise<RestoredFiles> {
  const { files, detect, detected, small, renewal: options } = request;
  const { quayRoot } = detected.installation;
  const contentByPath = new Map<string, Buffer | undefined>([
    // A certificate that the backup does not have is not part of that registry.
    ...Object.values(certificatePathsOf(detected.installation)).map((path) => [path, undefined] as const),
    ...[...small]
      .filter(([name]) => !name.startsWith('units/'))
      .map(([name, content]) => [join(quayRoot.value, name), content] as const),
  ]);
  const { path } = detected.configuration;
  contentByPath.set(path, Buffer.from(adaptConfiguration(request, path)));
  const changed = new ChangedFiles(files.root, contentByPath);
  const restored = await detectInstallation(changed, detect);
  requireSameKind(restored.installation, detected, path);
  const certificates = await readCertificates(changed, restored.installation, options.now);
  const { problems, kind } = certificates.status;
  if (kind !== 'automatic' && problems.length > 0 && !options.own) {
    throw new PluginError('unsupported', `the certificate in the backup cannot be used: ${problems.join(', ')}`, {
      hint: 'It cannot be renewed. Give another one with its key.',
      settings: ['sslCert', 'sslKey'],
    });
  }
  const isRenewed = problems.length > 0 || options.own !== undefined;
  const renewal = isRenewed
    ? await renewCertificates(changed, certificates, restored.installation, options)
    : undefined;
  for (const { path: renewed, after } of renewal?.changes ?? []) contentByPath.set(renewed, after);

  const changes: FileChange[] = [];
  for (const [place, after] of contentByPath) {
    const before = await files.read(place);
    if (before && after ? !before.equals(after) : before !== after) {
      changes.push({ path: place, before, after, mode: modeOf(place) });
    }
  }
  const state = await describeState(files, {
    ...{ detected, version: detected.installation.version, images: new Map(), changes },
    origin: options.own || kind === 'own' ? 'own' : kind === 'automatic' ? 'auto' : undefined,
  });
  return { installation: restored.installation, changes: [...changes, state], renewal };
}

/** Returns the configuration of a backup with the host name and the accounts that it has after the restore. */
function adaptConfiguration({ detected, small, hostname }: RestoredFilesRequest, path: string): string {
  const text = small.get('quay-config/config.yaml')?.toString() ?? '';
  const configuration = readQuayConfiguration(path, text);
  const old = configuration.get('SERVER_HOSTNAME')?.value;
  if (old === undefined) {
    throw new PluginError('invalid-file', 'the configuration in the backup has no SERVER_HOSTNAME');
  }
  const { port, externalTls } = detected.installation;
  const stated = splitHostname(old).port ?? 8443;
  if (hostname === undefined && stated !== port.value && !externalTls) {
    const message = `the backup is of ${old}, but the registry of this host publishes port ${port.value} (${port.file}:${port.line})`;
    const hint = 'Give the host name, to keep that port and renew the certificate.';
    throw new PluginError('conflict', message, { hint, settings: ['hostname'] });
  }
  const name = hostname !== undefined && isIPv6(hostname) ? `[${hostname}]` : hostname;
  const isPostgres = detected.installation.database === 'postgres';
  const passwords = [...redisPasswords, ...(isPostgres ? [postgresAccount] : [])].flatMap((keys) => {
    const present = detected.configuration.get(...keys)?.value;
    return present === undefined ? [] : [[keys, present] as const];
  });
  return editQuayConfiguration(path, text, [
    ...(name === undefined ? [] : [[['SERVER_HOSTNAME'], `${name}:${port.value}`] as const]),
    ...passwords,
  ]);
}

function requireSameKind({ database }: Installation, detected: DetectedInstallation, path: string): void {
  if (database === detected.installation.database) return;
  const message = `the configuration in the backup (${path}) names a database of ${database === 'postgres' ? 'PostgreSQL' : 'SQLite'}`;
  const hint = 'The database in the backup is of another kind. Make a new backup.';
  throw new PluginError('invalid-file', message, { hint });
}

/**
 * Permissions of a new file. The user of Quay’s container is in the group 0, and reads all but the key of the CA. Other
 * users read certificates only.
 */
function modeOf(path: string): number {
  if (path.endsWith('rootCA.key')) return 0o600;
  return /\.(?:cert|crt|pem)$/.test(path) ? 0o644 : 0o640;
}
