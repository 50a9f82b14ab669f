import {
  createPrivateKey,
  createPublicKey,
  generateKeyPair,
  randomBytes,
  X509Certificate,
  type KeyObject,
} from 'node:crypto';
import { isIP, BlockList } from 'node:net';
import { promisify } from 'node:util';
import type * as x509 from '@peculiar/x509';

/**
 * The validity of a certificate in days. It begins five minutes before `now`, because clocks differ. If the certificate
 * replaces another one, it begins with that one: this clock may be a year ahead of those of clients.
 */
interface Validity {
  readonly now: Date;
  readonly days: number;
}

/** A certificate authority with its key, in PEM. */
export interface Authority {
  readonly certificate: string;
  readonly key: string;
}

/** A request for the certificate of a server. */
interface ServerCertificateRequest extends Validity {
  /** The certificate that it replaces, in PEM. The subject stays, and the public key unless `key` is given. */
  readonly like: string;
  /** A new private key, in PEM. */
  readonly key?: string;
  /** Names and addresses without brackets. */
  readonly hosts: readonly string[];
  readonly authority: Authority;
}

const day = 24 * 60 * 60 * 1000;

/** The longest validity of a server’s certificate, in days, that all clients accept. */
const longest = 825;

/**
 * Issues the certificate of a server, in PEM. It is not a CA, is for `serverAuth`, has the key identifiers of server
 * and CA, and has IP addresses as addresses. It expires no later than its CA.
 */
export async function issueServerCertificate({ like, key, ...request }: ServerCertificateRequest): Promise<string> {
  const api = await load();
  const old = new api.X509Certificate(like);
  const isRsa = new X509Certificate(like).publicKey.asymmetricKeyType === 'rsa';
  const publicKey = key === undefined ? old.publicKey : await publicKeyOf(api, createPublicKey(key));
  const { now, days } = request;
  const since = new Date(Math.max(old.notBefore.getTime(), now.getTime() - (longest - days) * day));
  return issue(api, { ...request, since, subject: old.subjectName, publicKey, isRsa });
}

/**
 * Creates a P-256 key and issues the certificate of a server for it, both in PEM, as issueServerCertificate does. The
 * name is its common name.
 */
export async function createServerCertificate(
  name: string,
  request: Omit<ServerCertificateRequest, 'like' | 'key'>,
): Promise<Authority> {
  const api = await load();
  const keys = await promisify(generateKeyPair)('ec', { namedCurve: 'prime256v1' });
  const publicKey = await publicKeyOf(api, keys.publicKey);
  const subject = new api.Name([{ CN: [name] }]);
  return {
    key: keys.privateKey.export({ type: 'pkcs8', format: 'pem' }),
    certificate: await issue(api, { ...request, subject, publicKey, isRsa: false }),
  };
}

interface IssueRequest extends Omit<ServerCertificateRequest, 'like' | 'key'> {
  readonly subject: x509.Name;
  readonly publicKey: x509.PublicKey;
  readonly isRsa: boolean;
  readonly since?: Date;
}

async function issue(
  api: Api,
  { subject, publicKey, isRsa, hosts, authority, now, days, since }: IssueRequest,
): Promise<string> {
  const issuer = new api.X509Certificate(authority.certificate);
  const { digitalSignature, keyEncipherment } = api.KeyUsageFlags;
  const forRsa: x509.KeyUsageFlags = digitalSignature | keyEncipherment;
  const certificate = await api.X509CertificateGenerator.create({
    serialNumber: newSerial(),
    subject,
    issuer: issuer.subjectName,
    notBefore: startOf(now, since),
    notAfter: new Date(Math.min(now.getTime() + days * day, issuer.notAfter.getTime())),
    publicKey,
    ...(await signWith(authority.key)),
    extensions: [
      new api.BasicConstraintsExtension(false, undefined, true),
      new api.KeyUsagesExtension(isRsa ? forRsa : digitalSignature, true),
      new api.ExtendedKeyUsageExtension([api.ExtendedKeyUsage.serverAuth]),
      await api.SubjectKeyIdentifierExtension.create(publicKey),
      new api.AuthorityKeyIdentifierExtension(await keyIdentifierOf(api, issuer)),
      new api.SubjectAlternativeNameExtension(namesOf(hosts)),
    ],
  });
  return `${certificate.toString('pem')}\n`;
}

/** Reissues the certificate of a CA, in PEM, with the same key and subject, so that clients keep their trust. */
export async function reissueAuthority({ certificate, key, now, days }: Authority & Validity): Promise<string> {
  const api = await load();
  const old = new api.X509Certificate(certificate);
  const validity = { key, now, days, since: old.notBefore };
  return createRoot(api, old.subjectName, old.publicKey, await keyIdentifierOf(api, old), validity);
}

/** Creates a CA with a new key and name. */
export async function createAuthority(host: string, { now, days }: Validity): Promise<Authority> {
  const api = await load();
  const keys = await promisify(generateKeyPair)('rsa', { modulusLength: 3072 });
  const key = keys.privateKey.export({ type: 'pkcs8', format: 'pem' });
  const publicKey = await publicKeyOf(api, keys.publicKey);
  // A common name has at most 64 characters. The serial number distinguishes the CAs of a host.
  const name = new api.Name([
    { O: ['Quay'] },
    { CN: [host.slice(0, 64)] },
    { '2.5.4.5': [randomBytes(8).toString('hex')] },
  ]);
  const identifier = Buffer.from(await publicKey.getKeyIdentifier()).toString('hex');
  return { key, certificate: await createRoot(api, name, publicKey, identifier, { key, now, days }) };
}

/**
 * Creates a CA with a new P-256 key, which can only issue certificates of servers, and only for the permitted names.
 * The name is its common name.
 */
export async function createConstrainedAuthority(
  name: string,
  permitted: PermittedNames,
  { now, days }: Validity,
): Promise<Authority> {
  const api = await load();
  const keys = await promisify(generateKeyPair)('ec', { namedCurve: 'prime256v1' });
  const key = keys.privateKey.export({ type: 'pkcs8', format: 'pem' });
  const publicKey = await publicKeyOf(api, keys.publicKey);
  const subject = new api.Name([{ CN: [name] }, { '2.5.4.5': [randomBytes(8).toString('hex')] }]);
  const identifier = Buffer.from(await publicKey.getKeyIdentifier()).toString('hex');
  const constraints = new api.Extension('2.5.29.30', true, Uint8Array.from(encodeNameConstraints(permitted)));
  const root = await createRoot(api, subject, publicKey, identifier, { key, now, days }, [constraints]);
  return { key, certificate: root };
}

/** Creates a private key of the same kind as the key of a certificate, in PEM. RSA keys have at least 2048 bits. */
export async function createKeyLike(pem: string): Promise<string> {
  const { asymmetricKeyType, asymmetricKeyDetails: details } = new X509Certificate(pem).publicKey;
  const { privateKey } =
    asymmetricKeyType === 'ec'
      ? await promisify(generateKeyPair)('ec', { namedCurve: details?.namedCurve ?? 'prime256v1' })
      : await promisify(generateKeyPair)('rsa', { modulusLength: Math.max(2048, details?.modulusLength ?? 0) });
  return privateKey.export({ type: 'pkcs8', format: 'pem' });
}

/**
 * Lists the reasons why strict clients refuse a certificate, one phrase each; empty for certificates of this program.
 */
export async function listFlaws(pem: string): Promise<string[]> {
  const api = await load();
  const certificate = new api.X509Certificate(pem);
  const constraints = certificate.getExtension(api.BasicConstraintsExtension);
  const usages = certificate.getExtension(api.KeyUsagesExtension)?.usages ?? 0;
  const signs = (usages & api.KeyUsageFlags.keyCertSign) !== 0;
  const names = certificate.getExtension(api.SubjectAlternativeNameExtension)?.names.items ?? [];
  const misnamed = names.filter(({ type, value }) => type === 'dns' && isIP(value) > 0);
  const isAlone = certificate.issuer === certificate.subject;
  const flaws: (string | false)[] = constraints?.ca
    ? [
        !constraints.critical && 'its basic constraints are not critical',
        !signs && 'it may not sign certificates',
        !certificate.getExtension(api.SubjectKeyIdentifierExtension) && 'it has no subject key identifier',
      ]
    : [
        signs && 'it may sign certificates but is not a CA',
        names.length === 0 && 'it names no host',
        !isAlone &&
          !certificate.getExtension(api.AuthorityKeyIdentifierExtension) &&
          'it has no authority key identifier',
        ...misnamed.map(({ value }) => `it has the address ${value} as a DNS name`),
      ];
  return flaws.filter((flaw) => flaw !== false);
}

type Api = typeof x509;

/** Loads the package on first use, because loading takes longer than most commands. */
async function load(): Promise<Api> {
  await import('reflect-metadata');
  return import('@peculiar/x509');
}

function publicKeyOf(api: Api, key: KeyObject): Promise<x509.PublicKey> {
  return api.PublicKey.create(key.export({ type: 'spki', format: 'der' }));
}

function startOf(now: Date, since = now): Date {
  return new Date(Math.min(now.getTime() - 5 * 60_000, since.getTime()));
}

async function createRoot(
  api: Api,
  name: x509.Name,
  publicKey: x509.PublicKey,
  identifier: string,
  { key, now, days, since }: Validity & { readonly key: string; readonly since?: Date },
  more: readonly x509.Extension[] = [],
): Promise<string> {
  const { keyCertSign, cRLSign, digitalSignature } = api.KeyUsageFlags;
  const certificate = await api.X509CertificateGenerator.create({
    serialNumber: newSerial(),
    subject: name,
    issuer: name,
    notBefore: startOf(now, since),
    notAfter: new Date(now.getTime() + days * day),
    publicKey,
    ...(await signWith(key)),
    extensions: [
      new api.BasicConstraintsExtension(true, 1, true),
      new api.KeyUsagesExtension(keyCertSign | cRLSign | digitalSignature, true),
      new api.SubjectKeyIdentifierExtension(identifier),
      // Without a serial number, which would tie certificates to one certificate of the CA.
      new api.AuthorityKeyIdentifierExtension(identifier),
      ...more,
    ],
  });
  return `${certificate.toString('pem')}\n`;
}

async function signWith(
  pem: string,
): Promise<{ signingKey: CryptoKey; signingAlgorithm: { name: string; hash: string } }> {
  const key = createPrivateKey(pem);
  const curve = curveOf(key);
  const algorithm =
    curve === undefined
      ? { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' }
      : { name: 'ECDSA', namedCurve: curve, hash: 'SHA-256' };
  const pkcs8 = key.export({ type: 'pkcs8', format: 'der' });
  const signingKey = await crypto.subtle.importKey('pkcs8', pkcs8, algorithm, false, ['sign']);
  return { signingKey, signingAlgorithm: { name: algorithm.name, hash: algorithm.hash } };
}

function curveOf({ asymmetricKeyDetails }: KeyObject): string | undefined {
  const names: Readonly<Record<string, string>> = { prime256v1: 'P-256', secp384r1: 'P-384', secp521r1: 'P-521' };
  return names[asymmetricKeyDetails?.namedCurve ?? ''];
}

async function keyIdentifierOf(api: Api, certificate: x509.X509Certificate): Promise<string> {
  const stated = certificate.getExtension(api.SubjectKeyIdentifierExtension)?.keyId;
  return stated ?? Buffer.from(await certificate.publicKey.getKeyIdentifier()).toString('hex');
}

function namesOf(hosts: readonly string[]): { type: 'dns' | 'ip'; value: string }[] {
  return hosts.map((host) => ({ type: isIP(host) ? 'ip' : 'dns', value: host }));
}

/** Returns a positive number of 127 random bits, in hex. */
function newSerial(): string {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40;
  return bytes.toString('hex');
}

/** The names for which a CA may issue certificates. */
interface PermittedNames {
  /** Host names, each with all names below it. */
  readonly names: readonly string[];
  /** Networks such as `192.0.2.0/24` and `fd00::/64`. */
  readonly networks: readonly string[];
}

/** Returns the extension of a CA that permits only some names, in DER (RFC 5280, section 4.2.1.10). */
function encodeNameConstraints({ names, networks }: PermittedNames): Buffer {
  const bases = [
    ...names.map((name) => encode(0x82, Buffer.from(name, 'ascii'))),
    ...networks.map((network) => encode(0x87, encodeNetwork(network))),
  ];
  const subtrees = bases.map((base) => encode(0x30, base));
  return encode(0x30, encode(0xa0, Buffer.concat(subtrees)));
}

/** Returns whether an address is in one of some networks. */
export function isWithin(address: string, networks: readonly string[]): boolean {
  const list = new BlockList();
  for (const network of networks) {
    const { base, length } = split(network);
    list.addSubnet(base, length, isIP(base) === 6 ? 'ipv6' : 'ipv4');
  }
  return list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}

function encode(tag: number, content: Buffer): Buffer {
  const { length } = content;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

/** The address of a network and its mask, as bytes one after another. */
function encodeNetwork(network: string): Buffer {
  const { base, length } = split(network);
  const bytes = isIP(base) === 6 ? bytesOf6(base) : Buffer.from(base.split('.').map(Number));
  const mask = bytes.map((_, index) => (0xff00 >> Math.min(8, Math.max(0, length - index * 8))) & 0xff);
  return Buffer.concat([bytes.map((byte, index) => byte & (mask[index] ?? 0)), mask]);
}

function bytesOf6(address: string): Buffer {
  const [head = '', tail] = address.split('::');
  const groups = (text = ''): number[] => text.split(':').flatMap((each) => (each === '' ? [] : [parseInt(each, 16)]));
  const [first, last] = [groups(head), groups(tail)];
  const zeros = new Array<number>(8 - first.length - last.length).fill(0);
  return Buffer.from([...first, ...zeros, ...last].flatMap((group) => [group >> 8, group & 0xff]));
}

function split(network: string): { base: string; length: number } {
  const [base = '', length] = network.split('/');
  return { base, length: Number(length ?? (isIP(base) === 6 ? 128 : 32)) };
}
