import { createPrivateKey, X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { listFlaws } from '#certificates';
import { registryAuthorityConfigMap } from '#config/certificateAuthority';
import { formatManifest } from '#config/manifest';
import { messageOf, PluginError } from '#errors';
import type { HostFiles } from '#node/machine';
import { readState, type RecordedCertificate } from '../detect/registryState.ts';
import { certificatePathsOf, type CertificatePaths, type Installation } from '../installation/installation.ts';

/**
 * The origin of a registry’s certificates.
 * - `automatic`: the installer, and the key of its CA is present
 * - `stranded`: the installer, and that key is missing
 * - `own`: the administrator, never changed
 * - `missing`, or `external`: a proxy terminates TLS
 */
type CertificateKind = 'automatic' | 'stranded' | 'own' | 'missing' | 'external';

/** The content of a certificate. Times are ISO 8601. */
export interface CertificateFacts {
  readonly file: string;
  readonly subject: string;
  readonly issuer: string;
  readonly notBefore: string;
  readonly notAfter: string;
  /** Whole days until it expires; negative if it has expired. */
  readonly daysLeft: number;
  /** The names and addresses of its hosts. */
  readonly hosts: readonly string[];
  /** `rsa 2048`, `ec prime256v1`. */
  readonly key: string;
  readonly sha256: string;
  /** The properties that strict clients refuse. */
  readonly flaws: readonly string[];
}

/** The certificates of a registry, as plain data. */
export interface CertificateStatus {
  readonly kind: CertificateKind;
  readonly server?: CertificateFacts;
  readonly authority?: CertificateFacts;
  /** Whether the key file matches the certificate of the server. */
  readonly hasKey: boolean;
  /** A new CA that will replace the present one. */
  readonly next?: CertificateFacts;
  /** Problems that make the registry unreachable for clients now or soon; one sentence each. */
  readonly problems: readonly string[];
}

/** The certificates of a registry with their PEM. */
export interface HostCertificates {
  readonly status: CertificateStatus;
  readonly paths: CertificatePaths;
  /** The certificate of the server, without its chain. */
  readonly server: string | undefined;
  readonly authority: string | undefined;
  readonly authorityKey: string | undefined;
  readonly next: { readonly certificate: string; readonly key: string } | undefined;
}

const day = 24 * 60 * 60 * 1000;

/** The common name that installers of all versions give to a server. */
const installerName = /(?:^|\n)CN=quay-enterprise(?:\n|$)/;

/**
 * Reads the certificates of an installation and classifies them. Writes nothing. Throws `not-readable` and
 * `invalid-file`.
 */
export async function readCertificates(
  files: HostFiles,
  installation: Installation,
  now: Date,
): Promise<HostCertificates> {
  const paths = certificatePathsOf(installation);
  const [chain, serverKey, root, authorityKey, next, nextKey] = await Promise.all(
    [paths.server, paths.serverKey, paths.authority, paths.authorityKey, paths.next, paths.nextKey].map((path) =>
      files.readText(path),
    ),
  );
  const server = chain === undefined ? undefined : firstCertificate(paths.server, chain);
  const recorded = (await readState(files, installation))?.certs;
  // Files beside a provided certificate are irrelevant.
  const isOurs = server !== undefined && root !== undefined && isAutomatic(server, parseOrPass(root), recorded);
  const authority = isOurs ? firstCertificate(paths.authority, root) : undefined;
  // After the switch, the prepared CA is the present CA.
  const isPending =
    authority !== undefined && next !== undefined && parseOrPass(next)?.raw.equals(authority.raw) === false;
  const pending = isPending && nextKey !== undefined ? { certificate: next, key: nextKey } : undefined;
  const kind = classify(installation, server, authority, authorityKey);
  const status: CertificateStatus = {
    kind,
    ...(server && { server: await readCertificateFacts(paths.server, server, now) }),
    ...(authority && { authority: await readCertificateFacts(paths.authority, authority, now) }),
    ...(pending && {
      next: await readCertificateFacts(paths.next, firstCertificate(paths.next, pending.certificate), now),
    }),
    hasKey: server !== undefined && serverKey !== undefined && isKeyOf(server, serverKey),
    // The requirements of a proxy are unknown.
    problems: installation.externalTls ? [] : listProblems(installation, { server, serverKey, authority }, paths, now),
  };
  return {
    status,
    paths,
    authorityKey: kind === 'automatic' ? authorityKey : undefined,
    server: server?.toString(),
    authority: authority?.toString(),
    next: pending,
  };
}

/**
 * Returns whether a certificate is not valid yet: the clock is wrong now, or it was when the certificate was issued.
 */
export function isAhead({ server, authority }: CertificateStatus, now: Date): boolean {
  return [server, authority].some((each) => each !== undefined && isLater(new Date(each.notBefore), now));
}

/** Returns whether a time is later than the clock by more than a day, because clocks of hosts differ. */
export function isLater(time: Date, now: Date): boolean {
  return time.getTime() - now.getTime() > day;
}

/** Returns the CAs that clients need, in PEM: the present one, and the prepared one. Throws `unsupported`. */
export function trustedAuthorities({ authority, next, paths }: HostCertificates): string {
  if (authority !== undefined) return authority + (next?.certificate ?? '');
  throw new PluginError('unsupported', `${paths.server} was not issued by the CA of this registry`, {
    hint: 'Give clients the CA that issued your certificate.',
  });
}

/** Returns whether a certificate is for a host, a name or an address. */
export function isValidForHost(certificate: X509Certificate, host: string): boolean {
  return (isIP(host) ? certificate.checkIP(host) : certificate.checkHost(host)) !== undefined;
}

/** Returns the names and addresses of a certificate, without their kinds. */
export function hostsOf({ subjectAltName = '' }: X509Certificate): string[] {
  const names = [...subjectAltName.matchAll(/(?:DNS|IP Address):([^,\s"]+)/g)].map(([, name = '']) => name);
  // OpenSSL prints IPv6 addresses in full.
  return [
    ...new Set(names.map((name) => (isIP(name) === 6 ? new URL(`http://[${name}]`).hostname.slice(1, -1) : name))),
  ];
}

function classify(
  { servesTls }: Installation,
  server: X509Certificate | undefined,
  authority: X509Certificate | undefined,
  authorityKey: string | undefined,
): CertificateKind {
  if (!servesTls) return 'external';
  if (!server) return 'missing';
  if (!authority) return 'own';
  return authorityKey !== undefined && isKeyOf(authority, authorityKey) ? 'automatic' : 'stranded';
}

/**
 * Returns whether the installer created a certificate: the CA beside it signed it, and it was recorded as such or has
 * the name that installers use. A certificate of an administrator is never classified as one.
 */
function isAutomatic(
  server: X509Certificate,
  root: X509Certificate | undefined,
  recorded: RecordedCertificate | undefined,
): boolean {
  if (!root?.verify(root.publicKey) || !server.checkIssued(root) || !server.verify(root.publicKey)) return false;
  return recorded?.leafSha256 === sha256Of(server) ? recorded.origin === 'auto' : installerName.test(server.subject);
}

function sha256Of({ fingerprint256 }: X509Certificate): string {
  return fingerprint256.replaceAll(':', '').toLowerCase();
}

function listProblems(
  { host }: Installation,
  {
    server,
    serverKey,
    authority,
  }: {
    server: X509Certificate | undefined;
    serverKey: string | undefined;
    authority: X509Certificate | undefined;
  },
  paths: CertificatePaths,
  now: Date,
): string[] {
  if (!server) return [`the certificate ${paths.server} is missing`];
  const invalid = (what: string, { validFromDate, validToDate }: X509Certificate): string | undefined => {
    if (validToDate < now) return `${what} expired on ${dateOf(validToDate)}`;
    if (!isLater(validFromDate, now)) return undefined;
    return `${what} is valid only from ${dateOf(validFromDate)}, and the clock of this host says ${dateOf(now)}`;
  };
  return [
    serverKey !== undefined && isKeyOf(server, serverKey) ? undefined : keyProblem(paths, serverKey !== undefined),
    invalid('the certificate', server),
    authority && invalid('its CA', authority),
    isValidForHost(server, host.value) ? undefined : `the certificate does not name the host ${host.value}`,
  ].filter((problem) => problem !== undefined);
}

/** Hint for a key that does not match its certificate. */
export const keyHint = 'Restore the key from a backup, or create a new one.';

/** Describes a key of the server that is missing or does not match. */
export function keyProblem({ server, serverKey }: CertificatePaths, isThere: boolean): string {
  return isThere ? `${serverKey} is not the key of ${server}` : `the key ${serverKey} is missing`;
}

/** Returns whether a private key, in PEM, is that of a certificate. */
export function isKeyOf(certificate: X509Certificate, pem: string): boolean {
  try {
    return certificate.checkPrivateKey(createPrivateKey(pem));
  } catch {
    return false;
  }
}

function firstCertificate(path: string, text: string): X509Certificate {
  try {
    return new X509Certificate(text);
  } catch (cause) {
    throw new PluginError('invalid-file', `${path} is not a certificate: ${messageOf(cause)}`, {
      hint: 'Restore it from a backup. Clients cannot reach the registry without it.',
      cause,
    });
  }
}

function parseOrPass(text: string): X509Certificate | undefined {
  try {
    return new X509Certificate(text);
  } catch {
    return undefined;
  }
}

async function readCertificateFacts(file: string, certificate: X509Certificate, now: Date): Promise<CertificateFacts> {
  const { asymmetricKeyType = '', asymmetricKeyDetails: details } = certificate.publicKey;
  return {
    file,
    subject: certificate.subject.replaceAll('\n', ', '),
    issuer: certificate.issuer.replaceAll('\n', ', '),
    notBefore: certificate.validFromDate.toISOString(),
    notAfter: certificate.validToDate.toISOString(),
    daysLeft: Math.floor((certificate.validToDate.getTime() - now.getTime()) / day),
    hosts: hostsOf(certificate),
    key: `${asymmetricKeyType} ${String(details?.modulusLength ?? details?.namedCurve ?? '')}`.trim(),
    sha256: sha256Of(certificate),
    flaws: await listFlaws(certificate.toString()),
  };
}

/** Returns the day of a time in UTC: `2027-03-01`. */
export function dateOf(time: Date): string {
  return time.toISOString().slice(0, 10);
}

/** The CAs of a registry in the forms that clients and clusters need. */
interface TrustOutputs {
  /** The CAs, in PEM. */
  readonly certificates: string;
  /** Lines for install-config.yaml. */
  readonly installConfig: string;
  /**
   * A ConfigMap in openshift-config, for `additionalTrustedCA` of `image.config.openshift.io/cluster`; undefined for an
   * IPv6 address.
   */
  readonly configMap: string | undefined;
  /** The path at which podman, skopeo and CRI-O expect the CAs. */
  readonly certsFolder: string;
}

/**
 * Formats the CAs of a registry for clusters and hosts, without any text between the certificates, which may be from
 * Quay’s user. Throws `invalid-file` for a text without a certificate.
 */
export function formatTrust(text: string, { host, port }: Installation): TrustOutputs {
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  const certificates = blocks.map((block) => new X509Certificate(block).toString()).join('');
  const isIpv6 = isIP(host.value) === 6;
  const registry = `${isIpv6 ? `[${host.value}]` : host.value}:${port.value}`;
  const indented = certificates.trimEnd().replace(/^/gm, '  ');
  return {
    certificates,
    installConfig: `additionalTrustBundle: |\n${indented}\nadditionalTrustBundlePolicy: Always\n`,
    // Keys of a ConfigMap cannot have colons.
    configMap: isIpv6
      ? undefined
      : formatManifest(registryAuthorityConfigMap({ certificates, registries: [registry] }).object),
    certsFolder: `/etc/containers/certs.d/${registry}/ca.crt`,
  };
}
