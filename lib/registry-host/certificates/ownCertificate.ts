import { X509Certificate } from 'node:crypto';
import { messageOf, PluginError } from '../../errors.ts';
import { dateOf, isValidForHost, isKeyOf, type HostCertificates } from './certificates.ts';
import type { FileChange } from '../fileChange.ts';
import type { HostFiles } from '../../node/machine/hostFiles.ts';
import type { Installation } from '../installation.ts';

/** A certificate that the administrator provides, with its chain and key, in PEM. */
export interface OwnCertificate {
  readonly certificate: string;
  readonly key: string;
}

/**
 * Returns why the provided certificate must be written; empty if it is already the present one, in PEM. Throws
 * `invalid-file`.
 */
export function findReplacementReasons(own: OwnCertificate, present: string | undefined): string[] {
  return isPresent(readOwn(own), present) ? [] : ['your own certificate replaces it'];
}

/**
 * Replaces the certificate and key of the server with the provided ones. A CA of the installer stays. Throws
 * `invalid-file` for a certificate that cannot serve clients.
 */
export async function replaceCertificate(
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
