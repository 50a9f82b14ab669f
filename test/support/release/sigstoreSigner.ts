import { createHash, createPublicKey, generateKeyPairSync, sign, X509Certificate, type KeyObject } from 'node:crypto';
import 'reflect-metadata';
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
  const pkcs8 = new Uint8Array((by?.key ?? key).export({ type: 'pkcs8', format: 'der' }));
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: createHash('sha256').update(pkcs8).update(name).digest('hex').slice(0, 16).replace(/^./, '1'),
    subject: name,
    issuer: by?.name ?? name,
    notBefore: new Date((now + from) * 1000),
    notAfter: new Date((now + until) * 1000),
    publicKey: await x509.PublicKey.create(
      new Uint8Array(createPublicKey(key).export({ type: 'spki', format: 'der' })),
    ),
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

/** The OIDs of uses of a certificate. */
export const usages = { code: '1.3.6.1.5.5.7.3.3', server: '1.3.6.1.5.5.7.3.1', any: '2.5.29.37.0' } as const;

/** What a signer’s certificate says. */
export interface SignerOptions {
  readonly emails?: readonly string[];
  readonly hostnames?: readonly string[];
  /** The OIDC issuer in the older and the newer form; none for null. */
  readonly issuer?: string | null;
  readonly encodedIssuer?: string | Buffer | null;
  readonly usages?: readonly string[] | null;
  readonly more?: readonly x509.Extension[];
}

/** Creates the extensions of a signer’s certificate, as Fulcio does. */
export function signerExtensions(options: SignerOptions = {}): x509.Extension[] {
  const {
    emails = ['signer@example.com'],
    hostnames = [],
    issuer = null,
    encodedIssuer = 'https://login.example.com',
  } = options;
  const names: x509.JsonGeneralNames = [
    ...emails.map((value) => ({ type: 'email' as const, value })),
    ...hostnames.map((value) => ({ type: 'dns' as const, value })),
  ];
  const own = options.usages === undefined ? [usages.code] : options.usages;
  const encoded =
    typeof encodedIssuer === 'string'
      ? Buffer.concat([Buffer.from([0x0c, encodedIssuer.length]), Buffer.from(encodedIssuer)])
      : encodedIssuer;
  return [
    new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
    ...(own ? [new x509.ExtendedKeyUsageExtension([...own])] : []),
    ...(names.length > 0 ? [new x509.SubjectAlternativeNameExtension(names, true)] : []),
    ...(issuer === null
      ? []
      : [new x509.Extension('1.3.6.1.4.1.57264.1.1', false, new Uint8Array(Buffer.from(issuer)))]),
    ...(encoded === null ? [] : [new x509.Extension('1.3.6.1.4.1.57264.1.8', false, new Uint8Array(encoded))]),
    ...(options.more ?? []),
  ];
}

/** How an entry of a log differs from the right one. Values replace the right ones. */
export interface EntryOptions {
  readonly time?: unknown;
  readonly key?: KeyObject;
  readonly entry?: object;
  readonly payload?: object;
  /** Changes the text of the entry, of the signed payload, and of the whole. */
  readonly changeEntry?: (text: string) => string;
  readonly changeSigned?: (text: string) => string;
  readonly change?: (text: string) => string;
}

/** Creates the promise of a log (the annotation `dev.sigstore.cosign/bundle`) that it has a signature. */
export function makeEntry(
  logKey: KeyObject,
  { pem, signature, payload }: { readonly pem: string; readonly signature: string; readonly payload: string },
  options: EntryOptions = {},
): string {
  const entry = {
    apiVersion: '0.0.1',
    kind: 'hashedrekord',
    spec: {
      data: { hash: { algorithm: 'sha256', value: createHash('sha256').update(payload).digest('hex') } },
      signature: { content: signature, publicKey: { content: Buffer.from(pem).toString('base64') } },
    },
    ...options.entry,
  };
  const text = options.changeEntry?.(JSON.stringify(entry)) ?? JSON.stringify(entry);
  const body = Buffer.from(text).toString('base64');
  const signed = JSON.stringify({
    body,
    integratedTime: options.time ?? now,
    logID: 'c0d23d6ad406973f9559f3ba2d1ca01f84147d8ffc5b8445c224f98b9591801d',
    logIndex: 42,
    ...options.payload,
  });
  const final = options.changeSigned?.(signed) ?? signed;
  const promise = sign('sha256', Buffer.from(signed), options.key ?? logKey).toString('base64');
  const whole = `{"SignedEntryTimestamp":${JSON.stringify(promise)},"Payload":${final}}`;
  return options.change?.(whole) ?? whole;
}
