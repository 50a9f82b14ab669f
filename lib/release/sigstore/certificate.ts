import { X509Certificate, type KeyObject } from 'node:crypto';
import type * as x509 from '@peculiar/x509';
import { messageOf } from '../../errors.ts';
import { requireUsableKey } from './policyKey.ts';

/** A certificate of a signer or of an authority, with what the rules of Go’s crypto/x509 need. */
export interface Certificate {
  readonly der: Buffer;
  /** The names in DER form, in hex. */
  readonly subject: string;
  readonly issuer: string;
  /** In milliseconds. */
  readonly notBefore: number;
  readonly notAfter: number;
  readonly key: KeyObject;
  /** Whether it may issue certificates, and how many authorities may follow it at most. */
  readonly isAuthority: boolean;
  readonly pathLength: number | undefined;
  /** The OIDs of its extended key usage; none for any usage. */
  readonly usages: readonly string[];
  readonly emails: readonly string[];
  readonly hostnames: readonly string[];
  /** The values of its other extensions, by OID. */
  readonly extensions: ReadonlyMap<string, Buffer>;
  readonly x509: X509Certificate;
}

const oids = { subjectAltName: '2.5.29.17', keyUsage: '2.5.29.15', basic: '2.5.29.19', extended: '2.5.29.37' };

/** Critical extensions that are judged here, or that Go accepts: the last one has the certificate policies. */
const knownCritical: readonly string[] = [...Object.values(oids), '2.5.29.32'];

/** Name constraints and constraints of policies are not judged here: a certificate that has them is refused. */
const unsupported = ['2.5.29.30', '2.5.29.33', '2.5.29.36', '2.5.29.54'];

/**
 * Reads a certificate. Throws a TypeError for one that Go’s crypto/x509 does not accept, or whose extensions are not
 * supported here.
 */
export async function readCertificate(der: Buffer): Promise<Certificate> {
  const api = await load();
  try {
    return describe(api, der);
  } catch (cause) {
    throw new TypeError(`a certificate cannot be used: ${messageOf(cause)}`, { cause });
  }
}

function describe(api: typeof x509, der: Buffer): Certificate {
  const node = new X509Certificate(der);
  const parsed = new api.X509Certificate(new Uint8Array(der));
  if (!node.raw.equals(der)) throw new TypeError('it has trailing data');
  requireUsableKey(node.publicKey);
  requireStrongSignature(parsed.signatureAlgorithm);
  const byOid = new Map(parsed.extensions.map((extension) => [extension.type, extension]));
  if (byOid.size !== parsed.extensions.length) throw new TypeError('it has an extension twice');
  const odd = parsed.extensions.find(
    ({ type, critical }) => unsupported.includes(type) || (critical && !knownCritical.includes(type)),
  );
  if (odd) throw new TypeError(`its extension ${odd.type} is not supported`);
  const basic = byOid.get(oids.basic);
  const usage = byOid.get(oids.keyUsage);
  const extended = byOid.get(oids.extended);
  const isAuthority = basic instanceof api.BasicConstraintsExtension && basic.ca;
  const maySign =
    usage === undefined ||
    (usage instanceof api.KeyUsagesExtension && (usage.usages & api.KeyUsageFlags.keyCertSign) !== 0);
  return {
    der,
    subject: hexOf(parsed.subjectName.toArrayBuffer()),
    issuer: hexOf(parsed.issuerName.toArrayBuffer()),
    notBefore: parsed.notBefore.getTime(),
    notAfter: parsed.notAfter.getTime(),
    key: node.publicKey,
    isAuthority: isAuthority && maySign,
    pathLength: isAuthority ? basic.pathLength : undefined,
    usages: extended instanceof api.ExtendedKeyUsageExtension ? extended.usages.map(String) : [],
    ...readNames(api, byOid.get(oids.subjectAltName)),
    extensions: new Map([...byOid].map(([oid, { value }]) => [oid, Buffer.from(value)])),
    x509: node,
  };
}

/** Go refuses signatures with MD5 and SHA-1. RSA-PSS is refused here, because Go accepts some of its forms only. */
function requireStrongSignature({ name, hash }: Partial<x509.HashedAlgorithm>): void {
  const hashName = hash?.name ?? '';
  const isStrong = /^SHA-(?:256|384|512)$/.test(hashName) && /^(?:ECDSA|RSASSA-PKCS1-v1_5)$/.test(name ?? '');
  if (!isStrong && name !== 'Ed25519') throw new TypeError(`its signature algorithm ${String(name)} is not supported`);
}

function readNames(api: typeof x509, extension: x509.Extension | undefined): Pick<Certificate, 'emails' | 'hostnames'> {
  if (!extension) return { emails: [], hostnames: [] };
  if (!(extension instanceof api.SubjectAlternativeNameExtension)) throw new TypeError('its names are malformed');
  const { items } = extension.names;
  for (const { type, value } of items) {
    // Go refuses the whole certificate for one such name.
    const isText = type === 'email' || type === 'dns' || type === 'url';
    if (isText && !/^[\x20-\x7e]*$/.test(value)) throw new TypeError('a name of it is not ASCII');
    if (type === 'url' && !URL.canParse(value)) throw new TypeError('a name of it is not a URL');
  }
  const valuesOf = (kind: string): string[] => items.flatMap(({ type, value }) => (type === kind ? [value] : []));
  return { emails: valuesOf('email'), hostnames: valuesOf('dns') };
}

const hexOf = (bytes: ArrayBuffer): string => Buffer.from(bytes).toString('hex');

/** Loads the package on first use: few policies have certificates. */
async function load(): Promise<typeof x509> {
  await import('reflect-metadata');
  return import('@peculiar/x509');
}
