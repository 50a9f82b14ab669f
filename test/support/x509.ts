import 'reflect-metadata';
import { createHash, createPublicKey, generateKeyPairSync, X509Certificate, type KeyObject } from 'node:crypto';
import { isIP } from 'node:net';
import * as x509 from '@peculiar/x509';

/** A certificate with its private key. */
export interface TestCertificate {
  readonly pem: string;
  readonly name: string;
  readonly key: KeyObject;
}

/** How a certificate differs from a self-signed one that began an hour ago and is valid for a day. */
export interface CertificateOptions {
  readonly name?: string;
  /** The issuer; itself by default. */
  readonly by?: TestCertificate;
  readonly key?: KeyObject;
  /** Seconds from now. */
  readonly from?: number;
  readonly until?: number;
  readonly hash?: string;
  readonly extensions?: readonly x509.Extension[];
}

/** The time at which this file was loaded, in seconds. */
export const now = Math.floor(Date.now() / 1000);

/** Creates a certificate. Its key is ECDSA on P-256 by default, as Fulcio’s. */
export async function makeCertificate(options: CertificateOptions = {}): Promise<TestCertificate> {
  const { name = 'CN=test', by, from = -3600, until = 86_400, hash = 'SHA-256', extensions = [] } = options;
  const key = options.key ?? makeKey();
  const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash };
  const publicKey = new Uint8Array(createPublicKey(key).export({ type: 'spki', format: 'der' }));
  const pkcs8 = new Uint8Array((by?.key ?? key).export({ type: 'pkcs8', format: 'der' }));
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: createHash('sha256')
      .update(publicKey)
      .update(pkcs8)
      .update(name)
      .digest('hex')
      .slice(0, 16)
      .replace(/^./, '1'),
    subject: name,
    issuer: by?.name ?? name,
    notBefore: new Date((now + from) * 1000),
    notAfter: new Date((now + until) * 1000),
    publicKey: await x509.PublicKey.create(publicKey),
    signingKey: await crypto.subtle.importKey('pkcs8', pkcs8, algorithm, false, ['sign']),
    signingAlgorithm: algorithm,
    extensions: [...extensions],
  });
  return { pem: new X509Certificate(Buffer.from(certificate.rawData)).toString(), name, key };
}

/** Creates a private key: ECDSA on P-256. */
export function makeKey(): KeyObject {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
}

/** Creates the extensions of an authority. */
export function authorityExtensions(pathLength?: number, usages?: readonly string[]): x509.Extension[] {
  return [
    new x509.BasicConstraintsExtension(true, pathLength, true),
    new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
    ...(usages ? [new x509.ExtendedKeyUsageExtension([...usages])] : []),
  ];
}

/** Creates the extensions of the certificate of a server or client, with its names and addresses. */
export function hostExtensions(hosts: readonly string[], usage: string): x509.Extension[] {
  const names = hosts.map((value) => ({ type: isIP(value) ? ('ip' as const) : ('dns' as const), value }));
  return [new x509.SubjectAlternativeNameExtension(names), new x509.ExtendedKeyUsageExtension([usage])];
}

/** The OIDs of uses of a certificate. */
export const usages = {
  code: '1.3.6.1.5.5.7.3.3',
  server: '1.3.6.1.5.5.7.3.1',
  client: '1.3.6.1.5.5.7.3.2',
  any: '2.5.29.37.0',
} as const;
