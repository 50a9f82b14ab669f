import { createPrivateKey, X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import {
  createAuthority,
  createKeyLike,
  issueServerCertificate,
  reissueAuthority,
  type Authority,
} from '#certificates';
import { PluginError, messageOf } from '#errors';
import type { HostFiles } from '#node/machine';
import type { RecordedCertificate } from '../detect/registryState.ts';
import type { FileChange } from '../installation/fileChange.ts';
import type { Installation } from '../installation/installation.ts';
import {
  hostsOf,
  isAhead,
  isLater,
  isValidForHost,
  keyHint,
  keyProblem,
  type HostCertificates,
  dateOf,
  isKeyOf,
} from './certificates.ts';

/** Options of a renewal; times are in days. */
export interface RenewalOptions {
  readonly now: Date;
  /** Renew certificates that expire within this time. */
  readonly renewBefore: number;
  readonly certDays: number;
  readonly caDays: number;
  /** Names and addresses to add to the certificate. */
  readonly addHosts: readonly string[];
  /** Renew even if no certificate needs it. */
  readonly force: boolean;
  /** Create a new key for the server. */
  readonly rotateKey?: boolean;
  /**
   * `prepare` creates a new CA beside the present one. `switch` replaces the present CA with it. Clients without the
   * new CA then no longer trust the registry.
   */
  readonly newAuthority?: 'prepare' | 'switch';
  /** The certificate of the administrator, which replaces the present one. */
  readonly own?: OwnCertificate;
  /** Whether Quay is upgraded and restarted. A certificate older than 30 days is then renewed too. */
  readonly withQuay?: boolean;
}

/** Reasons for the renewal of each certificate; empty if it stays. */
export interface RenewalNeed {
  readonly server: readonly string[];
  readonly authority: readonly string[];
  /** Reasons for a new key of the server. */
  readonly key: readonly string[];
}

/** New certificates, not yet written. */
export interface Renewal extends RenewalNeed {
  readonly changes: readonly FileChange[];
  /** The CAs that clients need after the renewal, in PEM. While a new CA is prepared, both CAs. */
  readonly trusted: string;
}

const day = 24 * 60 * 60 * 1000;

/** Returns whether a text is a host name (also with a wildcard or underscores), or an address without brackets. */
export function isHost(text: string): boolean {
  return isIP(text) > 0 || (text.length <= 253 && /^(?:\*\.)?[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?$/i.test(text));
}

/**
 * Decides which certificates are renewed, and why. Certificates of the administrator are never renewed. The CA is
 * renewed too if it would expire before a certificate that it signs.
 */
export function findRenewals(
  { status, server: pem }: HostCertificates,
  { host }: Installation,
  { now, renewBefore, certDays, addHosts, force, rotateKey, newAuthority, own, withQuay }: RenewalOptions,
): RenewalNeed {
  if (own && status.kind !== 'external') return { server: findReplacementReasons(own, pem), authority: [], key: [] };
  const { kind, server, authority } = status;
  if (
    (kind !== 'automatic' && !(kind === 'stranded' && newAuthority === 'switch')) ||
    pem === undefined ||
    !server ||
    !authority
  ) {
    return { server: [], authority: [], key: [] };
  }
  const certificate = new X509Certificate(pem);
  const missing = [host.value, ...addHosts].filter((name) => !isValidForHost(certificate, name));
  const { asymmetricKeyType, asymmetricKeyDetails: { modulusLength: bits = 0 } = {} } = certificate.publicKey;
  const key = [
    ...(rotateKey ? ['requested'] : []),
    ...(asymmetricKeyType === 'rsa' && bits < 2048 ? [`RSA of ${bits} bits is too short`] : []),
  ];
  const reasons = [
    ...(key.length > 0 ? ['it gets a new key'] : []),
    ...(server.daysLeft < renewBefore ? [describeEnd(server)] : []),
    ...missing.map((name) => `it does not name ${name}`),
    ...server.flaws,
    // Its validity may begin before it was issued.
    ...(withQuay && Date.parse(server.notAfter) - now.getTime() < (certDays - 30) * day
      ? ['Quay is upgraded, and the certificate is older than 30 days']
      : []),
    ...(force ? ['requested'] : []),
    ...(newAuthority === 'switch' ? ['a new CA signs it'] : []),
  ];
  if (newAuthority === 'switch') return { server: reasons, authority: ['the new CA replaces it'], key };
  const aged = authority.daysLeft < (reasons.length > 0 ? certDays : renewBefore);
  const isEarly = isLater(new Date(authority.notBefore), now);
  const early = isEarly ? [`it is valid only from ${authority.notBefore.slice(0, 10)}`] : [];
  const roots = [...(aged ? [describeEnd(authority)] : []), ...early, ...authority.flaws];
  // Quay also serves the certificate of its CA.
  if (roots.length > 0 && reasons.length === 0) reasons.push('its CA is renewed');
  return { server: reasons, authority: roots, key };
}

/**
 * Creates the certificates that need renewal. The server keeps its names and, unless it gets a new key, its key. The CA
 * keeps its key and subject, so that clients still trust it. Checks each certificate before it is returned. Throws
 * `unsupported` for certificates of the administrator and for a missing CA key, `invalid-file` if the server’s key does
 * not match, and `internal` if a check fails.
 */
export async function renewCertificates(
  files: HostFiles,
  certificates: HostCertificates,
  installation: Installation,
  options: RenewalOptions,
): Promise<Renewal> {
  const need = findRenewals(certificates, installation, options);
  const { paths, server, authority, authorityKey, next } = certificates;
  if (options.own && certificates.status.kind !== 'external') {
    return {
      ...need,
      ...(await replaceCertificate(options.own, { files, certificates, installation, now: options.now })),
    };
  }
  requireAutomatic(certificates, options);
  if (server === undefined || authority === undefined) throw new PluginError('internal', 'no certificate to renew');
  if (!options.force && isAhead(certificates.status, options.now)) {
    throw new PluginError('not-ready', certificates.status.problems.join(', '), {
      hint:
        'Nothing was changed. Set the clock of this host. If it is right, it was wrong at the last renewal: ' +
        'force a new one.',
      settings: ['force'],
    });
  }
  const { now, certDays, caDays } = options;
  const before = (path: string): Promise<Buffer | undefined> => files.read(path);
  const change = async (path: string, text: string, mode?: number): Promise<FileChange> => {
    return { path, before: await before(path), after: Buffer.from(text), mode };
  };

  if (options.newAuthority === 'prepare') {
    const made = next ?? (await createAuthority(installation.host.value, { now, days: caDays }));
    const changes = next
      ? []
      : [await change(paths.nextKey, made.key, 0o600), await change(paths.next, made.certificate)];
    return { server: [], authority: [], key: [], changes, trusted: authority + made.certificate };
  }
  if (need.server.length === 0) return { ...need, changes: [], trusted: authority };

  let signer: Authority;
  if (options.newAuthority === 'switch') {
    if (!next) {
      throw new PluginError('not-found', `there is no new CA to switch to: ${paths.next} is missing`, {
        hint: 'Prepare it, and give both CAs to all clients before the switch.',
        settings: ['newCa'],
      });
    }
    signer = next;
  } else {
    const key = authorityKey ?? '';
    const root =
      need.authority.length > 0
        ? await reissueAuthority({ certificate: authority, key, now, days: caDays })
        : authority;
    signer = { certificate: root, key };
  }
  const hosts = [installation.host.value, ...hostsOf(new X509Certificate(server)), ...options.addHosts];
  const names = [...new Set(hosts)].filter(isHost);
  if (!isHost(installation.host.value)) {
    const { value, file, line } = installation.host;
    throw new PluginError('unsupported', `cannot issue a certificate for “${value}” (${file}:${line})`, {
      hint: 'Nothing was changed. Set SERVER_HOSTNAME to the host name or IP address of the registry.',
    });
  }
  const newKey = need.key.length > 0 ? await createKeyLike(server) : undefined;
  const key = newKey ?? (await requireKey(files, certificates));
  const request = { like: server, key: newKey, hosts: names, authority: signer, now, days: certDays };
  const issued = await issueServerCertificate(request);
  const roots = options.newAuthority === 'switch' ? [signer.certificate] : [authority, signer.certificate];
  check(issued, roots, key, names);

  const changes = [await change(paths.server, issued + signer.certificate)];
  // The user of the container reads the key too. The mode of the folder excludes other users.
  if (newKey !== undefined) changes.push(await change(paths.serverKey, newKey, 0o644));
  if (need.authority.length > 0) changes.push(await change(paths.authority, signer.certificate));
  if (options.newAuthority === 'switch') changes.push(await change(paths.authorityKey, signer.key, 0o600));
  return { ...need, changes, trusted: signer.certificate };
}

/** Returns the origin of the server’s certificate after a renewal; undefined if it does not change. */
export function originAfter(
  { own, newAuthority }: RenewalOptions,
  { status: { kind } }: HostCertificates,
): RecordedCertificate['origin'] | undefined {
  if (own) return 'own';
  return kind === 'automatic' || newAuthority === 'switch' ? 'auto' : undefined;
}

function requireAutomatic({ status: { kind }, paths }: HostCertificates, { newAuthority }: RenewalOptions): void {
  if (kind === 'automatic' || (kind === 'stranded' && newAuthority !== undefined)) return;
  const refusals = {
    own: [
      `${paths.server} was not made by mirror-registry, and is never changed`,
      'Renew it with its issuer, and install it with certs renew.',
    ],
    stranded: [
      `cannot sign a certificate: the key of the CA, ${paths.authorityKey}, is missing`,
      'Restore the key, or prepare a new CA and give it to all clients.',
    ],
    missing: [`there is no certificate to renew: ${paths.server} is missing`, 'Restore it from a backup.'],
    external: [
      'a proxy terminates TLS (EXTERNAL_TLS_TERMINATION): the registry has no certificate of its own',
      'Renew the certificate of the proxy in front of it.',
    ],
  } as const;
  const [message, hint] = refusals[kind];
  throw new PluginError('unsupported', message, { hint });
}

/** Returns the key of the server, in PEM, for its next certificate. */
async function requireKey(files: HostFiles, { paths, status }: HostCertificates): Promise<string> {
  const key = await files.readText(paths.serverKey);
  if (key !== undefined && status.hasKey) return key;
  throw new PluginError('invalid-file', keyProblem(paths, key !== undefined), {
    hint: keyHint,
    settings: ['rotateKey'],
  });
}

function describeEnd({ daysLeft, notAfter }: { readonly daysLeft: number; readonly notAfter: string }): string {
  const date = notAfter.slice(0, 10);
  return daysLeft < 0 ? `it expired on ${date}` : `it expires on ${date}, in ${daysLeft} days`;
}

function check(pem: string, roots: readonly string[], key: string, hosts: readonly string[]): void {
  const certificate = new X509Certificate(pem);
  for (const root of roots.map((text) => new X509Certificate(text))) {
    if (!certificate.checkIssued(root) || !certificate.verify(root.publicKey)) {
      throw new PluginError('internal', 'the new certificate is not verified by its CA');
    }
  }
  const missing = hosts.find((host) => !host.startsWith('*') && !isValidForHost(certificate, host));
  if (missing !== undefined) throw new PluginError('internal', `the new certificate does not name ${missing}`);
  if (certificate.checkPrivateKey(createPrivateKey(key))) return;
  throw new PluginError('internal', 'the new certificate does not match the key of the server');
}

/** A certificate that the administrator provides, with its chain and key, in PEM. */
interface OwnCertificate {
  readonly certificate: string;
  readonly key: string;
}

/**
 * Returns why the provided certificate must be written; empty if it is already the present one, in PEM. Throws
 * `invalid-file`.
 */
function findReplacementReasons(own: OwnCertificate, present: string | undefined): string[] {
  return isPresent(readOwn(own), present) ? [] : ['your own certificate replaces it'];
}

/**
 * Replaces the certificate and key of the server with the provided ones. A CA of the installer stays. Throws
 * `invalid-file` for a certificate that cannot serve clients.
 */
async function replaceCertificate(
  own: OwnCertificate,
  {
    files,
    certificates: { paths, server },
    installation: { host },
    now,
  }: {
    readonly files: HostFiles;
    readonly certificates: HostCertificates;
    readonly installation: Installation;
    readonly now: Date;
  },
): Promise<{ readonly changes: readonly FileChange[]; readonly trusted: string }> {
  const certificate = readOwn(own);
  const problem =
    (!isKeyOf(certificate, own.key) && 'the key does not match it') ||
    (!isValidForHost(certificate, host.value) && `it does not name the host ${host.value}`) ||
    (certificate.validToDate < now && `it expired on ${dateOf(certificate.validToDate)}`) ||
    (certificate.validFromDate > now && `it is not valid before ${dateOf(certificate.validFromDate)}`);
  if (problem) throw new PluginError('invalid-file', `cannot use your certificate: ${problem}`);
  if (isPresent(certificate, server)) return { changes: [], trusted: own.certificate };
  const texts: [path: string, text: string][] = [
    [paths.server, own.certificate],
    [paths.serverKey, own.key],
  ];
  const changes = await Promise.all(
    texts.map(async ([path, text]): Promise<FileChange> => {
      // The user of the container reads the key too. The mode of the folder excludes other users.
      return { path, before: await files.read(path), after: Buffer.from(text), mode: 0o644 };
    }),
  );
  return { changes, trusted: own.certificate };
}

function isPresent(certificate: X509Certificate, present: string | undefined): boolean {
  return present !== undefined && certificate.raw.equals(new X509Certificate(present).raw);
}

function readOwn({ certificate }: OwnCertificate): X509Certificate {
  try {
    return new X509Certificate(certificate);
  } catch (cause) {
    throw new PluginError('invalid-file', `cannot read your certificate: ${messageOf(cause)}`, { cause });
  }
}
