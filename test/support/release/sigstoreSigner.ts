import 'reflect-metadata';
import { createHash, sign, type KeyObject } from 'node:crypto';
import * as x509 from '@peculiar/x509';
import { now, usages } from '../x509.ts';

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
