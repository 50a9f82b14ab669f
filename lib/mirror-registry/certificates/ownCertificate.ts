import { X509Certificate } from 'node:crypto';
import { messageOf, PluginError } from '../../errors.ts';
import { dateOf, isFor, isKeyOf, type HostCertificates } from './certificates.ts';
import type { FileChange } from '../fileChange.ts';
import type { HostFiles } from '../../machine/hostFiles.ts';
import type { Installation } from '../installation.ts';

/** A certificate of somebody’s own with its chain, and its key, in PEM. */
export interface OwnCertificate {
  readonly certificate: string;
  readonly key: string;
}

/** Why somebody’s own certificate has to be written; nothing where the present one, in PEM, is that one. Throws `invalid-file`. */
export function describeTakeOver(own: OwnCertificate, present: string | undefined): string[] {
  return isThere(readOwn(own), present) ? [] : ['your own certificate takes its place'];
}

/**
 * Has somebody’s own certificate and key take the place of those that are there, whosever these are; an authority of the installer stays
 * where it is. Throws `invalid-file` for one that cannot serve clients.
 */
export async function takeOver(
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
    (!isKeyOf(certificate, own.key) && 'the key is not its own') ||
    (!isFor(certificate, host.value) && `it is not for ${host.value}, which clients call`) ||
    (certificate.validToDate < now && `it ended on ${dateOf(certificate.validToDate)}`) ||
    (certificate.validFromDate > now && `it begins on ${dateOf(certificate.validFromDate)}`);
  if (problem) {
    throw new PluginError('invalid-file', `your certificate cannot take the place of the present one: ${problem}`);
  }
  if (isThere(certificate, server)) return { changes: [], trusted: own.certificate };
  const wanted: [path: string, text: string][] = [
    [paths.server, own.certificate],
    [paths.serverKey, own.key],
  ];
  const changes = await Promise.all(
    wanted.map(async ([path, text]): Promise<FileChange> => {
      // The user of the container has to read the key too; the folder keeps others out.
      return { path, before: await files.read(path), after: Buffer.from(text), mode: 0o644 };
    }),
  );
  return { changes, trusted: own.certificate };
}

function isThere(certificate: X509Certificate, present: string | undefined): boolean {
  return present !== undefined && certificate.raw.equals(new X509Certificate(present).raw);
}

function readOwn({ certificate }: OwnCertificate): X509Certificate {
  try {
    return new X509Certificate(certificate);
  } catch (cause) {
    throw new PluginError('invalid-file', `there is no certificate in what was given: ${messageOf(cause)}`, { cause });
  }
}
