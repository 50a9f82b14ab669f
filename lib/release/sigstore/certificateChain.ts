import { X509Certificate, type KeyObject } from 'node:crypto';
import { isIP } from 'node:net';
import type * as x509 from '@peculiar/x509';
import { messageOf } from '#errors';
import { findCertificates, splitCertificates } from './strictJson.ts';
import { requireUsableKey, type Authorities, type TrustRoot } from './trustRoot.ts';

const codeSigning = ['1.3.6.1.5.5.7.3.3', '2.5.29.37.0'];

/** The extensions with the OIDC issuer (sigstore/fulcio, docs/oid-info.md). */
const issuerOids = { plain: '1.3.6.1.4.1.57264.1.1', encoded: '1.3.6.1.4.1.57264.1.8' };

/** A chain that needs more checks of signatures, or that brings more certificates, is refused. Go’s limit is 100. */
const limits = { checks: 100, certificates: 20 };

interface Pool {
  readonly roots: readonly Certificate[];
  readonly intermediates: readonly Certificate[];
}

/** The authorities of policies, which are read once for all images. */
const pools = new WeakMap<Authorities, Promise<Pool>>();

/**
 * Returns the certificate of a signature if an authority of the policy issued it for signing code and for the subject
 * of the policy, or the fault as a text. `time` is in milliseconds. Follows containers/image (signature/fulcio_cert.go,
 * signature/pki_cert.go) and crypto/x509 of Go.
 */
export async function checkCertificate(
  pem: string,
  chain: string | undefined,
  trust: Exclude<TrustRoot, { readonly kind: 'key' | 'invalid' }>,
  time: number,
): Promise<Certificate | string> {
  const [der, ...others] = splitCertificates(pem) ?? [];
  if (!der || others.length > 0) return 'its certificate cannot be read';
  const brought = splitCertificates(chain ?? '');
  if (!brought || brought.length > limits.certificates) return 'its chain of certificates cannot be read';
  try {
    const leaf = await readCertificate(der);
    const pool = await openPool(trust.authorities);
    // The last one is the root, which only a policy can name.
    const intermediates = await Promise.all(brought.slice(0, -1).map(readCertificate));
    for (const last of brought.slice(-1)) await readCertificate(last);
    const all = { ...pool, intermediates: [...pool.intermediates, ...intermediates] };
    if (!isIssued(leaf, all, time))
      return 'its certificate is not by an authority of the policy, or was not valid then';
    return findSubjectFault(leaf, trust) ?? leaf;
  } catch (error) {
    if (error instanceof TypeError) return error.message;
    throw error;
  }
}

function openPool(authorities: Authorities): Promise<Pool> {
  const open = async (): Promise<Pool> => {
    const results = await Promise.allSettled(findCertificates(authorities.roots).map(readCertificate));
    const roots = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
    if (roots.length === 0) throw new TypeError('the policy has no certificate authority that can be used');
    const intermediates = splitCertificates(authorities.intermediates);
    if (!intermediates) throw new TypeError('the intermediate authorities of the policy cannot be read');
    return { roots, intermediates: await Promise.all(intermediates.map(readCertificate)) };
  };
  const opened = pools.get(authorities) ?? open();
  pools.set(authorities, opened);
  return opened;
}

/** Returns whether a chain leads from a certificate to a root, all valid at a time and for signing code. */
function isIssued(leaf: Certificate, { roots, intermediates }: Pool, time: number): boolean {
  const isCurrent = ({ notBefore, notAfter }: Certificate): boolean => notBefore <= time && time <= notAfter;
  let checks = 0;
  const extend = (chain: readonly Certificate[], last: Certificate): boolean => {
    return [...roots, ...intermediates].some((parent, index) => {
      if (parent.subject !== last.issuer || !parent.isAuthority || !isCurrent(parent)) return false;
      if (chain.some(({ der }) => der.equals(parent.der))) return false;
      if (parent.pathLength !== undefined && chain.length - 1 > parent.pathLength) return false;
      checks += 1;
      if (checks > limits.checks || !last.x509.verify(parent.key)) return false;
      const longer = [...chain, parent];
      return index < roots.length ? longer.every(mayCoverCode) : extend(longer, parent);
    });
  };
  if (!isCurrent(leaf)) return false;
  return roots.some(({ der }) => der.equals(leaf.der)) ? mayCoverCode(leaf) : extend([leaf], leaf);
}

function mayCoverCode({ usages }: Certificate): boolean {
  return usages.length === 0 || usages.some((usage) => codeSigning.includes(usage));
}

function findSubjectFault(
  leaf: Certificate,
  trust: Exclude<TrustRoot, { readonly kind: 'key' | 'invalid' }>,
): string | undefined {
  if (trust.kind === 'fulcio' && issuerOf(leaf) !== trust.issuer) {
    return 'its certificate has another OIDC issuer than the policy';
  }
  if (trust.email !== undefined && !leaf.emails.includes(trust.email)) {
    return `its certificate is not for the email address ${trust.email}`;
  }
  if (trust.kind === 'pki' && trust.hostname !== undefined && !isFor(leaf, trust.hostname)) {
    return `its certificate is not for the host name ${trust.hostname}`;
  }
  return undefined;
}

/** Returns the OIDC issuer that Fulcio wrote into a certificate; undefined if it has none, or two different ones. */
function issuerOf({ extensions }: Certificate): string | undefined {
  const plain = extensions.get(issuerOids.plain)?.toString('utf8');
  const encoded = extensions.get(issuerOids.encoded);
  if (!encoded) return plain;
  // A UTF8String of DER, with a length of one or two bytes.
  const start = encoded[1] === 0x81 ? 3 : 2;
  const length = encoded[start - 1] ?? 0;
  const isText = encoded[0] === 0x0c && encoded.length === start + length && length >= (start === 3 ? 0x80 : 0);
  if (!isText || (start === 2 && length > 0x7f)) return undefined;
  const text = encoded.toString('utf8', start);
  return plain === undefined || plain === text ? text : undefined;
}

/**
 * Returns whether a certificate is for a host, by its names only and with wildcards for the first label. A policy for
 * `*.example.com` wants exactly that name, as in crypto/x509 of Go.
 */
function isFor({ hostnames, x509 }: Certificate, host: string): boolean {
  if (isIP(host) !== 0) return x509.checkIP(host) !== undefined;
  const hostLabels = host.toLowerCase().replace(/\.$/, '').split('.');
  if (!hostLabels.every((label) => /^[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?$/.test(label)))
    return hostnames.some((name) => name.toLowerCase() === host.toLowerCase());
  return hostnames.some((name) => {
    const labels = name.toLowerCase().split('.');
    return (
      labels.length === hostLabels.length &&
      name !== '*' &&
      labels.every((label, index) => label === hostLabels[index] || (index === 0 && label === '*'))
    );
  });
}

/** A certificate of a signer or of an authority, with what the rules of Go’s crypto/x509 need. */
interface Certificate {
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
async function readCertificate(der: Buffer): Promise<Certificate> {
  const api = await load();
  try {
    return parseCertificate(api, der);
  } catch (cause) {
    throw new TypeError(`a certificate cannot be used: ${messageOf(cause)}`, { cause });
  }
}

function parseCertificate(api: typeof x509, der: Buffer): Certificate {
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
