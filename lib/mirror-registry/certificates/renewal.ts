import { createPrivateKey, X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { PluginError } from '../../errors.ts';
import { hostsOf, isFor, keyHint, keyProblem, type HostCertificates } from './certificates.ts';
import type { FileChange } from '../fileChange.ts';
import type { HostFiles } from '../../machine/hostFiles.ts';
import type { Installation } from '../installation.ts';
import { describeTakeOver, takeOver, type OwnCertificate } from './ownCertificate.ts';
import { createAuthority, createKeyLike, issueServerCertificate, reissueAuthority, type Authority } from './issuing.ts';
import type { RecordedCertificate } from '../detect/registryState.ts';

/** How certificates are renewed; spans are in days. */
export interface RenewalOptions {
  readonly now: Date;
  /** A certificate that ends within that time is renewed. */
  readonly renewBefore: number;
  readonly certDays: number;
  readonly caDays: number;
  /** Names and addresses to be added. */
  readonly addHosts: readonly string[];
  /** Renew although nothing asks for it. */
  readonly force: boolean;
  /** Make a new key for the server, although the present one would do. */
  readonly rotateKey?: boolean;
  /** `prepare` makes a new authority beside the present one; `switch` lets it take its place, which ends the trust of clients. */
  readonly newAuthority?: 'prepare' | 'switch' | undefined;
  /** To take the place of whatever is there. */
  readonly own?: OwnCertificate | undefined;
  /** Quay is upgraded, and restarted for that: what is not quite new any more is renewed on the way. */
  readonly withQuay?: boolean;
}

/** Why which certificate is to be renewed; empty lists for those that stay. */
export interface RenewalNeed {
  readonly server: readonly string[];
  readonly authority: readonly string[];
  /** Why the server gets a new key too. */
  readonly key: readonly string[];
}

/** New certificates, not yet written. */
export interface Renewal extends RenewalNeed {
  readonly changes: readonly FileChange[];
  /** The authorities that clients have to trust from now on, in PEM; of a new one and the present one, both. */
  readonly trusted: string;
}

const day = 24 * 60 * 60 * 1000;

/** Tells whether a text is the name of a host, a wildcard or one with underscores too, or an address without brackets. */
export function isHost(text: string): boolean {
  return isIP(text) > 0 || (text.length <= 253 && /^(?:\*\.)?[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?$/i.test(text));
}

/**
 * Decides which certificates are to be renewed, and why. Somebody’s own never are. The authority is renewed first where it would end
 * before a certificate that it signs.
 */
export function findRenewals(
  { status, server: pem }: HostCertificates,
  { host }: Installation,
  { now, renewBefore, certDays, addHosts, force, rotateKey, newAuthority, own, withQuay }: RenewalOptions,
): RenewalNeed {
  if (own && status.kind !== 'external') return { server: describeTakeOver(own, pem), authority: [], key: [] };
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
  const missing = [host.value, ...addHosts].filter((name) => !isFor(certificate, name));
  const { asymmetricKeyType, asymmetricKeyDetails: { modulusLength: bits = 0 } = {} } = certificate.publicKey;
  const key = [
    ...(rotateKey ? ['asked for'] : []),
    ...(asymmetricKeyType === 'rsa' && bits < 2048 ? [`RSA of ${bits} bits is too short`] : []),
  ];
  const reasons = [
    ...(key.length > 0 ? ['it gets a new key'] : []),
    ...(server.daysLeft < renewBefore ? [describeEnd(server)] : []),
    ...missing.map((name) => `it does not name ${name}`),
    ...server.flaws,
    ...(withQuay && now.getTime() - certificate.validFromDate.getTime() > 30 * day
      ? ['Quay is upgraded, and it is older than 30 days']
      : []),
    ...(force ? ['asked for'] : []),
    ...(newAuthority === 'switch' ? ['a new authority signs it'] : []),
  ];
  if (newAuthority === 'switch') return { server: reasons, authority: ['the new authority takes its place'], key };
  const aged = authority.daysLeft < (reasons.length > 0 ? certDays : renewBefore);
  const roots = [...(aged ? [describeEnd(authority)] : []), ...authority.flaws];
  // What is served is the server’s certificate with that of its authority.
  if (roots.length > 0 && reasons.length === 0) reasons.push('its authority is renewed');
  return { server: reasons, authority: roots, key };
}

/**
 * Makes the certificates that are to be renewed: the server’s on its own key, or a new one, and names, the authority’s on its own key and subject, so
 * that clients which trust the old one trust the new. Every one is checked before it is handed out. Throws `unsupported` for certificates that are
 * somebody’s own, or lack their authority’s key, `invalid-file` where the server’s key is another, and `internal` for one that does not pass.
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
    return { ...need, ...(await takeOver(options.own, { files, certificates, installation, now: options.now })) };
  }
  requireAutomatic(certificates, options);
  if (server === undefined || authority === undefined) throw new PluginError('internal', 'no certificate to renew');
  const { now, certDays, caDays } = options;
  const before = (path: string): Promise<Buffer | undefined> => files.read(path);
  const change = async (path: string, text: string, mode?: number): Promise<FileChange> => {
    return { path, before: await before(path), after: Buffer.from(text), ...(mode !== undefined && { mode }) };
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
      throw new PluginError('not-found', `there is no new authority to switch to: ${paths.next}`, {
        hint: 'Make it with --new-ca=prepare, and let all clients trust both before the switch.',
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
  const sound = [...new Set(hosts)].filter(isHost);
  if (!isHost(installation.host.value)) {
    const { value, file, line } = installation.host;
    throw new PluginError('unsupported', `no certificate can be for “${value}” (${file}:${line})`, {
      hint: 'Nothing was changed. SERVER_HOSTNAME has to be the host name or address by which clients reach the registry.',
    });
  }
  const fresh = need.key.length > 0 ? await createKeyLike(server) : undefined;
  const key = fresh ?? (await requireKey(files, certificates));
  const request = { like: server, key: fresh, hosts: sound, authority: signer, now, days: certDays };
  const issued = await issueServerCertificate(request);
  const roots = options.newAuthority === 'switch' ? [signer.certificate] : [authority, signer.certificate];
  check(issued, roots, key, sound);

  const changes = [await change(paths.server, issued + signer.certificate)];
  // The user of the container has to read the key too; the folder keeps others out.
  if (fresh !== undefined) changes.push(await change(paths.serverKey, fresh, 0o644));
  if (need.authority.length > 0) changes.push(await change(paths.authority, signer.certificate));
  if (options.newAuthority === 'switch') changes.push(await change(paths.authorityKey, signer.key, 0o600));
  return { ...need, changes, trusted: signer.certificate };
}

/** Whose the certificate of the server is once such a renewal is done; undefined where that is what it was. */
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
      `${paths.server} is not one that mirror-registry made, and is never touched`,
      'Renew it where it comes from, put the certificate with its chain and its key there, and restart quay-app.service.',
    ],
    stranded: [
      `the key of the authority is not in ${paths.authorityKey}: no certificate can be signed that clients trust`,
      'Bring the key back, or make a new authority with --new-ca=prepare, which all clients have to be told.',
    ],
    missing: [`there is no certificate to renew: ${paths.server}`, 'Bring it back from a backup.'],
    external: [
      'TLS ends before the registry (EXTERNAL_TLS_TERMINATION), which has no certificate of its own',
      'Renew the certificate of the proxy in front of it.',
    ],
  } as const;
  const [message, hint] = refusals[kind];
  throw new PluginError('unsupported', message, { hint });
}

/** The key of the server, in PEM, on which its certificate can be issued anew. */
async function requireKey(files: HostFiles, { paths, status }: HostCertificates): Promise<string> {
  const key = await files.readText(paths.serverKey);
  if (key !== undefined && status.hasKey) return key;
  throw new PluginError('invalid-file', keyProblem(paths, key !== undefined), { hint: keyHint });
}

function describeEnd({ daysLeft, notAfter }: { readonly daysLeft: number; readonly notAfter: string }): string {
  const date = notAfter.slice(0, 10);
  return daysLeft < 0 ? `it ended on ${date}` : `it ends on ${date}, in ${daysLeft} days`;
}

function check(pem: string, roots: readonly string[], key: string, hosts: readonly string[]): void {
  const certificate = new X509Certificate(pem);
  for (const root of roots.map((text) => new X509Certificate(text))) {
    if (!certificate.checkIssued(root) || !certificate.verify(root.publicKey)) {
      throw new PluginError('internal', 'the new certificate does not follow from its authority');
    }
  }
  const stray = hosts.find((host) => !host.startsWith('*') && !isFor(certificate, host));
  if (stray !== undefined) throw new PluginError('internal', `the new certificate is not for ${stray}`);
  if (certificate.checkPrivateKey(createPrivateKey(key))) return;
  throw new PluginError('internal', 'the new certificate is not for the key of the server');
}
